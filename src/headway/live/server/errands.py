"""Errands: what the daemon does between two decisions, for people and for programs that come.

Errands have a part of the time and no more, in steps that are short, one at a time while programs
wait for decisions. Users take turns at them, the processes of a user do, and the requests of a
process: whoever asks for much waits for it, and nobody else does. So this is what limits how often
a user may ask.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from headway.live.gate.channel import Peer
from headway.live.server.loop import describe_failure, log

Step = Callable[[], bool]
"""Does a part of an errand; True if there is more to do."""


class _Turns:
    """Callers with errands, each served in turn: users, then processes, then their steps."""

    def __init__(self) -> None:
        self.order: deque[int] = deque()
        self.users: dict[int, tuple[deque[int], dict[int, deque[Step]]]] = {}

    def add(self, peer: Peer, step: Step) -> None:
        if peer.uid not in self.users:
            self.users[peer.uid] = (deque(), {})
            self.order.append(peer.uid)
        order, processes = self.users[peer.uid]
        if peer.pid not in processes:
            processes[peer.pid] = deque()
            order.append(peer.pid)
        processes[peer.pid].append(step)

    def take(self) -> tuple[int, int, Step]:
        """The next step; whose turn it was is last from now on."""
        uid = self.order[0]
        order, processes = self.users[uid]
        pid = order[0]
        steps = processes[pid]
        step = steps.popleft()
        order.popleft()
        if steps:
            order.append(pid)
        else:
            del processes[pid]
        self.order.popleft()
        if order:
            self.order.append(uid)
        else:
            del self.users[uid]
        return uid, pid, step


class Errands:
    """Steps that wait, and the time there is for them."""

    def __init__(self, part: int, burst_ns: int, slice_ns: int) -> None:
        """Steps may take one `part` of the time; of what was not used so much is kept; and while
        others wait for decisions steps go on for a slice at most, if one alone is not longer."""
        self._part = part
        self._burst_ns = burst_ns
        self._slice_ns = slice_ns
        self._left_ns = burst_ns
        self._since_ns = time.monotonic_ns()
        self._turns = _Turns()

    def add(self, peer: Peer, step: Step) -> None:
        """Do this for somebody when it is their turn."""
        self._turns.add(peer, step)

    def due_ns(self) -> int | None:
        """When `run` has something to do."""
        if not self._turns.order:
            return None
        return self._since_ns + max(0, -self._left_ns) * self._part

    def run(self, now_ns: int) -> None:
        """Do some of the steps that wait."""
        if not self._turns.order:
            return
        self._left_ns += (now_ns - self._since_ns) // self._part
        self._left_ns = min(self._left_ns, self._burst_ns)
        self._since_ns = began_ns = now_ns
        while self._turns.order and self._left_ns >= 0 and now_ns - began_ns < self._slice_ns:
            uid, pid, step = self._turns.take()
            used_ns = (
                time.thread_time_ns()
            )  # a daemon that is stopped in a step does not pay for it
            try:
                if step():
                    self._turns.add(Peer(pid, uid, 0), step)
            except Exception as error:
                log(describe_failure(error))
            self._left_ns -= time.thread_time_ns() - used_ns
            now_ns = time.monotonic_ns()
