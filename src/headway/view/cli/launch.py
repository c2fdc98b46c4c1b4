"""`headway launch`"""

from __future__ import annotations

import signal

import click

from headway.view import completing
from headway.view.errors import UserError


class Launch(click.Command):
    """Takes its options before and after PRIO, and leaves the program's own alone."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {name for param in self.params for name in param.opts if _is_flag(param)}
        flags |= set(ctx.help_option_names)
        options: list[str] = []
        words: list[str] = []
        rest = list(args)
        while rest and len(words) < 1 + (rest[0] != "--"):
            word = rest.pop(0)
            if word == "--":
                words += rest[:1]
                rest = rest[1:]
            elif not word.startswith("-") or word[1:].isdigit():
                words.append(word)
            else:
                options.append(word)
                if word not in flags and "=" not in word and rest:
                    options.append(rest.pop(0))
        return super().parse_args(ctx, [*options, "--", *words, *rest])


def _is_flag(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and param.is_flag


@click.command(name="launch", cls=Launch, context_settings={"allow_interspersed_args": False})
@click.argument("prio")
@click.option("--name", help="What the program is called in top; by default its file or script.")
@click.option(
    "--share",
    metavar="P%[..P%]",
    help="The part of the multiprocessors that it may get, such as 25%..100%.",
)
@click.option(
    "--controller",
    metavar="NAME",
    help="How misses change shares from now on: slowdown, aimd, bisection, alone.",
)
@click.option(
    "--no-gate", is_flag=True, help="Change shares only; the program does not wait for its turn."
)
@click.option(
    "--patience",
    default="5s",
    show_default=True,
    metavar="T",
    help="How long to wait for a program to end after SIGINT, and again after SIGTERM.",
)
@click.argument(
    "command_line",
    nargs=-1,
    metavar="PROGRAM [ARG]...",
    required=True,
    type=click.UNPROCESSED,
    shell_complete=completing.programs,
)
def command(
    prio: str,
    name: str | None,
    share: str | None,
    controller: str | None,
    no_gate: bool,
    patience: str,
    command_line: tuple[str, ...],
) -> None:
    """Run a program, and give less important ones less of the GPU when it misses deadlines.

    The program writes "missed" or "pass" to stderr after each of its jobs; these words are taken
    out, everything else is passed on. PRIO is a whole number; larger is more important. Under MPS a
    program that gets another share is asked to end by SIGINT, and is started again; it has to end
    between two kernels. The exit code is the program's, or 127, 126 or 2 as for headway run.
    """
    from headway.live.launched.program import Program, StartError
    from headway.live.launched.supervisor import TaskError
    from headway.view import launching

    words = list(command_line[1:] if command_line[0] == "--" else command_line)
    if not words:
        raise UserError("headway launch: expected a program after --")
    level, shares = launching.priority(prio), launching.share(share)
    path = launching.program(words[0])
    launching.choose(controller)
    codes: list[int | None] = []

    def ended(program: Program) -> None:
        codes.append(program.code)

    supervisor = launching.supervisor(
        ended, gated=not no_gate, stdin=launching.stdin(), patience=patience
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: supervisor.post(supervisor.end_all))
    try:
        supervisor.launch(name or launching.default_name(path), level, shares, path, words)
    except TaskError as error:
        raise UserError(f"headway launch: {error}") from None
    except StartError as error:
        raise UserError(f"headway launch: {error}", code=126) from None
    supervisor.run(until_idle=True)
    raise SystemExit(launching.exit_code(codes[0] if codes else None))
