"""`headway shell`"""

from __future__ import annotations

import sys

import click


@click.command(name="shell")
@click.option(
    "--controller",
    metavar="NAME",
    help="How misses change shares from now on: slowdown, aimd, bisection, alone.",
)
@click.option(
    "--no-gate", is_flag=True, help="Change shares only; programs do not wait for their turn."
)
@click.option(
    "--patience",
    default="5s",
    show_default=True,
    metavar="T",
    help="How long to wait for a program to end after SIGINT, and again after SIGTERM.",
)
def command(controller: str | None, no_gate: bool, patience: str) -> None:
    """Launch programs and change them at a prompt, or as the lines on stdin say.

    launch PRIO PATH starts one as headway launch does; ls, set, kill, wait and quit; help explains.
    At the end of a script the shell waits for its programs; quit asks them to end. The exit code
    is 1 if a line was wrong.
    """
    from headway.view import launching
    from headway.view.shell import Shell

    launching.choose(controller)
    with Shell(gated=not no_gate, patience=patience) as shell:
        code = shell.serve(sys.stdin)
    raise SystemExit(code)
