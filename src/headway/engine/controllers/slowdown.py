"""Others get as much as an important task can stand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.engine.controllers import Controller, controller
from headway.engine.controllers.misses import Misses
from headway.engine.shares import WHOLE_PERMILLE, Sharer

if TYPE_CHECKING:
    from headway.engine.jobs import Job

STEP = 20
"""Given back with each job that was in time, in thousandths: all of it after some fifty."""
LEAST = 125
"""Less than this of a job's time is of use to nobody: then it is none."""
FIRST, MOST = 32, 8192
"""So many jobs have to be in time after a miss before anything is given back; twice as many after
each further one: people look at the worst job in a hundred."""


@dataclass
class _Watched:
    """What is known of a task whose jobs are watched."""

    misses: Misses
    level: int = WHOLE_PERMILLE
    backoff: int = FIRST
    wait: int = field(default=0)
    """Jobs that have to be in time before anything is given back."""


@controller("slowdown")
class Slowdown(Controller):
    """Halves what others get when jobs miss their goal, and gives it back slowly.

    Begins with all: whoever comes first meets no fewer others than without a manager, and the
    first misses take most of that away. After each miss it waits for longer before it tries again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watched: dict[str, _Watched] = {}

    def leaves(self, task: Sharer) -> None:
        """The next task of this name may be another program."""
        super().leaves(task)
        self._watched.pop(task.name, None)

    def level(self, task: Sharer) -> int:
        watched = self._watched.get(task.name)
        return WHOLE_PERMILLE if watched is None else watched.level

    def job_ended(self, job: Job, goal: float) -> None:
        name = job.task.name
        watched = self._watched.setdefault(name, _Watched(Misses()))
        if watched.misses.count(job, goal):
            watched.level = watched.level // 2 if watched.level >= 2 * LEAST else 0
            watched.wait = watched.backoff
            watched.backoff = min(2 * watched.backoff, MOST)
        elif watched.wait:
            watched.wait -= 1
        elif watched.level < WHOLE_PERMILLE:
            watched.level = min(WHOLE_PERMILLE, max(LEAST, watched.level + STEP))
        else:  # a while ago
            watched.backoff = max(FIRST, watched.backoff - 1)
