"""`headway config`"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

import click

from headway.engine.reading import BadInput
from headway.engine.settings import describe
from headway.engine.spec import Spec
from headway.engine.units import format_ns
from headway.view import settings
from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.errors import BAD_INPUT, UserError, say

EXAMPLE = "headway.toml"


@click.group(name="config", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Show, write and check settings and spec files.

    Every daemon without --spec reads ~/.config/headway/headway.toml. It is a spec file, in which
    [daemon] has options of the daemon; a running daemon takes up changes at once.
    """
    print_help_if_bare(context)


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def check(files: tuple[str, ...]) -> int:
    """Report every mistake in spec files, in TOML or in the form name:sched:resv:prio:C:T."""
    code = 0
    for file in files:
        try:
            show_spec(file, settings.read(file))
        except BadInput as error:
            say(str(error))
            code = BAD_INPUT
    return code


@command.command()
def path() -> None:
    """Print the path of the settings file, whether it exists or not."""
    click.echo(settings.path())


@command.command()
def show() -> None:
    """Show the settings that the next daemon will use."""
    file = settings.path()
    settings.check_owner(file)
    if file.exists():
        show_spec(str(file), settings.read(str(file)))
    else:
        click.echo(f"{file}: not there, so everything is at its default; run headway config init")


@command.command()
def init() -> None:
    """Write a settings file that explains every key and changes nothing yet."""
    file = settings.path()
    if os.path.lexists(file):
        raise UserError(f"{file}: is there already; headway config edit opens it")
    _write_example(file)
    click.echo(f"{file}: written; headway config edit opens it")


@command.command()
def edit() -> int:
    """Open the settings in $VISUAL or $EDITOR, then check them."""
    file = settings.path()
    if not file.exists():
        _write_example(file)
    words = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "sensible-editor"
    try:  # by a shell, because such a variable may have options
        done = subprocess.run(["sh", "-c", f'{words} "$1"', "sh", str(file)], check=False)  # noqa: S603, S607
    except OSError as error:
        raise UserError(f"headway config edit: {words}: {error.strerror}", code=1) from None
    if done.returncode:
        say(f"headway config edit: {words} ended with {done.returncode}; set EDITOR")
        return 1
    return check.callback((str(file),)) if check.callback is not None else 0


def _write_example(file: Path) -> None:
    from headway.view.cli.examples import folder

    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(folder() / EXAMPLE, file)
    except OSError as error:
        where = error.filename or file
        raise UserError(f"headway config: {where}: {error.strerror}", code=1) from None


def show_spec(file: str, spec: Spec) -> None:
    """What a spec says of each task, who else is served, and options of the daemon."""
    click.echo(f"{file}: fine, {len(spec.entries)} entries")
    for entry in spec.entries:
        chosen = entry.reserve
        reserve = "background" if chosen.background else "no reserve"
        if chosen.spec is not None:
            pool = f", shared as {chosen.spec.shared!r}" if chosen.spec.shared else ""
            reserve = describe(chosen.spec) + pool
        goals = [
            f"{name} {format_ns(value)}"
            for name, value in (("period", entry.period_ns), ("deadline", entry.deadline_ns))
            if value is not None
        ]
        what = [f"{entry.pattern}: {entry.policy}", f"priority {entry.priority}", reserve, *goals]
        click.echo("  " + ", ".join(what))
    for key, value in spec.daemon:
        click.echo(f"  headway daemon --{key}: {str(value).lower()}")
    for name in spec.allowed.users:
        try:
            pwd.getpwnam(name)
        except KeyError:
            click.echo(f"  allow.users: this machine has no user {name!r}")
