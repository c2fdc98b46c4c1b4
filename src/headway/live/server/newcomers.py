"""Connections that have not said who they are. They count for nobody: whoever only connects takes
no place from programs, not even from those of the same user."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headway.live.gate.channel import Peer, peer_of
from headway.live.wire.protocol import HELLO_SIZE

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

SILENT_NS = 2_000_000_000
"""A connection that has said nothing for this long is closed."""


class _Newcomer:
    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.socket = connection
        self.peer = peer
        self.since_ns = time.monotonic_ns()


class Newcomers:
    """Hears their first words; programs say them at once."""

    def __init__(self, daemon: Daemon, greet: Callable[[socket.socket, Peer, bytes], None]) -> None:
        self._daemon = daemon
        self._greet = greet
        self._known: dict[_Newcomer, None] = {}
        self._silent: dict[int, dict[_Newcomer, None]] = {}
        """Those who had nothing to say when they were asked, by user, the oldest first."""

    def __len__(self) -> int:
        return len(self._known)

    def accept(self, connection: socket.socket) -> None:
        daemon, peer = self._daemon, peer_of(connection)
        # Those for whom there is no room hear it at once, and go unmanaged without waiting.
        if not daemon.registry.rights.may_connect(peer) or not self._has_room(peer):
            daemon.refused += 1
            connection.close()
            return
        newcomer = _Newcomer(connection, peer)
        self._known[newcomer] = None
        daemon.arrivals.add(peer, partial(self._hear, newcomer))

    def _has_room(self, peer: Peer) -> bool:
        """Whether there is room for one more; who is silent makes room, first those of this
        user."""
        if len(self._daemon.channels) + len(self._known) < self._daemon.room:
            return True
        silent = self._silent.get(peer.uid) or max(self._silent.values(), key=len, default=None)
        if not silent:
            return False
        self._drop(next(iter(silent)))
        return True

    def _hear(self, newcomer: _Newcomer) -> bool:
        """What it says first; if it says nothing, it is heard when it does."""
        if newcomer not in self._known:
            return False
        connection = newcomer.socket
        try:
            data = connection.recv(HELLO_SIZE + 1)
        except BlockingIOError:
            self._silent.setdefault(newcomer.peer.uid, {})[newcomer] = None
            ready, gone = partial(self._ready, newcomer), partial(self._drop, newcomer)
            self._daemon.loop.watch(connection.fileno(), ready, gone)
            return False
        except OSError:
            data = b""
        if not data:
            self._drop(newcomer)
            return False
        del self._known[newcomer]
        self._greet(connection, newcomer.peer, data)
        return False

    def _ready(self, newcomer: _Newcomer) -> None:
        self._no_longer_silent(newcomer)
        self._daemon.arrivals.add(newcomer.peer, partial(self._hear, newcomer))

    def _no_longer_silent(self, newcomer: _Newcomer) -> None:
        uid = newcomer.peer.uid
        if newcomer in self._silent.get(uid, {}):
            self._daemon.loop.unwatch(newcomer.socket.fileno())
            del self._silent[uid][newcomer]
            if not self._silent[uid]:
                del self._silent[uid]

    def _drop(self, newcomer: _Newcomer) -> None:
        if newcomer in self._known:
            del self._known[newcomer]
            self._no_longer_silent(newcomer)
            with contextlib.suppress(OSError):  # it hears of it now, though the number goes later
                newcomer.socket.shutdown(socket.SHUT_RDWR)
            self._daemon.loop.close_later(newcomer.socket.close)

    def tick(self, now_ns: int) -> None:
        """Close those who have been silent for too long."""
        for silent in list(self._silent.values()):
            for newcomer in list(silent):
                if now_ns - newcomer.since_ns <= SILENT_NS:
                    break
                self._drop(newcomer)

    def close(self) -> None:
        for newcomer in list(self._known):
            self._drop(newcomer)
