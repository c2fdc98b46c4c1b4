"""What a token section will take: for each task and each distance to the device that it used last.

An observation is the time from a token's grant to its release, without time preempted and time
blocked on units, with the job's own operations and its migration. It counts for the distance at
which this token was.
"""

from __future__ import annotations

from collections import deque
from math import isqrt

from headway.engine.locks.topology import DISTANCES

WINDOW = 20
SEEN = 10
"""So many observations are kept before any is rejected."""
LONGEST_NS = 2_000_000_000
"""Longer observations are no sections; GPUSync's sources drop them too."""
LEAST_WIDTH = 100
"""The band is at least a hundredth of the average wide, or a constant cost would reject any other
for ever."""
REJECTIONS = 10
"""After so many in a row the past is forgotten: the section has changed."""


class Estimator:
    """Mean and deviation over the last observations of one task at one distance."""

    __slots__ = ("_rejected", "_squares", "_sum", "_window", "average_ns")

    def __init__(self) -> None:
        self._window: deque[int] = deque()
        self._sum = 0
        self._squares = 0
        self._rejected = 0
        self.average_ns = 0

    def __len__(self) -> int:
        return len(self._window)

    @property
    def deviation_ns(self) -> int:
        """Standard deviation over the window, rounded down."""
        return isqrt(self._variance())

    def _variance(self) -> int:
        count, average = len(self._window), self.average_ns
        if not count:
            return 0
        return (self._squares - 2 * average * self._sum + count * average * average) // count

    def add(self, observed_ns: int) -> bool:
        """Take an observation; False if it is dropped as unusual."""
        if observed_ns > LONGEST_NS:
            return False
        window = self._window
        count = len(window)
        if count >= SEEN:
            average = self.average_ns
            off = observed_ns - average if observed_ns > average else average - observed_ns
            # off > 2 * deviation, without its square root; and off > average / 100.
            half = (off + 1) >> 1
            if LEAST_WIDTH * off > average and half * half > (
                (self._squares - 2 * average * self._sum) // count + average * average
            ):
                if self._rejected < REJECTIONS:
                    self._rejected += 1
                    return False
                window.clear()
                count = self._sum = self._squares = 0
        self._rejected = 0
        if count == WINDOW:
            oldest = window.popleft()
            self._sum += observed_ns - oldest
            self._squares += observed_ns * observed_ns - oldest * oldest
        else:
            count += 1
            self._sum += observed_ns
            self._squares += observed_ns * observed_ns
        window.append(observed_ns)
        self.average_ns = self._sum // count
        return True


class CostPredictor:
    """The estimators of all tasks of a cluster."""

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[Estimator, ...]] = {}

    def estimator(self, task: int, distance: int) -> Estimator:
        """The estimator of a task at a distance, made when it is first asked for."""
        known = self._tasks.get(task)
        if known is None:
            known = self._tasks[task] = tuple(Estimator() for _ in range(DISTANCES))
        return known[distance]

    def observe(self, task: int, distance: int, observed_ns: int) -> bool:
        """A section ended in order; aborted ones are not observations."""
        return self.estimator(task, distance).add(observed_ns)

    def estimate(self, task: int, distance: int) -> int:
        """What a section at this distance will take: never less than a nearer one."""
        known = self._tasks.get(task)
        best = 0
        if known is not None:
            for estimator in known[: distance + 1]:
                if estimator.average_ns > best:
                    best = estimator.average_ns
        return best or distance + 1

    def forget(self, task: int) -> None:
        """The task is gone."""
        self._tasks.pop(task, None)
