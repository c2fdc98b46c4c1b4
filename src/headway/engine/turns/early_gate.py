"""The gate of whoever is next opens when a turn is over, and where it can be, before.

When the last work of a job is done its program has to see that, the daemon has to see it by the
program, and then the GPU that a gate is open: for so long it has nothing to do. But it takes other
programs' work by itself as soon as a short job has nothing more for it, and not before, for until
then it is within its time slice. So once the program waits for a job that is nearly over, and may
go beside others at all, the gate of the next one opens. Where programs run side by side (MPS) the
job would pay for that. There the GPU says itself, by a mark, when it has done all but the copy that
the program waits in: for that, and for seeing its end, the program needs no multiprocessors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headway.engine.core import Engine
from headway.engine.model import Task
from headway.engine.turns.client import Client
from headway.engine.turns.hold_back import HoldBack

LEAD_NS = 300_000
"""So long before a job can be over."""
LATE_NS = 300_000
"""So long after it should be, if it is not, the gate closes again."""
SHORT_NS = 1_500_000
"""A job that takes longer may not be over within a time slice of the GPU."""
LOOK_NS = 100_000
"""How soon it is looked at again whether its program waits."""


def tells(holder: Client) -> bool:
    """Whether a mark behind its job's work is of use: others may go beside the rest."""
    return holder.company.side_by_side and holder.task is not None and holder.task.policy.at_once


class EarlyGate:
    """Whose gate is open before it has its turn."""

    def __init__(
        self,
        engine: Engine,
        online: Collection[Client],
        by_task: Mapping[str, Client],
        back: HoldBack,
    ) -> None:
        self._engine = engine
        self._online = online
        self._by_task = by_task
        self._back = back
        self._job: tuple[Client, int] | None = None
        """Whose it is, and when it should be over at the latest."""
        self._opened: Client | None = None
        self.next_ns: int | None = None
        """When to look again."""

    def asked(self, task: Task) -> None:
        """Somebody wants a turn: nobody who is less important goes before it."""
        opened = None if self._opened is None else self._opened.task
        if opened is not None and task.rank < opened.rank:
            self._close()

    def job_began(self, client: Client, now_ns: int) -> None:
        """By somebody who asks for a turn; while a more important one has its, that is what is
        waited for."""
        task, lengths_ns = client.task, client.jobs.arrivals.lengths_ns
        running = None if self._job is None else self._job[0].task
        if task is None or (
            running is not None and running is not task and running.rank < task.rank
        ):
            return
        self._job = self.next_ns = None
        if client.company.side_by_side or not task.policy.at_once:
            return
        if lengths_ns is not None and lengths_ns[0] <= SHORT_NS:
            shortest_ns, longest_ns = lengths_ns
            self._job = client, now_ns + longest_ns
            self.next_ns = now_ns + max(shortest_ns - LEAD_NS, shortest_ns // 2)

    def look(self, now_ns: int, again_ns: int = LOOK_NS) -> None:
        """Open the gate if it is time, or close it if that is over. If the program does not wait
        yet, look again so much later."""
        if self._job is None or self.next_ns is None or now_ns < self.next_ns:
            return
        client, over_ns = self._job
        if self._opened is not None or now_ns >= over_ns + LATE_NS:
            self._close()
            self._job = self.next_ns = None
        elif client.port is not None and client.port.waiting and self._open(client, now_ns):
            self.next_ns = over_ns + LATE_NS
        else:
            self.next_ns = now_ns + again_ns

    def end_reached(self, client: Client, now_ns: int) -> None:
        """The GPU has done its work, and its program is about to see that."""
        if self._opened is None and tells(client) and self._open(client, now_ns):
            self._job, self.next_ns = (client, now_ns), now_ns + LATE_NS

    def job_over(self, client: Client, now_ns: int) -> None:
        """Who is next is decided on after this; mostly it is plain."""
        if self._opened is None:
            self._open(client, now_ns)
        self._job = self.next_ns = None

    def decided(self) -> None:
        """If it is somebody else after all, the gate closes."""
        if self._opened is not None and self._opened.leased:
            self._opened = None
        elif self._job is None:
            self._close()

    def _open(self, client: Client, now_ns: int) -> bool:
        """For the first who waits while this one is alone on the GPU."""
        ready = next(self._engine.in_order(), None)
        if ready is None or len(self._online) != 1 or client not in self._online:
            return False
        first = self._by_task[ready.task.name]
        if not first.turns or first.port is None:
            return False
        self._back.hold(first, now_ns)
        first.port.open_early()
        self._opened = first
        return True

    def _close(self) -> None:
        if self._opened is not None and self._opened.port is not None and not self._opened.leased:
            self._opened.port.set_lease(False)
        self._opened = None
