"""Which jobs count as misses: a deadline's, or those slowed down too much by others."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.engine.jobs import Job

RECENT = 8
"""What others cost is seen in the mean of so many jobs: single ones differ by chance."""


class Misses:
    """Says of each job of one task whether the task misses its goal.

    The goal is the task's deadline, which each job keeps or not, or, without one, how much slower
    than alone its jobs are in the mean: one that takes twice as long is enough, or several that
    take a little longer.
    """

    def __init__(self) -> None:
        self._slow: deque[float] = deque(maxlen=RECENT)

    def count(self, job: Job, goal: float) -> bool:
        """Whether this job shows that others have too much."""
        if job.deadline_ns is not None or job.slowdown is None:
            return job.missed
        self._slow.append(min(job.slowdown, 1.0))
        if sum(self._slow) / RECENT <= goal:
            return False
        self._slow.clear()
        return True
