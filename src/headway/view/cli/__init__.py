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
    "analyse": "Bound response times by proof: schedulable or not, and what dominates.",
    "calibrate": "Measure what work costs on this machine's devices.",
    "check": "Check a trace against the rules.",
    "compare": "Simulate a scenario under several policies or variants.",
    "completion": "Print a completion script for bash, zsh or fish.",
    "config": "Check spec files.",
    "daemon": "Serve programs that run under Headway.",
    "doctor": "Look at everything that Headway needs, and say how to put it right.",
    "examples": "List, print or copy example scenarios, specs and policies.",
    "explain": "Say why a program waits, and what it waited for.",
    "launch": "Run a program whose share of the GPU follows deadlines.",
    "locks": "Run a token allocator alone and show who gets what when.",
    "papers": "Run the papers' experiments and check their claims.",
    "plot": "Draw a trace as vector pictures.",
    "predict": "Say how well costs of groups are predicted.",
    "policies": "List policies, priority rules, cost models and programs.",
    "ps": "List the programs that the daemon serves.",
    "report": "Show a trace as a page for the browser.",
    "replay": "Simulate a recorded run under other policies.",
    "run": "Run a program under Headway.",
    "set": "Change a program while it runs.",
    "shell": "Launch programs and change them at a prompt.",
    "sim": "Simulate scenarios.",
    "status": "Show the daemon and the programs it serves.",
    "stop": "Stop the daemon.",
    "study": "Study many random task sets: what fraction is schedulable.",
    "top": "Watch who uses the GPU and who waits, and change it.",
    "trace": "Record what the daemon does.",
    "web": "Serve a live page of what runs, on this machine only.",
}


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
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="headway")
@click.pass_context
def headway(context: click.Context) -> None:
    """GPU time, on time.

    Headway orders the GPU work of several programs by priority, gives each a budget, and lets you
    simulate and check what that does.
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
