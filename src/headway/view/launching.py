"""What `headway launch` and `headway shell` have in common: their supervisor, and reading words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from headway.engine.model import MAX_LEVEL
from headway.engine.shares import Range, parse_share
from headway.engine.units import DurationError, parse_duration
from headway.live.api import client
from headway.live.identity.program import ProgramError, find_program
from headway.live.launched.environment import Environment
from headway.live.launched.program import Program
from headway.live.launched.supervisor import Supervisor
from headway.view.daemons import folder
from headway.view.errors import UserError, say

EXPECTED = "a whole number, larger for more important, such as 5"


def supervisor(
    ended: Callable[[Program], None], *, gated: bool, stdin: int, patience: str
) -> Supervisor:
    """One whose lines, and whose programs' stderr, go to this process's stderr."""
    place = folder()
    environment = Environment(place, say, ended, gated=gated)
    return Supervisor(place, say, _forward, environment, stdin, _seconds(patience))


def _seconds(patience: str) -> float:
    try:
        return parse_duration(patience) / 1e9
    except DurationError as error:
        raise UserError(f"--patience: found {patience!r}, expected {error}") from None


def _forward(data: bytes) -> None:
    sys.stderr.flush()
    sys.stderr.buffer.write(data)
    sys.stderr.buffer.flush()


def stdin() -> int:
    """What a program reads: this process's stdin, unless that is a terminal. A program in a process
    group of its own would be stopped there."""
    try:
        return subprocess.DEVNULL if os.isatty(0) else 0
    except OSError:
        return subprocess.DEVNULL


def priority(text: str) -> int:
    """Read PRIO."""
    try:
        level = int(text)
    except ValueError:
        raise UserError(f"PRIO: found {text!r}, expected {EXPECTED}") from None
    if abs(level) > MAX_LEVEL:
        raise UserError(f"PRIO: found {text}, expected {EXPECTED}")
    return level


def share(text: str | None) -> Range | None:
    """Read --share."""
    try:
        return None if text is None else parse_share(text)
    except ValueError as error:
        raise UserError(f"--share: {error}") from None


def program(command: str) -> str:
    """The file that a command names."""
    try:
        return find_program(command)
    except ProgramError as error:
        raise UserError(str(error), code=error.code) from None


def default_name(path: str) -> str:
    return Path(path).name


def choose(controller: str | None) -> None:
    """Have the daemon use this controller from now on."""
    if controller is None:
        return
    place = folder()
    try:
        if not client.is_running(place):
            client.start(place)
        client.ask(place, {"do": "share", "act": "controller", "name": controller})
    except client.Refused as error:
        raise UserError(f"--{error}") from None


def exit_code(code: int | None) -> int:
    """A program's, as shells have it."""
    if code is None:
        return 1
    return 128 - code if code < 0 else code


def describe_end(program: Program) -> str:
    """How a program ended."""
    code = program.code
    if code is not None and code < 0:
        try:
            how = f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            how = f"was ended by signal {-code}"
    else:
        how = f"ended with exit code {code}"
    missed = f", {program.misses} of {program.jobs} jobs missed" if program.jobs else ""
    return f"headway: {program.name} {how}{missed}"
