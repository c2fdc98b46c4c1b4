"""The period estimator: when the next job of a regular program is due.

A guess, and one that need not be good: what is done for it is over by itself soon after the time it
was for, whether somebody came or not.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low

SEEN = 8
"""So many intervals make an estimate."""
RECENT = 3
"""So many of them tell whether a job was late."""
SHORTEST_NS = 2_000_000
LONGEST_NS = 1_000_000_000
"""Periods between these are worth knowing."""
PART = 16
"""By such a part of a period intervals may differ, but by at least and at most so much:"""
LEAST_NS = 200_000
MOST_NS = 1_000_000
ALIKE_NS = 600_000
"""Jobs whose lengths differ by no more than that take about as long."""
LEAD_NS = 500_000
LEAD_PART = 20
LATE_NS = 300_000
"""From how long before its time to how long after it a job is expected, at most; the first is no
more than such a part of a period either. What waits for jobs, and what they wait for, fall into
step: then it is not now and then that something waits, but every few periods, and for most of this.
Longer ones would save jobs more, and cost the others a few per cent."""


class PeriodEstimator:
    """What is known of one program's jobs."""

    def __init__(self) -> None:
        self.due_ns: int | None = None
        """When the next job should begin, if they are regular."""
        self.lead_ns = 0
        self.period_ns = 0
        """What lies between two of them then."""
        self._last_ns: int | None = None
        self._late_ns = 0
        """By how much the last job was later than those just before it let expect."""
        self._intervals: deque[int] = deque(maxlen=SEEN)
        self._lengths: deque[int] = deque(maxlen=SEEN)

    def began(self, now_ns: int) -> None:
        """A job did."""
        if self._last_ns is not None:
            self._intervals.append(now_ns - self._last_ns)
        self._last_ns = now_ns
        period_ns = self._period_ns()
        self._late_ns = 0 if period_ns is None else self._lateness_ns(period_ns)
        self.due_ns = None if period_ns is None else now_ns + period_ns
        self.period_ns = period_ns or 0
        self.lead_ns = 0 if period_ns is None else min(LEAD_NS, period_ns // LEAD_PART)

    def lasted(self, length_ns: int) -> None:
        """A job took so long."""
        self._lengths.append(length_ns)

    @property
    def soonest_ns(self) -> int | None:
        """When the next job should begin if the last was late and it is not, as where a program
        looks at the clock."""
        return None if self.due_ns is None else self.due_ns - self._late_ns

    def _lateness_ns(self, period_ns: int) -> int:
        late_ns, times = 0, 0
        for interval_ns in list(self._intervals)[-RECENT:][::-1]:
            times += interval_ns - period_ns
            late_ns = max(late_ns, times)
        return late_ns

    @property
    def job_ns(self) -> int:
        """How long a job takes, mostly."""
        return median_low(self._lengths) if self._lengths else 0

    @property
    def lengths_ns(self) -> tuple[int, int] | None:
        """From how long to how long jobs take, if that is about the same; the longest and the
        shortest do not count."""
        if len(self._lengths) < SEEN:
            return None
        _, *most, _ = sorted(self._lengths)
        return (most[0], most[-1]) if most[-1] - most[0] <= ALIKE_NS else None

    def _period_ns(self) -> int | None:
        """The longest and the shortest do not count: one late job makes one of each."""
        if len(self._intervals) < SEEN:
            return None
        period_ns = median_low(self._intervals)
        _, *most, _ = sorted(self._intervals)
        differ_ns = min(max(period_ns // PART, LEAST_NS), MOST_NS)
        if not SHORTEST_NS <= period_ns <= LONGEST_NS or most[-1] - most[0] > differ_ns:
            return None
        return period_ns

    @property
    def expected_ns(self) -> tuple[int, int] | None:
        """From when until when the next job is waited for. If the last was late the next may not
        be, or be it as well: as long as both fit in, that is no longer."""
        if self.due_ns is None:
            return None
        wait_ns = min(LATE_NS, self.lead_ns)
        due_ns = self.due_ns - min(self._late_ns, wait_ns * 2 // 3)
        return due_ns - self.lead_ns, due_ns + wait_ns
