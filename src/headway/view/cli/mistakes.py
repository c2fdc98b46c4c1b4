"""Wrong command lines, in one line: what was found, and what it may have been meant to be."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

LIKE = 0.5
"""How much of two words must be the same for the one to be meant by the other."""


def describe(error: click.ClickException) -> str:
    """One line."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else _asked()
    message = " ".join(error.format_message().split())
    if isinstance(error, click.NoSuchOption):
        message = (
            f"no such option {error.option_name}{_meant(error.option_name, _options(context))}"
        )
    elif isinstance(error, click.MissingParameter) and error.param is not None:
        message = f"expected {_written(error.param)}, found none."
    elif isinstance(error, click.BadOptionUsage):
        message = f"expected a value after {error.option_name}, found none."
    elif isinstance(error, click.BadParameter) and error.param is not None:
        message = f"{error.param.opts[0]}: {error.message}"
    elif message.startswith("Got unexpected extra"):
        message = f"found more than expected: {message.partition('(')[2].rstrip(').')}."
    if message[-1:] not in ".?!":
        message += "."
    return f"{path}: {message} Run '{path} --help' to see what it takes."


def no_such_command(name: str, known: Iterable[str], context: click.Context) -> click.UsageError:
    """For a group."""
    return click.UsageError(f"no such command {name}{_meant(name, known)}", context)


def _asked() -> str:
    """The command on the command line, where an error does not say whose it is."""
    from headway.view.cli import COMMANDS

    return f"headway {sys.argv[1]}" if sys.argv[1:2] and sys.argv[1] in COMMANDS else "headway"


def _written(parameter: click.Parameter) -> str:
    """As people write it: the shortest name of an option, with what it takes."""
    context = click.Context(click.Command("headway"))
    value = parameter.make_metavar(context)
    return f"{parameter.opts[0]} {value}" if isinstance(parameter, click.Option) else value


def _options(context: click.Context | None) -> list[str]:
    if context is None:
        return []
    parameters = context.command.get_params(context)
    return [o for p in parameters for o in (*p.opts, *p.secondary_opts) if o.startswith("-")]


def _meant(found: str, known: Iterable[str]) -> str:
    """The nearest of the known words, if any is near; one that begins with what was found is."""
    from difflib import SequenceMatcher

    def likeness(word: str) -> float:
        return SequenceMatcher(None, found, word).ratio() + word.startswith(found)

    nearest = max(known, key=likeness, default="")
    return f"; did you mean {nearest}?" if nearest and likeness(nearest) >= LIKE else "."
