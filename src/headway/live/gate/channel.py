"""A channel as the daemon sees it: one connection, one task of the engine."""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.engine.model import Group, Task
from headway.live.gate.habits import Habit
from headway.live.wire.pages import Pages

if TYPE_CHECKING:
    from headway.live.identity.wishes import Wish

_CREDENTIALS = struct.Struct("3i")
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


class Channel:
    """One connection. Until it has said hello it has no task."""

    def __init__(self, number: int, connection: socket.socket, peer: Peer, now_ns: int) -> None:
        self.number = number
        self.socket = connection
        self.peer = peer
        self.since_ns = now_ns
        self.name = self.token = ""
        """The token: what it showed of its launch."""
        self.task: Task | None = None
        self.pages: Pages | None = None
        self.pidfd = -1
        self.seq = 0
        """The group it submitted last."""
        self.index = 0
        self.group: Group | None = None
        """What it waits with, or what is online for it."""
        self.online_since_ns: int | None = None
        self.bound_ns: int | None = None
        """When it loses the GPU, while others wait for it."""
        self.since_lease_ns = 0
        self.keep_ns: int | None = None
        """While others wait: when the lease has to be looked at again."""
        self.leased = False
        """The online group is a lease: everything it does until it is taken back."""
        self.revoked = False
        """The lease was taken back, and it is still busy."""
        self.revoked_ns: int | None = None
        self.asks = self.jobs = 0
        """What of its page the arbiter has seen: turns asked for, and jobs done."""
        self.asked = False
        """It waits for a message that it may go; else what it has on the GPU waits."""
        self.booked_ns = 0
        """Until when its turn is charged for: when it began, then ends of its reserve's periods."""
        self.used_before_ns = self.passed_before = self.jobs_before = 0
        """What it said when its lease began."""
        self.turns = False
        """A grant is a lease, and it says when it is done with it (live/gate/turns.py)."""
        self.beside = False
        """Its work may run side by side with that of others, as under MPS, not in time slices."""
        self.job: int | None = None
        """Of one who takes turns: the job that began last, as a count of those before it; None: it
        has rested since."""
        self.habit: Habit | None = None
        self.held_until_ns = self.spared_ns = 0
        """Until when its pieces do not begin, and until when they are not held back again."""
        self.wanted_ns: int | None = None
        """Since when others wait for its turn to be over."""
        self.progress: tuple[int | bytes, ...] = ()
        self.progress_ns = now_ns
        self.deadline_ns: int | None = None
        """Of a job, from its first work on."""
        self.before: Wish | None = None
        """What its task was before its program said something of itself."""
        self.told_ns = 0
        self.told = (0, 0, 0)
        """Groups, frames and GPU time under a lease that observers have heard of, and when."""
        self.serves = False
        """Others wait for what it does, so it must not keep the GPU while it has nothing to do."""
        self.note = ""
        """What its owner should know: a reserve that was turned away, say."""
        self.groups = 0
        self.overdue = 0
        """How often it kept the GPU too long."""

    def open_pidfd(self) -> int:
        """Death is learned from the kernel, not only from a closed socket: a forked child may keep
        that open. The descriptor comes with the connection where the kernel can do that, because a
        number may belong to another process by now."""
        try:
            raw = self.socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4)
            self.pidfd = int.from_bytes(raw, sys.byteorder)
        except OSError:
            try:
                self.pidfd = os.pidfd_open(self.peer.pid)
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
