"""Others get as much as an important task can stand."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headway.engine.controllers import Controller, controller

if TYPE_CHECKING:
    from headway.engine.jobs import Job

STEP = 0.02
"""Given back with each job that was in time: all of it after some fifty."""
LEAST = 1 / 8
"""Less than this of a job's time is of use to nobody: then it is none."""
FIRST, MOST = 32, 8192
"""So many jobs have to be in time after a miss before anything is given back; twice as many after
each further one: people look at the worst job in a hundred."""


RECENT = 8
"""What others cost is seen in the mean of so many jobs: single ones differ by chance."""


@controller("slowdown")
class Slowdown(Controller):
    """Halves what others get when jobs miss their goal, and gives it back slowly.

    The goal is the task's deadline, which each job keeps or not, or, without one, how much slower
    than alone its jobs are in the mean. Begins with all: whoever comes first meets no fewer others
    than without a manager, and the first misses take most of that away. After each miss it waits
    for longer before it tries again.
    """

    def __init__(self) -> None:
        self._slow: deque[float] = deque(maxlen=RECENT)
        self._share = 1.0
        self._backoff = FIRST
        self._wait = 0
        """Jobs that have to be in time before anything is given back."""

    @property
    def level(self) -> float:
        return self._share

    def job_ended(self, job: Job, goal: float) -> None:
        if self._has_missed(job, goal):
            self._slow.clear()
            self._share = self._share / 2 if self._share >= 2 * LEAST else 0.0
            self._wait = self._backoff
            self._backoff = min(2 * self._backoff, MOST)
        elif self._wait:
            self._wait -= 1
        elif self._share < 1:
            self._share = min(1.0, max(LEAST, self._share + STEP))
        else:  # a while ago
            self._backoff = max(FIRST, self._backoff - 1)

    def _has_missed(self, job: Job, goal: float) -> bool:
        """One job that takes twice as long is enough, or several that take a little longer."""
        if job.deadline_ns is not None:
            return job.missed
        self._slow.append(min(job.slowdown or 0.0, 1.0))
        return sum(self._slow) / RECENT > goal
