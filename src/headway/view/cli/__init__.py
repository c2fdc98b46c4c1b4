"""The `headway` command: one small file per subcommand, imported only when it is used."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from headway import __version__
from headway.view.cli import mistakes, streams
from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.errors import BAD_INPUT, FAILED, INTERRUPTED, UserError, say

COMMANDS = {
    "analyse": "Prove whether every deadline is met, and say what dominates response times.",
    "calibrate": "Measure what OpenGL work costs on this machine's GPUs.",
    "check": "Check a trace against the scheduling rules.",
    "compare": "Simulate a scenario under several policies or variants.",
    "completion": "Print a completion script for bash, zsh or fish.",
    "config": "Show, edit and check settings and spec files.",
    "daemon": "Run the daemon in the foreground.",
    "doctor": "Check everything that Headway needs, and say how to fix what is missing.",
    "examples": "List, print or copy example scenarios, specs and policies.",
    "explain": "Say why a program waits, and what it waited for.",
    "fleet": "Reserve GPU time on many machines, on Ray.",
    "launch": "Run a program; when it misses deadlines, others get less of the GPU.",
    "locks": "Try GPUSync's token allocator alone: who gets which GPU when.",
    "papers": "Run the papers' experiments and check their claims.",
    "plot": "Draw a trace as pictures (SVG, PDF, PNG).",
    "predict": "Judge how well the cost of GPU work is predicted.",
    "policies": "List policies, priority rules, cost models and programs.",
    "ps": "List the programs that the daemon serves.",
    "report": "Turn a trace into a page for the browser.",
    "replay": "Simulate a recorded run under other policies.",
    "run": "Run a program with a priority and a budget.",
    "set": "Change the priority or budget of a running program.",
    "shell": "Launch and change programs at a prompt.",
    "sim": "Simulate a scenario, without a GPU.",
    "status": "Show the daemon and its programs in full.",
    "stop": "Stop the daemon.",
    "study": "Find what fraction of random task sets is schedulable.",
    "top": "Watch who uses the GPU and who waits, and change priorities.",
    "trace": "Record what runs, for Perfetto, report, check and replay.",
    "web": "Show in the browser, live, what runs.",
}

SECTIONS = {
    "Run programs": ("run", "launch", "shell", "set"),
    "Watch them": ("top", "web", "ps", "status", "explain", "doctor"),
    "Record a run, and look at it afterwards": ("trace", "report", "plot", "check", "replay"),
    "Set up": ("daemon", "stop", "config", "calibrate", "completion", "examples"),
    "Many machines": ("fleet",),
    "Simulate and study": (
        "sim", "compare", "analyse", "study", "policies", "predict", "locks", "papers",
    ),
}  # fmt: skip
"""Commands by what they are for, in the order in which a newcomer needs them."""


class LazyGroup(Group):
    """Knows its commands by name and help line, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"headway.view.cli.{cmd_name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        found = [(name, text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=text) for name, text in found] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        placed = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in COMMANDS if name not in placed)
        width = max(map(len, COMMANDS))
        for title, names in {**SECTIONS, "More": others}.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(width), COMMANDS[name]) for name in names])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="headway")
@click.pass_context
def headway(context: click.Context) -> None:
    """GPU time, on time.

    Several programs share a GPU, and the important one does not pay for it: Headway puts their GPU
    work in priority order, gives each program a budget, and shows who waits for what.

    \b
    headway run --priority 9 -- PROGRAM    protect a program
    headway top                            see who uses the GPU
    """
    print_help_if_bare(context)


def main() -> None:
    """Run the command; every foreseeable mistake is one line on stderr and an exit code."""
    streams.complete()
    try:
        code = headway.main(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        say(mistakes.describe(error))
        sys.exit(BAD_INPUT)
    except UserError as error:
        say(str(error))
        sys.exit(error.code)
    except BrokenPipeError:  # the reader, such as `head`, has enough
        sys.exit(0)
    except OSError as error:
        say(f"headway: {streams.describe(error)}")
        sys.exit(FAILED)
    except Exception as error:
        if not _is_bad_input(error):
            raise
        say(str(error))
        sys.exit(BAD_INPUT)
    finally:
        streams.drop()


def _is_bad_input(error: Exception) -> bool:
    """Imported now that there is such an error, and not at every start."""
    from headway.engine.reading import BadInput
    from headway.engine.registry import ExtensionError

    return isinstance(error, BadInput | ExtensionError)
