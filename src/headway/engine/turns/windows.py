"""How much work of a program goes to the GPU at once, so that the others need not wait for more.

Programs are kept by priority level. A program that comes, goes or changes concerns its own level
and the highest one, seldom more. Windows of a level's programs are published to a few pages at a
time, so a level of thousands delays nobody.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from dataclasses import dataclass

from headway.engine.events import Observer
from headway.engine.model import Task, level_of
from headway.engine.reserves import Reserve
from headway.engine.turns.client import Client

DEFAULT_SPLIT_NS = 500_000
DEFAULT_WINDOW_NS = 200_000
WIDER, WIDEST = 10, 25
"""So many of them at least, and at most, are one where nobody more important is there."""
PERIODS, CAPACITIES = 20, 4
"""Between the two: such a part of the shortest period, and of a budget, where all have reserves."""
STRETCH, LONGEST_NS = 8, 2_000_000
"""A piece of a program that is slower than the GPU may have so many windows, for predictions are
good for no more, and be so long, for a piece is charged when it ends."""
UNBOUNDED_NS = 5_000_000
"""How long pieces are where a program has no window."""
A_TURN = 64
"""Pages that are written in one go: a tenth of a millisecond."""


@dataclass(frozen=True, slots=True)
class _Place:
    """What counts of a program."""

    level: int
    process: int
    capacity_ns: int | None
    period_ns: int
    """Of its reserve; 0 without one."""


class _Level:
    """The programs of one priority level."""

    def __init__(self) -> None:
        self.clients: OrderedDict[Client, None] = OrderedDict()
        """Whoever was published to longest ago stands first."""
        self.periods_ns: list[int] = []
        """Sorted."""
        self.facts: tuple[bool, int, int] | None = None
        """Whether nobody is above it, and then: how many there are, where two stand for more, and
        the shortest period."""
        self.since = 0
        """The number of the change that made it so."""


class Windows(Observer):
    """Tells programs while it matters. Splitting bounds what the others wait for, and how far a
    budget is overrun. A program that is alone and has no budget is left as it is; the first to come
    meets at most what its driver had queued, once."""

    def __init__(self, split_ns: int, window_ns: int) -> None:
        self.split_ns = split_ns
        """Groups of more than this are split."""
        self.window_ns = window_ns
        """Of one who takes turns, no more predicted work than this is in flight."""
        self._places: dict[Client, _Place] = {}
        self._clients: dict[Task, Client] = {}
        self._levels: dict[int, _Level] = {}
        self._order: list[int] = []
        """Levels that somebody has, sorted."""
        self._processes: Counter[int] = Counter()
        self._crowded = False
        self._changes = 0
        self._since = 0
        """The number of the change that made it crowded, or not."""
        self._published: OrderedDict[Client, int] = OrderedDict()
        """The number of the last change that was published to each program; the oldest first."""
        self._stale: dict[_Level, None] = {}
        """Levels with programs to which the last change was not published yet."""

    # -- who is there ------------------------------------------------------------------------

    def began(self, gpus: int, now_ns: int) -> None:
        """A new engine, which knows nobody yet."""
        self._clients.clear()

    def arrived(self, client: Client) -> None:
        """A client has got its task."""
        if client.task is not None:
            self._clients[client.task] = client
            self._place(client, client.task)

    def gone(self, client: Client) -> None:
        """A client has ended, or lost its task."""
        place = self._places.pop(client, None)
        if place is not None:
            self._take_out(client, place)
            self._settle(place.level)
            self.tell()

    def task_removed(self, task: Task, now_ns: int) -> None:
        client = self._clients.pop(task, None)
        if client is not None:
            self.gone(client)

    def ranked(self, task: Task, now_ns: int) -> None:
        """What a server inherits for the time of a request moves no windows."""
        client = self._clients.get(task)
        if client is not None and self._places[client].level != level_of(task.base_rank):
            self._place(client, task)

    def joined(self, task: Task, now_ns: int) -> None:
        client = self._clients.get(task)
        if client is not None:
            self._place(client, task)

    def reserve_set(self, reserve: Reserve, now_ns: int) -> None:
        numbers = (reserve.capacity_ns, reserve.period_ns)
        for task in reserve.members:
            client = self._clients.get(task)
            if client is None:
                continue
            place = self._places[client]
            if (place.capacity_ns, place.period_ns) == numbers:
                return  # nor have they changed for the other members
            self._place(client, task)

    def _place(self, client: Client, task: Task) -> None:
        reserve = task.reserve
        place = _Place(
            level_of(task.base_rank),
            client.process,
            None if reserve is None else reserve.capacity_ns,
            0 if reserve is None else reserve.period_ns,
        )
        before = self._places.get(client)
        if place == before:
            return
        if before is not None:
            self._take_out(client, before)
        self._places[client] = place
        self._processes[place.process] += 1
        level = self._levels.get(place.level)
        if level is None:
            level = self._levels[place.level] = _Level()
            insort(self._order, place.level)
        insort(level.periods_ns, place.period_ns)
        level.clients[client] = None
        self._published[client] = 0
        for number in {place.level} if before is None else {place.level, before.level}:
            self._settle(number)
        self._publish(client)
        self.tell()

    def _take_out(self, client: Client, place: _Place) -> None:
        self._processes[place.process] -= 1
        if not self._processes[place.process]:
            del self._processes[place.process]
        level = self._levels[place.level]
        del self._published[client], level.clients[client]
        del level.periods_ns[bisect_left(level.periods_ns, place.period_ns)]
        if not level.clients:
            del self._levels[place.level]
            del self._order[bisect_left(self._order, place.level)]
            self._stale.pop(level, None)

    # -- what they are told ------------------------------------------------------------------

    def _settle(self, number: int) -> None:
        """Something changed at this level, which may be gone: see whom it concerns."""
        self._changes += 1
        if self._crowded != (len(self._processes) > 1):
            self._crowded = not self._crowded
            self._since = self._changes
        for one in {number, *self._order[-2:]}:
            level = self._levels.get(one)
            if level is None:
                continue
            top = one == self._order[-1]
            facts = (top, min(2, len(level.clients)), level.periods_ns[0]) if top else (top, 0, 0)
            if facts != level.facts:
                level.facts, level.since = facts, self._changes
                self._stale[level] = None

    @property
    def is_stale(self) -> bool:
        """Whether `tell` has something left to do."""
        return bool(self._stale) or self._is_behind(next(iter(self._published), None), self._since)

    def _is_behind(self, client: Client | None, since: int) -> bool:
        return client is not None and self._published[client] < since

    def tell(self) -> None:
        """Write some of the pages that are out of date."""
        for _ in range(A_TURN):
            first = next(iter(self._published), None)
            if first is None or not self._is_behind(first, self._since):
                first = self._next_stale()
            if first is None:
                return
            self._publish(first)

    def _next_stale(self) -> Client | None:
        while self._stale:
            level = next(iter(self._stale))
            first = next(iter(level.clients))
            if self._is_behind(first, level.since):
                return first
            del self._stale[level]
        return None

    def _publish(self, client: Client) -> None:
        place = self._places[client]
        level = self._levels[place.level]
        self._published[client] = self._changes
        self._published.move_to_end(client)
        level.clients.move_to_end(client)
        if client.port is None or level.facts is None:
            return
        top, equals, shortest_ns = level.facts
        bounded = self._crowded or place.capacity_ns is not None
        client.port.set_split(self.split_ns if bounded else 0)
        if not bounded:
            window_ns = 0
        elif not top:
            window_ns = self.window_ns
        else:
            window_ns = self._window_ns(place.capacity_ns, equals, shortest_ns)
        client.port.set_window(window_ns, _longest_ns(window_ns))

    def _window_ns(self, capacity_ns: int | None, equals: int, shortest_ns: int) -> int:
        """Of a program that nobody is more important than. Somebody more important waits for a
        window at most. Equals wait for slices anyway, and a budget is for much more than a window:
        a wider one keeps the GPU busy, the more so the fewer gates there are."""
        if capacity_ns is None:
            return WIDER * self.window_ns if equals > 1 else 0
        bound_ns = min(shortest_ns // PERIODS, capacity_ns // CAPACITIES)
        return min(max(WIDER * self.window_ns, bound_ns), WIDEST * self.window_ns)


def _longest_ns(window_ns: int) -> int:
    """How long a piece of a program may become that is slower than the GPU."""
    return min(STRETCH * window_ns, LONGEST_NS) if window_ns else UNBOUNDED_NS
