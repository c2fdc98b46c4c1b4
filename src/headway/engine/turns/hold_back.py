"""Holding back: a long piece does not begin just before a regular, more important job.

The hardware takes a kernel off the GPU for others when its time slice is over; a kernel that has
run for longer is taken off at once. So the worst time for a long kernel to begin is just before an
important job. Where the period estimator knows when that job is due, the gate on the GPU closes for
that moment; the holder keeps its lease and its turn.

A wrong estimate costs the holder at most a job's lead and lateness. After each such moment the
holder is spared for longer, so many important programs together cannot keep it from beginning.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice

from headway.engine.turns.client import Client

LONG_NS = 1_000_000
"""Shorter pieces are over before they matter; so are those of less than two windows."""
CYCLE_NS = 4_000_000
"""Where others get a part of a job's time, so long is from one of their parts to the next: many
windows, and less than most jobs that are bound by their CPU."""
SPARED = 4
"""For so many times the lead a holder is not held back again."""
LOOKED_AT = 32
"""Of the jobs that are expected next no more are looked at in one go."""

_Expected = tuple[int, int, int, int, Client]
"""From when until when a job is expected, the lead, a number that no other has, and whose it is."""


class HoldBack:
    """Who is held back, and when that has to be looked at again."""

    def __init__(self, online: Collection[Client]) -> None:
        self._online = online
        self._expected: list[_Expected] = []
        """Jobs of regular programs: what is expected first stands first."""
        self._known: dict[Client, _Expected] = {}
        self._numbers = 0
        self.next_ns: int | None = None
        """As of the last review: when somebody has to be held back, or no longer."""

    def learned(self, client: Client) -> None:
        """A job of the program began: the next one is expected at another time."""
        self.forget(client)
        arrivals = client.jobs.arrivals
        times = arrivals.expected_ns
        if times is not None:
            self._numbers += 1
            entry = self._known[client] = (*times, arrivals.lead_ns, self._numbers, client)
            insort(self._expected, entry)

    def forget(self, client: Client) -> None:
        """No job of the program is expected any more."""
        entry = self._known.pop(client, None)
        if entry is not None:
            del self._expected[bisect_left(self._expected, entry)]

    def review(self, now_ns: int) -> None:
        """Close and open the gates of those who have the GPU."""
        holders = [c for c in self._online if c.turns and c.goes_on]
        times = [self.hold(holder, now_ns) for holder in holders]
        self.next_ns = min((time for time in times if time is not None), default=None)

    def hold(self, holder: Client, now_ns: int) -> int | None:
        """Let its pieces begin under its lease, or not; when to look again, if ever."""
        port = holder.port
        if port is None:
            return None
        part = self._part_for(holder)
        if part < 1:
            return self._share(holder, part, now_ns)
        if not _is_long(holder):
            port.hold_back(False)
            return None
        expected = list(self._soon(holder, now_ns))
        here = [times for times in expected if times[0] <= now_ns]
        if here and now_ns >= holder.held.spared_ns:
            _, holder.held.until_ns, lead_ns = here[0]
            holder.held.spared_ns = holder.held.until_ns + SPARED * lead_ns
        held = bool(here) and now_ns < holder.held.until_ns
        port.hold_back(held)
        if held:
            return min(holder.held.until_ns, max(until_ns for _, until_ns, _ in here))
        later_ns = next((since_ns for since_ns, _, _ in expected if since_ns > now_ns), None)
        return self._look_again_ns(now_ns) if later_ns is None else later_ns

    def _part_for(self, holder: Client) -> float:
        """For which part of the time its pieces may begin, as the jobs are that it is beside."""
        parts = [
            other.task.corun
            for other in self._online
            if other is not holder
            and other.task is not None
            and holder.task is not None
            and other.task.rank < holder.task.rank
            and other.goes_on
            and other.task.corun
            and other.port is not None
            and other.port.busy
        ]
        return min(parts, default=1.0)

    def _share(self, holder: Client, part: float, now_ns: int) -> int:
        """Open its gate for such a part of each cycle; when to look again."""
        assert holder.port is not None
        begins_ns = now_ns - now_ns % CYCLE_NS
        closes_ns = begins_ns + int(part * CYCLE_NS)
        holder.port.hold_back(now_ns >= closes_ns)
        return closes_ns if now_ns < closes_ns else begins_ns + CYCLE_NS

    def _soon(self, holder: Client, now_ns: int) -> Iterator[tuple[int, int, int]]:
        """From when until when more important ones are expected that are not there yet, and the
        lead: those that come next, in that order."""
        while self._expected and self._expected[0][1] <= now_ns:
            self.forget(self._expected[0][-1])  # it did not come
        for since_ns, until_ns, lead_ns, _, client in islice(self._expected, LOOKED_AT):
            late = until_ns <= now_ns or client in self._online
            if not late and _may_take_turn_of(holder, client):
                yield since_ns, until_ns, lead_ns

    def _look_again_ns(self, now_ns: int) -> int | None:
        """When to look at those behind the ones that were looked at."""
        if len(self._expected) <= LOOKED_AT:
            return None
        since_ns = self._expected[LOOKED_AT][0]
        return since_ns if since_ns > now_ns else self._expected[0][1]


def _is_long(holder: Client) -> bool:
    """Its pieces are, or were when it last had some: between two jobs it is at rest for a moment,
    and must not begin with the next one then either."""
    port = holder.port
    assert port is not None
    return port.piece_ns > max(2 * port.window_ns, LONG_NS)


def _may_take_turn_of(holder: Client, other: Client) -> bool:
    """Whether it would if it came now, and does not wait for that already."""
    if holder.task is None or other.task is None or not other.turns:
        return False
    if other.task.rank >= holder.task.rank or other.task.waiting is not None:
        return False
    if other.task.corun:
        return False
    return other.task.reserve is None or other.task.reserve.budget_ns > 0
