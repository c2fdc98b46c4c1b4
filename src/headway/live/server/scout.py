"""The scout looks at what programs themselves have chosen: their environment, and folders named in
it. Any of that may take for ever, so it is done in threads of its own, one for each user up to a
few: who keeps a thread waiting keeps nobody else's programs unknown."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headway.live.desktop.xserver import display_of
from headway.live.devices import mps
from headway.live.gate.channel import Peer
from headway.live.server.loop import Loop

MOST_USERS = 16
WAITING = 4096
"""Programs of one user that may wait to be looked at; the others stay unknown."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen of a program."""

    display: str
    """The display of this machine that its windows show on; empty if there is none."""
    side_by_side: bool
    """Its GPU work may run beside that of others, as under MPS; also if nobody can say."""


Found = Callable[[Sight], None]


class Scout:
    """Looks, and tells in the daemon's loop what was seen."""

    def __init__(self, loop: Loop, look: Callable[[int], Sight] | None = None) -> None:
        self._loop = loop
        self._look = look or _look
        self._users: dict[int, queue.Queue[tuple[int, Found]]] = {}
        self._seen: queue.SimpleQueue[tuple[Found, Sight]] = queue.SimpleQueue()
        self._wake = -1

    def look(self, peer: Peer, found: Found) -> None:
        """Look at a process, and call `found` when something was seen."""
        waiting = self._users.get(peer.uid) or self._hire(peer.uid)
        if waiting is not None:
            with contextlib.suppress(queue.Full):
                waiting.put_nowait((peer.pid, found))

    def _hire(self, uid: int) -> queue.Queue[tuple[int, Found]] | None:
        if len(self._users) >= MOST_USERS:
            return None
        if self._wake < 0:
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._loop.watch(self._wake, self._tell, self._tell)
        waiting = self._users[uid] = queue.Queue(WAITING)
        # As important as the daemon: it must not keep the interpreter while others have the CPU.
        policy, rank = os.sched_getscheduler(0), os.sched_getparam(0)
        name = f"headway-scout-{uid}"
        words = (waiting, policy, rank)
        threading.Thread(target=self._work, args=words, name=name, daemon=True).start()
        return waiting

    def _work(
        self, waiting: queue.Queue[tuple[int, Found]], policy: int, rank: os.sched_param
    ) -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, rank)
        while True:
            pid, found = waiting.get()
            self._seen.put((found, self._look(pid)))
            with contextlib.suppress(OSError):  # the daemon has ended
                os.eventfd_write(self._wake, 1)

    def _tell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with contextlib.suppress(queue.Empty):
            while True:
                found, sight = self._seen.get_nowait()
                found(sight)

    def close(self) -> None:
        """Nothing more is told. A thread that waits ends with the process."""
        if self._wake >= 0:
            self._loop.unwatch(self._wake)
            os.close(self._wake)
            self._wake = -1


def _look(pid: int) -> Sight:
    return Sight(display_of(pid), mps.may_use(pid))
