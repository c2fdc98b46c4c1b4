"""Wrong command lines, in one line: what was found, and what it may have been meant to be."""

from __future__ import annotations

from collections.abc import Iterable

import click

LIKE = 0.5
"""How much of two words must be the same for the one to be meant by the other."""


def describe(error: click.ClickException) -> str:
    """One line."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "headway"
    message = " ".join(error.format_message().split())
    if isinstance(error, click.NoSuchOption):
        message = (
            f"no such option {error.option_name}{_meant(error.option_name, _options(context))}"
        )
    return f"{path}: {message} Run '{path} --help' to see what it takes."


def no_such_command(name: str, known: Iterable[str], context: click.Context) -> click.UsageError:
    """For a group."""
    return click.UsageError(f"no such command {name}{_meant(name, known)}", context)


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
