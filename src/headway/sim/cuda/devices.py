"""Simulated devices: how the hardware shares a GPU among processes, of its own accord.

By the names that scenario files use: `time-sliced` is a GPU as it comes: one process at a time,
each for a time slice while others have work, and a switch in between. `side-by-side` is a GPU under
MPS: blocks of all processes share the multiprocessors. `one-group` runs one kernel after the other,
whole, in the order in which they could begin. A fourth kind is in `interleaving`.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from headway.engine.profile import DeviceProfile
from headway.sim.cuda.clock import Clock, Entry
from headway.sim.cuda.commands import Context, Lane, Row, Transfer
from headway.sim.cuda.multiprocessors import Multiprocessors


class Device:
    """One GPU. Lanes hand commands to it, and hear by `Lane.done` when one is over."""

    kind: ClassVar[str]
    side_by_side: ClassVar[bool] = False
    """Whether kernels of several processes mix, rather than each process having slices."""

    def __init__(self, clock: Clock, profile: DeviceProfile) -> None:
        self.clock = clock
        self.profile = profile
        self.contexts: list[Context] = []
        self.switches = 0
        quantum_ns = None if self.side_by_side else profile.slice_ns
        self._engines = {True: CopyEngine(clock, quantum_ns), False: CopyEngine(clock, quantum_ns)}
        """To the device, and from it."""

    def add(self, context: Context) -> None:
        """A process has made its context."""
        self.contexts.append(context)

    def execute(self, row: Row) -> None:
        """Run these kernels."""
        raise NotImplementedError

    def done(self, row: Row) -> int:
        """How many kernels of a row are done."""
        raise NotImplementedError

    def pause(self, lane: Lane, time_ns: int) -> None:
        """Have a lane do something for so long that takes no multiprocessors."""
        self.execute(Row(lane, 1, max(1, time_ns), 0))

    def copy(self, transfer: Transfer) -> None:
        """Copy from or to the host."""
        self._engines[transfer.to_device].put(transfer)

    def set_share(self, context: Context, permille: int) -> None:
        """From the next blocks on, a context has this part of the multiprocessors, by MPS."""
        context.client_share = permille
        self.confine(context, permille)

    def confine(self, context: Context, permille: int) -> None:
        """The same by green contexts, which graphs do not go to."""
        context.share = min(permille, context.client_share)


class SideBySide(Device):
    """All processes share the multiprocessors, as clients of one MPS server."""

    kind = "side-by-side"
    side_by_side = True

    def __init__(self, clock: Clock, profile: DeviceProfile) -> None:
        super().__init__(clock, profile)
        self._all = Multiprocessors(clock, profile.multiprocessors, lambda: None)

    def execute(self, row: Row) -> None:
        self._all.start(row)

    def done(self, row: Row) -> int:
        return self._all.done(row)

    def confine(self, context: Context, permille: int) -> None:
        super().confine(context, permille)
        self._all.refresh()


class OneGroup(Device):
    """One kernel after the other, each for itself, as a scenario's groups without `cuda`."""

    kind = "one-group"
    side_by_side = True

    def __init__(self, clock: Clock, profile: DeviceProfile) -> None:
        super().__init__(clock, profile)
        self._all = Multiprocessors(clock, 1, lambda: None)

    def execute(self, row: Row) -> None:
        if row.blocks:
            row.block_ns, row.blocks, row.per_sm = row.nominal_ns, 1, 1
        self._all.start(row)

    def done(self, row: Row) -> int:
        return self._all.done(row)


class TimeSliced(Device):
    """One process at a time.

    While others have work, a process keeps the device until its slice is over or it has nothing to
    do: work that waits at a closed gate is nothing to do. A slice goes on while nobody else wants
    the device, and begins anew with the first kernel after its end. So a kernel that has run for
    longer than a slice is taken off at once, one that has just begun only when a slice is over.
    """

    kind = "time-sliced"

    def __init__(self, clock: Clock, profile: DeviceProfile) -> None:
        super().__init__(clock, profile)
        self._parts: dict[Context, Multiprocessors] = {}
        self._turns: deque[Context] = deque()
        """Who comes when, the one that has the device last."""
        self._current: Context | None = None
        self._slice_ns = 0
        """When the slice of the current one began."""
        self._switching = False
        self._wanted = False
        """Somebody waits for its end, so it does not begin anew."""
        self._ends: Entry | None = None

    def add(self, context: Context) -> None:
        super().add(context)
        part = Multiprocessors(self.clock, self.profile.multiprocessors, self._review)
        part.pause()
        self._parts[context] = part
        self._turns.appendleft(context)

    def execute(self, row: Row) -> None:
        context, now_ns = row.lane.context, self.clock.now_ns
        part = self._parts[context]
        alone = context is self._current and not self._wanted
        if alone and part.is_idle and now_ns >= self._slice_ns + self.profile.slice_ns:
            self._slice_ns = now_ns
        part.start(row)
        self._review()

    def done(self, row: Row) -> int:
        return self._parts[row.lane.context].done(row)

    def _renewed(self) -> int:
        assert self._current is not None
        part = self._parts[self._current]
        return part.renews_ns(self._slice_ns, self.profile.slice_ns)

    def _next(self) -> Context | None:
        """Who has work and does not have the device."""
        for context in self._turns:
            if context is not self._current and not self._parts[context].is_idle:
                return context
        return None

    def _review(self) -> None:
        """Does the device go to somebody else, and when?"""
        if self._switching:
            return
        following = self._next()
        self.clock.cancel(self._ends)
        self._ends = None
        if following is None:
            self._wanted = False
            return
        if self._current is not None and not self._parts[self._current].is_idle:
            if not self._wanted:
                self._slice_ns, self._wanted = self._renewed(), True
            ends_ns = self._slice_ns + self.profile.slice_ns
            if ends_ns > self.clock.now_ns:
                self._ends = self.clock.at(ends_ns, self._review)
                return
        self._switch(following)

    def _switch(self, following: Context) -> None:
        before, self._current = self._current, following
        self._turns.remove(following)
        self._turns.append(following)
        if before is None:
            self._begin()
            return
        self._parts[before].pause()
        self.switches += 1
        self._switching = True
        self.clock.at(self.clock.now_ns + self.profile.switch_ns, self._begin)

    def _begin(self) -> None:
        assert self._current is not None
        self._switching = self._wanted = False
        self._slice_ns = self.clock.now_ns
        self._parts[self._current].resume()
        self._review()


class CopyEngine:
    """Copies in one direction, one at a time; processes take turns of a slice where there are such,
    else each copy goes on to its end."""

    def __init__(self, clock: Clock, quantum_ns: int | None) -> None:
        self._clock = clock
        self._quantum_ns = quantum_ns
        self._waiting: deque[Transfer] = deque()
        self._busy = False

    def put(self, transfer: Transfer) -> None:
        """A copy is next on its lane."""
        self._waiting.append(transfer)
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        transfer = self._waiting.popleft()
        part_ns = transfer.left_ns
        if self._quantum_ns is not None:
            part_ns = min(part_ns, self._quantum_ns)
        self._busy = True
        self._clock.at(self._clock.now_ns + part_ns, lambda: self._end(transfer, part_ns))

    def _end(self, transfer: Transfer, part_ns: int) -> None:
        transfer.left_ns -= part_ns
        transfer.lane.context.copied_ns += part_ns
        self._busy = False
        if transfer.left_ns:
            self._waiting.append(transfer)
        if self._waiting:
            self._begin()
        if not transfer.left_ns:
            transfer.lane.done()
