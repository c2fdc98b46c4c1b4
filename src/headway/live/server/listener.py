"""A socket that others knock at."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path

from headway.live.gate.channel import Peer
from headway.live.server.errands import Errands
from headway.live.server.loop import READ, Loop

PAUSE_NS = 100_000_000
"""How long to leave those who knock alone when the system has no descriptor left."""
BACKLOG = 1024
A_TURN = 8
"""How many are let in before others have their turn."""
DOOR = Peer(0, -1, -1)
"""Whoever knocks is nobody yet."""


class Listener:
    """Lets in whoever connects; `accept` gets the connection, which does not block."""

    def __init__(
        self,
        loop: Loop,
        path: Path | None,
        kind: int,
        accept: Callable[[socket.socket], None],
        errands: Errands,
        *,
        port: int = 0,
    ) -> None:
        """At a path, or without one at a port of the loopback interface; letting somebody in is one
        of the errands. OSError if there can be no socket there."""
        self._loop = loop
        self._errands = errands
        self._accept = accept
        self._path = path
        self.paused_until_ns: int | None = None
        family = socket.AF_INET if path is None else socket.AF_UNIX
        self.socket = socket.socket(family, kind | socket.SOCK_NONBLOCK)
        try:
            if path is None:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.socket.bind(("127.0.0.1", port))
            else:
                path.unlink(missing_ok=True)  # left by a daemon that was killed
                self.socket.bind(str(path))
            self.socket.listen(BACKLOG)
        except OSError:
            self.socket.close()
            raise
        self._watch()

    def close(self) -> None:
        self._loop.unwatch(self.socket.fileno())
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def resume(self, now_ns: int) -> None:
        """Open again if the pause is over."""
        if self.paused_until_ns is not None and now_ns >= self.paused_until_ns:
            self.paused_until_ns = None
            self._watch()

    def _watch(self) -> None:
        self._loop.watch(self.socket.fileno(), self._ready, self._pause)

    def _pause(self) -> None:
        """Whoever knocks meanwhile waits, and goes unmanaged if it takes too long. To look again
        at once would find the same, as fast as the CPU can."""
        self._loop.unwatch(self.socket.fileno())
        self.paused_until_ns = time.monotonic_ns() + PAUSE_NS

    def _ready(self) -> None:
        self._loop.want(self.socket.fileno(), 0)
        self._errands.add(DOOR, self._let_in)

    def _let_in(self) -> bool:
        """Let some in; True if there are more."""
        if self.socket.fileno() < 0:
            return False
        for _ in range(A_TURN):
            try:
                connection, _address = self.socket.accept()
            except BlockingIOError:
                self._loop.want(self.socket.fileno(), READ)
                return False
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    self._pause()
                else:
                    self._loop.want(self.socket.fileno(), READ)
                return False
            connection.setblocking(False)
            try:
                self._accept(connection)
            except OSError:
                connection.close()
        return True
