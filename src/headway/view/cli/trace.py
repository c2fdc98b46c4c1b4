"""`headway trace`"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from headway.view import completing
from headway.view.errors import UserError, say

if TYPE_CHECKING:
    from headway.view.traces.writer import TraceWriter

NICE = 10
"""Whoever is recorded goes first."""


@click.command(name="trace", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", required=True, metavar="F.pftrace", help="The trace to write.")
@click.option(
    "--for", "--duration", "duration", metavar="T", help="Stop after this long, such as 10s."
)
@click.option(
    "--task",
    shell_complete=completing.tasks,
    metavar="T",
    help="In Perfetto, draw the track of this task only (a name or a pid).",
)
@click.option("--name", help="Of the program after --, as for headway run.")
@click.option("--policy", shell_complete=completing.policies, help="As for headway run.")
@click.option("--priority", help="As for headway run.")
@click.option("--reserve", metavar="C/T[:pe|ae]", help="As for headway run.")
@click.option("--shared", metavar="POOL", help="As for headway run.")
@click.option("--software-gpu", is_flag=True, help="As for headway run.")
@click.option("--from-fd", type=int, hidden=True, help="Read from there what a daemon sends.")
@click.argument(
    "command_line",
    nargs=-1,
    metavar="[-- PROGRAM [ARG]...]",
    type=click.UNPROCESSED,
    shell_complete=completing.programs,
)
def command(
    output: str,
    duration: str | None,
    task: str | None,
    from_fd: int | None,
    command_line: tuple[str, ...],
    software_gpu: bool,
    **options: str | None,
) -> int:
    """Record what runs, from now on, for ui.perfetto.dev and headway report, check and replay.

    Ends with Ctrl-C, after --for, or, if a program is given after --, with that program, which
    then runs under Headway. What cannot be written in time, or at all, is dropped and counted.
    """
    from headway.live.api import client
    from headway.live.watch import following
    from headway.view.daemons import folder
    from headway.view.traces.writer import TraceWriter

    if not command_line and (software_gpu or any(options.values())):
        raise UserError("--name, --priority and the like are for a program: expected -- PROGRAM")
    end_s = _end_s(duration)
    with _writer(output, task, from_fd, TraceWriter) as writer:
        program: subprocess.Popen[bytes] | None = None
        with following.interrupts() as (wake, came):
            try:
                if from_fd is not None:
                    connection = socket.socket(fileno=from_fd)
                    connection.send(b"ready")
                else:
                    place = folder()
                    if command_line and not client.is_running(place):
                        client.start(place, *(["--software-gpu"] if software_gpu else []))
                    connection = following.connect(place)
                if command_line:
                    program = _start(command_line, options, software_gpu)
            except (OSError, client.Refused) as error:
                writer.discard()
                raise UserError(f"headway trace: {error}", code=1) from None
            os.nice(NICE)
            goes_on = _goes_on(end_s, program, came, alone=from_fd is not None)
            with connection:
                follower = following.Follower(connection)
                for event in follower.events(goes_on, wake):
                    writer.write(event)
            code = _code(program, came)
    if from_fd is None:
        _report(writer)
    return code


def _end_s(duration: str | None) -> float | None:
    from headway.engine.units import DurationError, parse_duration

    try:
        return None if duration is None else time.monotonic() + parse_duration(duration) / 1e9
    except DurationError as error:
        raise UserError(f"--for: found {duration!r}, expected {error}") from None


def _writer(
    output: str, task: str | None, from_fd: int | None, make: type[TraceWriter]
) -> TraceWriter:
    """A daemon that waits for it hears if there can be none."""

    def shows(name: str) -> bool:
        return task in (name, name.partition(".")[0], *name.split(".")[1:])

    try:
        return make(output, keep=True, shows=None if task is None else shows)
    except UserError as error:
        if from_fd is not None:
            with socket.socket(fileno=from_fd) as connection:
                connection.send(str(error).encode())
        raise


def _start(
    command_line: tuple[str, ...], options: dict[str, str | None], software_gpu: bool
) -> subprocess.Popen[bytes]:
    words = [f"--{name}={value}" for name, value in options.items() if value is not None]
    if software_gpu:
        words.append("--software-gpu")
    from headway.live.api import isolated

    # In this environment, because it is the program's.
    run = isolated.headway("run", *words, "--", *command_line)
    return subprocess.Popen(run)  # noqa: S603 - that is the point


def _goes_on(
    end_s: float | None,
    program: subprocess.Popen[bytes] | None,
    came: list[int],
    *,
    alone: bool,
) -> Callable[[], bool]:
    """Whether to record further. A program gets the first Ctrl-C itself, and may take its time; one
    that a daemon started ends with the daemon only."""
    told = [0]

    def goes_on() -> bool:
        if alone:
            return True
        if end_s is not None and time.monotonic() >= end_s:
            return False
        if program is not None:
            while told[0] < len(came):  # of Ctrl-C a terminal tells it itself
                if came[told[0]] == signal.SIGTERM:
                    program.terminate()
                told[0] += 1
            return program.poll() is None and len(came) < 2
        return not came

    return goes_on


def _code(program: subprocess.Popen[bytes] | None, came: list[int]) -> int:
    """The program's own exit code, if it has ended."""
    if program is None or program.poll() is None:
        return 0
    code: int = program.returncode
    return code if code >= 0 else 128 - code


def _report(writer: TraceWriter) -> None:
    try:
        size = writer.path.stat().st_size
    except OSError:
        return
    dropped = f"; {writer.dropped} were dropped, the disk is full" if writer.dropped else ""
    lost = f"; {writer.lost} were dropped on the way" if writer.lost else ""
    say(f"{writer.path}: {writer.events} events in {size} bytes{dropped}{lost}")
