"""Headway from inside a program: `headway.enter_server()` and `headway.leave_server()`.

For servers that no display names: a helper that draws on its clients' behalf, say. A program calls
the one before it asks and the other when it is answered (PIX/RIX §6: `enter_x_server` and
`leave_x_server`); in between the server inherits its priority and reserve. Without a daemon, or
outside of `headway run`, both do nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from pathlib import Path

from headway.live.wire import paths
from headway.live.wire.protocol import ENTER, LEAVE, Message, build_hello, build_message

PATIENCE_S = 0.2
"""How long a daemon may take to answer before the program goes on without it."""
RETRY_S = 1.0
NAME_S = 1.0
"""How long a server that was found by its name is taken to be there."""


class _Connection(threading.local):
    """A thread's own channel: each can have one request at a time."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._pid = 0
        self._retry = 0.0
        self._named: dict[str, tuple[int, float]] = {}

    def say(self, kind: int, server_pid: int = 0) -> None:
        """Tell the daemon, without waiting for it; one that cannot listen is left alone."""
        connection = self._connected()
        if connection is None:
            return
        try:
            connection.send(build_message(Message(kind, 0, units=server_pid)), socket.MSG_DONTWAIT)
        except OSError:
            self._forget()

    def _connected(self) -> socket.socket | None:
        if self._socket is not None and self._pid == os.getpid():
            return self._socket
        self._forget()  # a forked child has its own
        path = os.environ.get("HEADWAY_SOCKET", "")
        if not path or time.monotonic() < self._retry:
            return None
        connection = None
        try:
            connection = paths.connect(Path(path), socket.SOCK_SEQPACKET, PATIENCE_S)
            connection.send(build_hello(_program(), os.environ.get("HEADWAY_TOKEN", "")))
            welcome, fds, _, _ = socket.recv_fds(connection, 64, 2)
            for fd in fds:
                os.close(fd)
        except OSError:
            welcome = b""
        if connection is None or not welcome:
            if connection is not None:
                connection.close()
            self._retry = time.monotonic() + RETRY_S
            return None
        self._socket, self._pid = connection, os.getpid()
        return connection

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def pid_of(self, name: str) -> int:
        """The process of a task with this name; 0 if there is none."""
        pid, until = self._named.get(name, (0, 0.0))
        if time.monotonic() >= until:
            pid = _look_up(name)
            self._named[name] = (pid, time.monotonic() + NAME_S)
        return pid


_connection = _Connection()


def _program() -> str:
    """What this program is called, as the interposer says it too: both are one task's."""
    return Path(sys.orig_argv[0]).name if sys.orig_argv else "python"


def _look_up(name: str) -> int:
    from headway.live.api.client import ask

    folder = Path(os.environ.get("HEADWAY_SOCKET", "")).parent
    with contextlib.suppress(OSError, ValueError):
        status = ask(folder, {"do": "status"}, timeout_s=PATIENCE_S)["status"]
        for entry in status["channels"]:
            task, pid = str(entry["task"]), int(entry["pid"])
            if name == task or f"{task}.".startswith(f"{name}.{pid}."):
                return pid
    return 0


def enter_server(server: int | str | None = None) -> None:
    """This thread is about to ask a server for something: a process by its number, or a task by
    its name. None: the X server of the display it was started with."""
    if "HEADWAY_SOCKET" not in os.environ:
        return
    pid = _connection.pid_of(server) if isinstance(server, str) else server
    if pid == 0 or (pid is not None and pid < 0):
        return  # nobody is called that
    _connection.say(ENTER, pid or 0)


def leave_server() -> None:
    """The server has answered."""
    if "HEADWAY_SOCKET" in os.environ:
        _connection.say(LEAVE)
