"""Talking to the daemon from the command line, and starting one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from headway.live.api import isolated
from headway.live.wire import paths

START_S = 10.0
"""How long a daemon may take from its start to its first answer."""
LOSER_S = 1.0
"""The same, if the one that was started has ended: another command's may have been faster."""
LIFELESS_S = 0.5
"""A daemon that says nothing for this long must at least be seen to run."""
LOOK_S = 0.05


class NoDaemon(ConnectionError):
    """Nobody answers; one line."""


class Silent(NoDaemon):
    """A daemon is there and does not answer; one line."""


class Failed(NoDaemon):
    """The daemon made a mistake of its own; one line."""


class Refused(ValueError):
    """The daemon said no; its words."""


def ask(folder: Path, request: dict[str, Any], *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Send one request and return its answer. A daemon that is busy may take `timeout_s`; one that
    is seen to do nothing is given up after half a second. PathError if it cannot be trusted."""
    with connect(folder, timeout_s) as connection:
        return talk(folder, connection, request, timeout_s=timeout_s)


def connect(folder: Path, timeout_s: float = 5.0) -> socket.socket:
    """A connection to the daemon in a folder: NoDaemon, or PathError if it cannot be trusted."""
    end_s = time.monotonic() + min(timeout_s, LIFELESS_S)
    while True:
        try:
            return paths.connect(paths.control_socket(folder), socket.SOCK_STREAM, timeout_s)
        except paths.PathError:
            raise
        except (BlockingIOError, TimeoutError):  # more knock than there is room for
            if time.monotonic() >= end_s:
                raise Silent(f"the daemon in {folder} does not answer: many ask it") from None
            time.sleep(LOOK_S)
        except OSError as error:
            raise _no_daemon(folder, error) from None


def talk(
    folder: Path, connection: socket.socket, request: dict[str, Any], *, timeout_s: float
) -> dict[str, Any]:
    """One request and its answer; of what follows the answer nothing is read."""
    line = bytearray()
    try:
        pid = paths.credentials(connection)[0]
        connection.sendall(json.dumps(request).encode() + b"\n")
        while not line.endswith(b"\n"):
            _wait(folder, connection, pid, timeout_s)
            part = connection.recv(65536, socket.MSG_PEEK)
            if not part:
                raise NoDaemon(f"{folder}: the daemon closed the connection")
            line += connection.recv(part.find(b"\n") + 1 or len(part))
    except NoDaemon:
        raise
    except OSError as error:
        raise _no_daemon(folder, error) from None
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise NoDaemon(f"{folder}: what answers there is no daemon")
    if answer.get("failed"):
        raise Failed(str(answer.get("error")))
    if not answer.get("ok"):
        raise Refused(str(answer.get("error")))
    return answer


def _no_daemon(folder: Path, error: OSError) -> NoDaemon:
    why = error.strerror or str(error) or type(error).__name__
    return NoDaemon(f"no daemon answers in {folder} ({why})")


def _wait(folder: Path, connection: socket.socket, pid: int, timeout_s: float) -> None:
    """Until there is something to read."""
    began_s, work = time.monotonic(), _work(pid)
    poller = select.poll()
    poller.register(connection, select.POLLIN)
    while not poller.poll(LOOK_S * 1000):
        waited_s = time.monotonic() - began_s
        state, used = _work(pid)
        if waited_s >= timeout_s:
            why = f"nothing within {timeout_s:g} s"
        elif waited_s >= LIFELESS_S and state not in "RD" and used == work[1]:
            why = "it is stopped" if state in "Tt" else "it does nothing"
        else:
            continue
        raise Silent(f"the daemon in {folder}, process {pid}, does not answer: {why}")


def _work(pid: int) -> tuple[str, int]:
    """The state of a process as the kernel names it, and the CPU time that it has had."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return "?", 0


def is_running(folder: Path) -> bool:
    """Whether a daemon answers. One that is there and silent is an error of its own."""
    try:
        ask(folder, {"do": "status"})
    except Silent:
        raise
    except NoDaemon:
        return False
    return True


def start(folder: Path, *options: str) -> None:
    """Start a private daemon that ends with its last client, and wait until it answers."""
    paths.prepare(folder)
    log = folder / "daemon.log"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(log, flags, 0o600), "ab") as out:
        began = out.tell()
        process = subprocess.Popen(  # noqa: S603 - ourselves
            isolated.headway("daemon", "--until-idle", *options),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd="/",
            env=isolated.environment(HEADWAY_DIR=str(folder)),
        )
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        with contextlib.suppress(Silent):
            if is_running(folder):
                return
        if process.poll() is not None:
            end_s = min(end_s, time.monotonic() + LOSER_S)
        time.sleep(0.01)
    raise NoDaemon(f"the daemon did not start: {_last_line(log, began) or f'{log} may say why'}")


def _last_line(log: Path, began: int) -> str:
    """What a daemon said last, of what follows this place."""
    try:
        with log.open("rb") as file:
            file.seek(began)
            lines = file.read(65536).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return " ".join(lines[-1].split()) if lines else ""
