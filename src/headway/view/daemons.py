"""What commands ask of a daemon: mistakes become one line and an exit code."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from headway.live.api import client
from headway.live.wire import paths
from headway.view.errors import NO_DAEMON, UserError, say

NAME_VARIABLE = "HEADWAY_NAME"
"""What `headway run --name` calls a program, for who looks before a daemon knows the program."""


@cache
def folder(*, quiet: bool = False) -> Path:
    """Where this user's daemon is found; a line says if the environment names a folder that cannot
    be trusted."""
    found, problem = paths.choose()
    if problem and not quiet:
        say(f"headway: {problem}; {found} is used")
    return found


def ask(command: str, request: dict[str, Any]) -> dict[str, Any]:
    """The daemon's answer to what a command asks for."""
    try:
        return client.ask(folder(), request)
    except client.Refused as error:
        raise UserError(f"headway {command}: {error}") from None
    except OSError as error:
        raise UserError(complaint(error), code=NO_DAEMON) from None


def complaint(error: OSError) -> str:
    """Why no daemon can be talked to, and what to do about it."""
    is_none = type(error) is client.NoDaemon
    return f"headway: {error}{'; headway run or headway daemon starts one' if is_none else ''}"
