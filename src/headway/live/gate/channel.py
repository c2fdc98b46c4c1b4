"""A channel as the daemon sees it: one connection, one task of the engine."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from headway.engine.cost_models import NO_FEATURES
from headway.engine.launching import Launch
from headway.engine.rendering import features_of
from headway.engine.rendering.published import Linear, Published, publish
from headway.engine.turns.client import Client
from headway.engine.turns.port import Owner
from headway.live.identity.launches import Life, life
from headway.live.wire.layout import COEFFICIENTS, LAUNCHES
from headway.live.wire.pages import Pages

if TYPE_CHECKING:
    from headway.live.identity.options import TaskOptions

_CREDENTIALS = struct.Struct("3i")
COSTS_EVERY = 16
"""Groups from one time that costs are published to the next: they are learned slowly."""
_SO_PEERPIDFD = 77
"""Linux 6.5; Python has no name for it yet."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, from the kernel."""

    pid: int
    uid: int
    gid: int


def peer_of(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


def pidfd_of(connection: socket.socket, peer: Peer) -> int:
    """A descriptor of the process at the other end. It comes with the connection where the kernel
    can do that, because a number may belong to another process by now. OSError if there is none."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
    except OSError:
        return os.pidfd_open(peer.pid)
    return int.from_bytes(raw, sys.byteorder)


class Channel(Client):
    """One connection. Until it has said hello it has no task."""

    port: Pages | None

    def __init__(self, number: int, connection: socket.socket, peer: Peer, now_ns: int) -> None:
        super().__init__(peer.pid, now_ns)
        self.number = number
        self.socket = connection
        self.peer = peer
        self.since_ns = now_ns
        self.device = 0
        """The number of the GPU that its work goes to."""
        self.name = self.token = ""
        """The token: what it showed of its launch."""
        self.pidfd = -1
        self.chosen = False
        """Somebody chose its policy."""
        self.before: TaskOptions | None = None
        """What its task was before its program said something of itself."""
        self._costs: list[Published | None] = []
        """What the interposer was told that commands cost (pages.py)."""
        self._until_costs = 0
        self._launches_read = 0
        """Records of launches that were read of its page."""
        self.note = ""
        """What its owner should know: a reserve that was turned away, say."""

    @property
    def user(self) -> int:
        return self.peer.uid

    @cached_property
    def identity(self) -> tuple[int, Life]:
        return self.peer.uid, life(self.peer.pid)

    @property
    def owner(self) -> Owner:
        """Equal signatures of two users, or of two programs, mean different work."""
        return self.peer.uid, self.name

    @property
    def pages(self) -> Pages | None:
        """Its port: the two pages that the program and the daemon share."""
        return self.port

    @pages.setter
    def pages(self, pages: Pages | None) -> None:
        self.port = pages

    def features(self) -> Mapping[str, int]:
        rows = self.port.rows if self.port is not None else ()
        return features_of(rows) if rows else NO_FEATURES

    def publish_costs(self) -> None:
        """Have the interposer know what commands of the last group's kinds cost by now."""
        port = self.port
        if port is None or self.task is None or not (rows := port.rows):
            return
        self._until_costs -= 1
        model = self.task.cost_model
        if self._until_costs <= 0 and isinstance(model, Linear):
            self._until_costs = COSTS_EVERY
            self._costs = self._costs or [None] * COEFFICIENTS
            port.set_costs(*publish(model, rows, self._costs))

    @property
    def has_launches(self) -> bool:
        """Launches were measured of which the task's cost model has not heard."""
        return self.port is not None and self.port.launches != self._launches_read

    def next_launch(self) -> Launch | None:
        """The oldest of these that was not overwritten; None: there is none."""
        if self.port is None:
            return None
        left = (self.port.launches - self._launches_read) % (1 << 32)
        if not left:
            return None
        self._launches_read += left - LAUNCHES + 1 if left >= LAUNCHES else 0
        found = self.port.launched(self._launches_read)
        self._launches_read = (self._launches_read + 1) % (1 << 32)
        return found

    def open_pidfd(self) -> int:
        """Death is learned from the kernel, not only from a closed socket: a forked child may keep
        that open."""
        try:
            self.pidfd = pidfd_of(self.socket, self.peer)
        except OSError:  # it is dead already, or not visible from here; the socket will tell
            self.pidfd = -1
        return self.pidfd

    def close(self) -> None:
        self.socket.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        if self.pages is not None:
            self.pages.close()
            self.pages = None

    def __repr__(self) -> str:
        return f"<channel {self.number}: {self.name} pid {self.peer.pid}>"
