"""The settings file of a user, which every daemon reads that is given no other spec."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import click

from headway.engine.reading import BadInput, Problem, one_of, shown
from headway.engine.spec import Spec, parse_spec
from headway.live.wire.paths import user_folder
from headway.view.errors import UserError
from headway.view.files import read_text

NO_SETTINGS = ("--spec", "--until-idle", "--no-leases", "--tick", "--help")
"""Options of the daemon that are for one start of it."""


def path() -> Path:
    """`headway/headway.toml` in XDG_CONFIG_HOME, by default ~/.config."""
    return user_folder("XDG_CONFIG_HOME", ".config") / "headway" / "headway.toml"


def check_owner(file: Path) -> None:
    """Settings decide what others may do, so nobody else may have written them."""
    try:
        info = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    if info.st_uid not in (os.geteuid(), 0):
        raise UserError(f"{file}: belongs to user {info.st_uid}, expected this user or root")
    if stat.S_IMODE(info.st_mode) & 0o022:
        raise UserError(f"{file}: others may write it; run chmod go-w {file}")


def read(file: str) -> Spec:
    """A spec or settings file; BadInput lists every mistake, those in `[daemon]` too."""
    spec = parse_spec(read_text(file), file)
    known = daemon_options()
    problems = []
    for key, value in spec.daemon:
        if key not in known:
            found, expected = f"the unknown key {shown(key)}", one_of(known)
        elif why := _why_not(known[key], value):
            found, expected = shown(value), why
        else:
            continue
        problems.append(Problem(None, f"daemon.{key}", found, expected))
    if problems:
        raise BadInput(file, problems)
    return spec


def daemon_options() -> dict[str, click.Option]:
    """What may stand in `[daemon]`: options of the command without their two dashes."""
    from headway.view.cli.daemon import command

    options = [param for param in command.params if isinstance(param, click.Option)]
    return {o.opts[0][2:]: o for o in options if o.opts[0] not in NO_SETTINGS}


def _why_not(option: click.Option, value: object) -> str | None:
    """What was expected instead of this value, if the option does not take it."""
    if option.is_flag:
        return None if isinstance(value, bool) else "true or false"
    if isinstance(value, bool):
        return "text or a number"
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        return f"another value ({error.message.rstrip('.')})"
    return None


def as_defaults(spec: Spec) -> dict[str, object]:
    """`[daemon]` as click has the defaults of a command."""
    known = daemon_options()
    return {
        str(known[key].name): [value] if known[key].multiple else value
        for key, value in spec.daemon
        if key in known
    }
