"""The multiprocessors of a device, and how kernels share them: block by block.

Blocks go to multiprocessors as they become free: of the client with the better priority first, then
of the kernel that could begin first. A kernel that leaves some free lets those behind it begin (the
"leftover" rule of NVIDIA's block scheduler). Nothing takes a block off but a time slice that ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.sim.cuda.clock import Clock, Entry
from headway.sim.cuda.commands import WHOLE, Context, Row


@dataclass(eq=False, slots=True)
class _Wave:
    """Blocks of one kernel that began together."""

    active: _Active
    sms: int
    ends_ns: int
    """While the multiprocessors are paused: how much is left."""
    entry: Entry | None = None


@dataclass(eq=False, slots=True)
class _Active:
    """A row of which a kernel executes, or waits for multiprocessors."""

    row: Row
    seq: int
    left: int
    """Kernels that are not done."""
    ready_ns: int
    """When the next of them may begin, or could have."""
    begun_ns: int = 0
    blocks: int = 0
    """Blocks of the first kernel that have not begun."""
    waves: int = 0
    """Of its blocks that are on multiprocessors."""

    @property
    def is_fresh(self) -> bool:
        return not self.waves and self.blocks == self.row.blocks


@dataclass(eq=False, slots=True)
class _Run:
    """A row that has all multiprocessors for itself, so its end is known."""

    active: _Active
    since_ns: int
    period_ns: int
    """From the begin of one kernel to that of the next."""
    kernel_ns: int
    sms: int
    entry: Entry


@dataclass(eq=False)
class Multiprocessors:
    """A number of multiprocessors, for one context or for several side by side."""

    clock: Clock
    count: int
    idle: Callable[[], None]
    """Called when nothing is left to execute."""
    _active: list[_Active] = field(default_factory=list)
    _waves: list[_Wave] = field(default_factory=list)
    _used: dict[Context, int] = field(default_factory=dict)
    _run: _Run | None = None
    _wakes: Entry | None = None
    _paused: bool = False
    _seq: int = 0

    @property
    def is_idle(self) -> bool:
        return not self._active

    def start(self, row: Row) -> None:
        """Execute these kernels as soon as there is room; `row.lane` hears of the end."""
        self._split()
        self._seq += 1
        active = _Active(row, self._seq, row.kernels, self.clock.now_ns, blocks=row.blocks)
        self._active.append(active)
        self._fill()

    def pause(self) -> None:
        """Take everything off."""
        self._split()
        self._paused = True
        for wave in self._waves:
            self.clock.cancel(wave.entry)
            wave.ends_ns -= self.clock.now_ns

    def resume(self) -> None:
        """Go on where everything was when it was taken off."""
        self._paused = False
        for wave in self._waves:
            wave.ends_ns += self.clock.now_ns
            self._schedule(wave)
        self._fill()

    def done(self, row: Row) -> int:
        """How many kernels of a row are done."""
        self._split()
        self._fill()
        return next((row.kernels - a.left for a in self._active if a.row is row), 0)

    def refresh(self) -> None:
        """A context's share has changed."""
        self._split()
        self._fill()

    def renews_ns(self, since_ns: int, slice_ns: int) -> int:
        """When the last time slice began, the first having begun at `since_ns`, while nobody else
        wanted one: each goes on until its time is over and the next kernel begins."""
        run, now_ns = self._run, self.clock.now_ns
        if run is None or now_ns - since_ns < slice_ns:
            return since_ns + max(0, now_ns - since_ns) // slice_ns * slice_ns
        after_ns = max(0, since_ns + slice_ns - run.since_ns)
        first_ns = run.since_ns + -(-after_ns // run.period_ns) * run.period_ns
        if now_ns < first_ns:
            return since_ns
        each_ns = -(-slice_ns // run.period_ns) * run.period_ns
        return first_ns + (now_ns - first_ns) // each_ns * each_ns

    # -- a row by itself -----------------------------------------------------------------------

    def _run_alone(self, active: _Active) -> None:
        """Nobody else wants anything, and no kernel of it is in the middle: its end is plain."""
        row, now_ns = active.row, self.clock.now_ns
        sms = max(1, min(self.count, self._most(row)))
        waves = -(-row.blocks // (sms * row.per_sm)) if row.blocks else 1
        kernel_ns = waves * row.block_ns
        period_ns = max(kernel_ns + row.gap_ns, row.pace_ns, 1)
        ends_ns = now_ns + (active.left - 1) * period_ns + kernel_ns
        entry = self.clock.at(ends_ns, self._finish_run)
        self._run = _Run(active, now_ns, period_ns, kernel_ns, sms, entry)

    def _finish_run(self) -> None:
        assert self._run is not None
        active, self._run = self._run.active, None
        self._finish(active)

    def _split(self) -> None:
        """Somebody comes, or the device is taken away: what is done of the row, and what is not?"""
        run, self._run = self._run, None
        if run is None:
            return
        self.clock.cancel(run.entry)
        active, row, now_ns = run.active, run.active.row, self.clock.now_ns
        done, into_ns = divmod(now_ns - run.since_ns, run.period_ns)
        if done >= active.left:
            done, into_ns = active.left - 1, run.kernel_ns
        active.left -= done
        active.begun_ns = run.since_ns + done * run.period_ns
        if into_ns >= run.kernel_ns and active.left > 1:  # between two of them
            active.left -= 1
            active.ready_ns = active.begun_ns + run.period_ns
            active.blocks = row.blocks
            return
        wave = min(into_ns // row.block_ns, run.kernel_ns // row.block_ns - 1)
        at_once = run.sms * row.per_sm
        now_on = min(at_once, row.blocks - wave * at_once)
        active.ready_ns = active.begun_ns
        active.blocks = row.blocks - wave * at_once - now_on
        ends_ns = active.begun_ns + (wave + 1) * row.block_ns
        self._begin_wave(active, -(-now_on // row.per_sm), ends_ns)

    # -- several side by side ------------------------------------------------------------------

    def _most(self, row: Row) -> int:
        """How many its context may use for it."""
        return self.count * row.share // WHOLE

    def _fill(self) -> None:
        """Give free multiprocessors to whoever comes first."""
        if self._paused or not self._active or self._run is not None:
            return
        now_ns = self.clock.now_ns
        if len(self._active) == 1:
            only = self._active[0]
            if only.is_fresh and only.ready_ns <= now_ns:
                self._run_alone(only)
                return
        free = self.count - sum(self._used.values())
        order = sorted(self._active, key=lambda a: (a.row.context_of().priority, a.ready_ns, a.seq))
        for active in order:
            if active.ready_ns <= now_ns:
                free -= self._give(active, free)
        soonest_ns = min((a.ready_ns for a in self._active if a.ready_ns > now_ns), default=None)
        if soonest_ns is not None and (self._wakes is None or self._wakes[2] is None):
            self._wakes = self.clock.at(soonest_ns, self._wake)
        elif soonest_ns is not None and self._wakes is not None and soonest_ns < self._wakes[0]:
            self.clock.cancel(self._wakes)
            self._wakes = self.clock.at(soonest_ns, self._wake)

    def _wake(self) -> None:
        self._wakes = None
        self._fill()

    def _give(self, active: _Active, free: int) -> int:
        """Begin what fits; how many multiprocessors that takes."""
        row, context = active.row, active.row.context_of()
        if active.is_fresh:
            active.begun_ns = self.clock.now_ns
        if not row.blocks and not active.waves:  # takes time, and no room
            self._begin_wave(active, 0, self.clock.now_ns + row.block_ns)
            return 0
        most = min(free, max(1, self._most(active.row)) - self._used.get(context, 0))
        if not active.blocks or most <= 0:
            return 0
        sms = min(most, -(-active.blocks // row.per_sm))
        active.blocks -= min(active.blocks, sms * row.per_sm)
        self._begin_wave(active, sms, self.clock.now_ns + row.block_ns)
        return sms

    def _begin_wave(self, active: _Active, sms: int, ends_ns: int) -> None:
        context = active.row.context_of()
        wave = _Wave(active, sms, ends_ns)
        active.waves += 1
        self._used[context] = self._used.get(context, 0) + sms
        self._waves.append(wave)
        self._schedule(wave)

    def _schedule(self, wave: _Wave) -> None:
        wave.entry = self.clock.at(wave.ends_ns, lambda: self._end_wave(wave))

    def _end_wave(self, wave: _Wave) -> None:
        active = wave.active
        self._waves.remove(wave)
        self._used[active.row.context_of()] -= wave.sms
        active.waves -= 1
        if not active.waves and not active.blocks:
            active.left -= 1
            if not active.left:
                self._finish(active)
                return
            row = active.row
            now_ns = self.clock.now_ns
            active.blocks = row.blocks
            active.ready_ns = max(now_ns + row.gap_ns, active.begun_ns + row.pace_ns)
        self._fill()

    def _finish(self, active: _Active) -> None:
        """A row is done. Who was waiting comes before what its lane has next."""
        self._active.remove(active)
        self._fill()
        active.row.lane.done()
        if not self._active:
            self.idle()
