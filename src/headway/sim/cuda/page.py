"""A simulated program's page: what it says of itself, and what is published to it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.engine.turns.jobs import TOLD
from headway.engine.turns.pauses import BINS, bin_of
from headway.engine.turns.port import JobReport
from headway.sim.cuda.clock import Clock
from headway.sim.cuda.commands import Context


@dataclass(slots=True)
class LaneWords:
    """Pieces of one lane: how many were given and ended by the program, opened and closed by the
    GPU."""

    given: int = 0
    ended: int = 0
    opened: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class PageReport:
    """A copy of all that a program says, made at one instant."""

    busy: bool
    passed: int
    used_ns: int
    last_ns: int
    paused: int
    gated: bool
    waiting: bool
    unmarked: bool
    marked: bool
    piece_ns: int
    pieces: bytes
    trails: bool
    runs: bool

    @property
    def drains(self) -> bool:
        return self.busy and (self.unmarked or self.marked or self.trails)


class Records:
    """A program's own records: its pauses by length, and its last jobs."""

    def __init__(self) -> None:
        self.pauses = [0] * BINS
        self.jobs: list[JobReport] = []
        """The last ones; `begun` counts all."""
        self.begun = 0
        self.paused = 0
        self._works = False
        self._paused_ns: int | None = None
        self._passed = 0
        self._said: tuple[int, int] | None = None
        """When the program said that a job begins, and its deadline, until its first work."""
        self._open = False

    @property
    def last(self) -> JobReport:
        return self.jobs[-1]

    def _begin(self, now_ns: int, passed: int) -> None:
        begun_ns, deadline_ns = self._said or (now_ns, 0)
        self.jobs.append(JobReport(begun_ns, now_ns, deadline_ns))
        del self.jobs[:-TOLD]
        self.begun += 1
        self._passed, self._said = passed, None

    def works(self, now_ns: int, rest_ns: int, passed: int) -> None:
        """The program wants the GPU; after a pause that ends it."""
        if self._works and self.jobs:
            return
        took_ns = 0 if self._paused_ns is None else now_ns - self._paused_ns
        if self._paused_ns is not None and not self._works:
            self.pauses[bin_of(took_ns)] += 1
        self._works = True
        rested = not self._open and took_ns >= rest_ns
        if not self.jobs or self.last.closed or self._said or rested:
            self._begin(now_ns, passed)

    def pause(self, now_ns: int, passed: int) -> None:
        """All of its work is done, and it has seen that."""
        self._works, self._paused_ns = False, now_ns
        if self.jobs:
            self.paused += 1
            last = self.last
            self._change(ended_ns=now_ns, groups=passed - self._passed, pauses=last.pauses + 1)

    def waited(self, time_ns: int) -> None:
        """It waited for so long for the GPU."""
        if self._works and self.jobs:
            self._change(waited_ns=self.last.waited_ns + time_ns)

    def held(self, time_ns: int) -> None:
        """It waited for so long at its gate."""
        if self._works and self.jobs:
            self._change(held_ns=self.last.held_ns + time_ns)

    def say_begin(self, now_ns: int, deadline_ns: int) -> None:
        """The program says that a job begins."""
        self._open, self._said = True, (now_ns, deadline_ns)
        if self._works:
            self._works, self._paused_ns = False, None

    def say_end(self, now_ns: int) -> None:
        """It says that the job is over."""
        self._open = False
        if self._said is None and self.jobs:
            self._change(ended_ns=now_ns, closed=True)
        self._said = None

    def tells(self, after: int) -> bool:
        """Whether the daemon wants to hear of this pause."""
        if not self.jobs or self.last.closed:
            return True
        return after > 0 and self.last.pauses >= after

    def _change(self, **more: Any) -> None:
        self.jobs[-1] = replace(self.last, **more)


class Page:
    """The port of one simulated program."""

    def __init__(self, clock: Clock, context: Context, open_ns: int) -> None:
        self._clock = clock
        self._context = context
        self._open_ns = open_ns
        context.open = False
        self.lanes: list[LaneWords] = []
        self.records = Records()
        self.on_lease: Callable[[], None] | None = None
        """Called once, when a lease shows."""
        # What the program says.
        self.busy = False
        self.asks = 0
        self.passed = 0
        self.used_ns = 0
        self.last_ns = 0
        self.gated = False
        self.waiting = False
        self.unmarked = False
        self.marked = False
        self.piece_ns = 0
        self.end_marks = 0
        self.end_marked = 0
        # What is published to it.
        self.lease = False
        self.held = False
        self.at_once = False
        self.waits = False
        self.polled = False
        self.wanted = False
        self.wants_mark = False
        self.window_ns = 0
        self.longest_ns = 0
        self.split_ns = 0
        self.rest_ns = 0
        self.tell_after = 0
        self._open = False

    # -- read --------------------------------------------------------------------------------

    @property
    def report(self) -> PageReport:
        words = [(w.given, w.ended, w.opened, w.closed) for w in self.lanes]
        return PageReport(
            self.busy,
            self.passed,
            self.used_ns,
            self.last_ns,
            self.paused,
            self.gated,
            self.waiting,
            self.unmarked,
            self.marked,
            self.piece_ns,
            b"".join(struct.pack("<4Q", *word) for word in words),
            self.trails,
            any(o != c and (g != o or g == e) for g, e, o, c in words),
        )

    @property
    def paused(self) -> int:
        return self.records.paused

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.passed, 0, self.used_ns

    @property
    def pending(self) -> bool:
        return self.gated and any(words.given != words.opened for words in self.lanes)

    @property
    def trails(self) -> bool:
        return any(words.opened != words.closed for words in self.lanes)

    @property
    def end_reached(self) -> bool:
        return self.waiting and self.end_marked == self.end_marks != 0

    @property
    def jobs_begun(self) -> int:
        return self.records.begun

    def job(self, number: int) -> JobReport:
        records = self.records
        place = number - (records.begun - len(records.jobs))
        return records.jobs[place] if 0 <= place < len(records.jobs) else JobReport()

    @property
    def pauses(self) -> Sequence[int]:
        return self.records.pauses

    @property
    def share(self) -> int:
        return self._context.share

    @property
    def whole(self) -> int:
        return self._context.whole

    def is_stopped(self) -> bool:
        return False

    # -- published ---------------------------------------------------------------------------

    @property
    def shows_lease(self) -> bool:
        return self.lease

    def set_lease(self, on: bool) -> None:
        self.lease = on
        self._set_open(on and not self.held)
        if on and self.on_lease is not None:
            call, self.on_lease = self.on_lease, None
            call()

    def keep_lease(self) -> None:
        if not self.lease:
            self.set_lease(True)

    def hold_back(self, on: bool) -> None:
        if self.held != on:
            self.held = on
            if self.lease:
                self.set_lease(True)

    def open_early(self) -> None:
        if not self.held:
            self._set_open(True)

    def _set_open(self, on: bool) -> None:
        if self._open == on:
            return
        self._open = on
        if on:
            self._clock.at(self._clock.now_ns + self._open_ns, self._opens)
        else:
            self._context.set_open(False)

    def _opens(self) -> None:
        if self._open and not self._context.open:
            self._context.set_open(True)

    def set_wanted(self, on: bool, *, marks: bool = False) -> None:
        self.wanted, self.wants_mark = on, on and marks

    def set_waits(self, on: bool) -> None:
        self.waits = on

    def set_at_once(self, on: bool) -> None:
        self.at_once = on

    def set_polled(self, on: bool) -> None:
        self.polled = on

    def set_jobs(self, rest_ns: int, tell_after: int) -> None:
        self.rest_ns, self.tell_after = rest_ns, tell_after

    def set_split(self, split_ns: int) -> None:
        self.split_ns = split_ns

    def set_share(self, permille: int) -> None:
        self._context.device.confine(self._context, permille)

    def set_window(self, window_ns: int, longest_ns: int) -> None:
        self.window_ns, self.longest_ns = window_ns, longest_ns
