"""Others get as much as an important task can stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.controllers import Controller, controller

if TYPE_CHECKING:
    from headway.engine.jobs import Job

STEP = 0.02
"""Given back with each job that was in time: all of it after some fifty."""
LEAST = 1 / 8
"""Less than this of a job's time is of use to nobody: then it is none."""


@controller("slowdown")
class Slowdown(Controller):
    """Halves what others get with each job that missed its goal, and gives it back slowly.

    The goal is the task's deadline, or, without one, how much slower than alone its jobs may be; a
    job says of itself whether it missed. Begins with all: whoever comes first meets no fewer others
    than without a manager, and the first misses take most of that away.
    """

    def __init__(self) -> None:
        self._share = 1.0

    @property
    def level(self) -> float:
        return self._share if self._share >= LEAST else 0.0

    def job_ended(self, job: Job) -> None:
        if job.missed:
            self._share /= 2
        else:
            self._share = min(1.0, self._share + STEP)
