"""A GPU whose multiprocessors execute blocks of several kernels at a time, interleaved.

A block that is alone on its multiprocessor runs at full speed; for each other block there it takes
longer by its kernel's `interleave`. So a kernel that fits beside others is slowed down a little
rather than kept waiting, as CudaMon measured it on a Tesla V100 (§5.2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from headway.engine.profile import DeviceProfile
from headway.sim.cuda.clock import Clock, Entry
from headway.sim.cuda.commands import WHOLE, Context, Row
from headway.sim.cuda.devices import Device

UNIT = 1000
"""Of `Row.interleave`."""


@dataclass(eq=False, slots=True)
class _Active:
    """A row of which a kernel executes, or waits for room."""

    row: Row
    seq: int
    left: int
    """Kernels that are not done."""
    ready_ns: int
    """When the next of them may begin, or could have."""
    waiting: int
    """Blocks of the first kernel that have not begun,"""
    running: int = 0
    """and those that are on multiprocessors."""
    begun_ns: int = 0


@dataclass(eq=False, slots=True)
class _Batch:
    """Blocks of one kernel that began together on one multiprocessor."""

    active: _Active
    blocks: int
    left_ns: int
    """What is left of them, at full speed."""


@dataclass(eq=False, slots=True)
class _Multiprocessor:
    batches: list[_Batch] = field(default_factory=list)
    blocks: int = 0
    since_ns: int = 0
    """Up to then `left_ns` of its batches is right."""
    entry: Entry | None = None

    def slowdown(self, batch: _Batch) -> int:
        """How long `batch` takes for what takes it UNIT alone."""
        return UNIT + batch.active.row.interleave * (self.blocks - 1)

    def catch_up(self, now_ns: int) -> None:
        passed_ns, self.since_ns = now_ns - self.since_ns, now_ns
        for batch in self.batches:
            batch.left_ns -= passed_ns * UNIT // self.slowdown(batch)

    def next_ns(self) -> int | None:
        """When the first batch is done, if nothing comes."""
        return min(
            (
                self.since_ns - batch.left_ns * self.slowdown(batch) // -UNIT
                for batch in self.batches
            ),
            default=None,
        )


class Interleaved(Device):
    """All processes share the multiprocessors under MPS, and several blocks each of them.

    A block goes to the multiprocessor with the fewest blocks, of those that its context may use: so
    many as its share says, which are the ones that it uses already and then the emptiest.
    """

    kind = "interleaved"
    side_by_side = True

    def __init__(self, clock: Clock, profile: DeviceProfile) -> None:
        super().__init__(clock, profile)
        self._all = [_Multiprocessor() for _ in range(profile.multiprocessors)]
        self._active: list[_Active] = []
        self._seq = 0

    def execute(self, row: Row) -> None:
        self._seq += 1
        now_ns = self.clock.now_ns
        self._active.append(_Active(row, self._seq, row.kernels, now_ns, row.blocks))
        self._fill()

    def done(self, row: Row) -> int:
        return next((row.kernels - a.left for a in self._active if a.row is row), 0)

    def confine(self, context: Context, permille: int) -> None:
        super().confine(context, permille)
        self._fill()

    # -- blocks begin ------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Begin what there is room for."""
        now_ns = self.clock.now_ns
        order = sorted(self._active, key=lambda a: (a.row.context_of().priority, a.ready_ns, a.seq))
        for active in order:
            if active.ready_ns > now_ns or (not active.waiting and active.running):
                continue
            if not active.running and active.waiting == active.row.blocks:
                active.begun_ns = now_ns
            if active.row.blocks:
                self._place(active)
            elif not active.running:  # takes time, and no room
                active.running = 1
                self._at(now_ns + active.row.block_ns, active)

    def _at(self, time_ns: int, active: _Active) -> None:
        self.clock.at(time_ns, lambda: self._kernel_done(active))

    def _place(self, active: _Active) -> None:
        row = active.row
        heap = [(sm.blocks, place) for place, sm in self._usable(row)]
        heapify(heap)
        given: dict[int, int] = {}
        while active.waiting and heap:
            blocks, place = heappop(heap)
            if blocks >= row.per_sm:  # and so have all others
                break
            given[place] = given.get(place, 0) + 1
            active.waiting -= 1
            active.running += 1
            heappush(heap, (blocks + 1, place))
        for place, blocks in given.items():
            sm = self._all[place]
            sm.catch_up(self.clock.now_ns)
            sm.batches.append(_Batch(active, blocks, row.block_ns))
            sm.blocks += blocks
            self._schedule(sm)

    def _usable(self, row: Row) -> list[tuple[int, _Multiprocessor]]:
        context, most = row.context_of(), max(1, len(self._all) * row.share // WHOLE)
        numbered = list(enumerate(self._all))
        if most == len(self._all):
            return numbered

        def order(item: tuple[int, _Multiprocessor]) -> tuple[bool, int, int]:
            place, sm = item
            own = any(batch.active.row.context_of() is context for batch in sm.batches)
            return not own, sm.blocks, place

        return sorted(numbered, key=order)[:most]

    # -- blocks end --------------------------------------------------------------------------------

    def _schedule(self, sm: _Multiprocessor) -> None:
        self.clock.cancel(sm.entry)
        next_ns = sm.next_ns()
        sm.entry = None if next_ns is None else self.clock.at(next_ns, lambda: self._end(sm))

    def _end(self, sm: _Multiprocessor) -> None:
        sm.catch_up(self.clock.now_ns)
        over = [batch for batch in sm.batches if batch.left_ns <= 0]
        sm.batches = [batch for batch in sm.batches if batch.left_ns > 0]
        sm.blocks -= sum(batch.blocks for batch in over)
        self._schedule(sm)
        for batch in over:
            active = batch.active
            active.running -= batch.blocks
            if not active.running and not active.waiting:
                self._kernel_done(active)
        if over and any(active.waiting for active in self._active):
            self._fill()

    def _kernel_done(self, active: _Active) -> None:
        active.running = 0
        active.left -= 1
        row, now_ns = active.row, self.clock.now_ns
        if not active.left:
            self._active.remove(active)
            row.lane.done()
            return
        active.waiting = row.blocks
        active.ready_ns = max(now_ns + row.gap_ns, active.begun_ns + row.pace_ns)
        if active.ready_ns > now_ns:
            self.clock.at(active.ready_ns, self._fill)
        else:
            self._fill()
