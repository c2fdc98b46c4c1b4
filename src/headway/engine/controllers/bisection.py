"""The largest share that keeps misses at zero, found by bisection and remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.engine.controllers import Controller, controller
from headway.engine.controllers.misses import RECENT, Misses
from headway.engine.shares import LEAST_PERMILLE, WHOLE_PERMILLE, Sharer

if TYPE_CHECKING:
    from headway.engine.jobs import Job

SOON = 5
"""Jobs, from the first miss on, within which misses are to end. Only so long is searched with one
job at a level: every trial that is too much is a miss."""
CONFIRMED = 16
"""So many jobs in time, one after the other, make a level a good one: with fewer, one that misses
every tenth job would be taken for good as often as not."""
RESOLUTION = 16
"""Levels that differ by less than so many thousandths are the same: two of an H200's 132
multiprocessors, the finest step of its green contexts."""
FIRST, MOST = 2048, 65536
"""So many jobs in time after the last miss, more is tried: programs change. Twice as many after a
search that found nothing: the important task is to miss less than one job in a thousand for it."""
CHANCES = 256
"""A level that was confirmed has chances after a miss, after 16 jobs, 32 and so on, up to that."""
KEPT = 256
"""Combinations that are remembered; beyond that the one that was found first is forgotten."""


@dataclass
class _Search:
    """What is known of one task beside one set of others."""

    misses: Misses
    level: int
    resolution: int = RESOLUTION
    """Levels that differ by less are the same."""
    good: int | None = None
    """The largest level at which jobs were in time,"""
    bad: int | None = None
    """and the smallest at which one missed, of those above it."""
    held: int | None = None
    """A level that was confirmed, and then had a miss that may have been chance."""
    back: int = CONFIRMED
    """So many jobs after that the level has another chance,"""
    left: int = 0
    """of which so many are to come."""
    fell: int | None = None
    """The last such level."""
    step: int = 0
    """How far up a trial goes while nothing above is known to be bad; twice as far each time."""
    streak: int = 0
    """Jobs in time at this level."""
    patience: int = FIRST
    """So long a streak is worth a trial of more."""
    tries: bool = False
    """More is tried, one level after the other."""
    found: bool = False
    """Since then something was in time that is more than before."""
    first: int | None = None
    """The number of the job that missed first, of those misses that are to end soon,"""
    began: int | None = None
    """and of one that may have been the first of such, or chance,"""
    decided: int = 0
    """and of the job that the level was last changed for."""
    lag: int = 0
    """Jobs that say nothing after each change, for they had begun before."""
    changed_ns: int | None = None

    def missed(self, job: Job, floor: int) -> None:
        """The level is too much: go to the best that is known, or to half."""
        self._learn_lag(job)
        confirmed = self.streak >= CONFIRMED
        if self.good is not None and self.level > self.good:
            self.bad = self.level
            if self.level == self.held:
                self._failed_again()
            self._go(self.good, job)
            self.left = self.back
            return
        if confirmed and self.held is not None:
            # At half of what the others had as well: so it is not for what they have.
            self.back, self.left, self.streak = CONFIRMED, 0, 0
            return
        if confirmed:
            self.back = min(2 * self.back, FIRST) if self.level == self.fell else CONFIRMED
            self.held = self.fell = self.level
            self.first, self.began = None, job.number
        elif self.first is None or self.streak:
            self.first = job.number if self.began is None else self.began
            self.began = None
        self.good, self.bad, self.tries = None, self.level, False
        self._go(max(floor, self.level // 2), job)
        self.left = self.back

    def passed(self, job: Job, most: int, jobs: int) -> None:
        """One more job in time, of which so many say something of a level."""
        if not self.streak:
            self._learn_lag(job)
        self.streak += 1
        self.left -= 1
        if self.level >= most or self.streak < jobs:
            return
        if self._is_soon(job):
            self._is_good()
            if not self._is_close():
                self._go(self._middle(most), job)
            return
        if self.streak < CONFIRMED:
            return
        self._is_good()
        if self.held is not None and self.held > self.level:
            if self.left <= 0:
                self._go(self.held, job)
        elif self.tries and not self._is_close():
            self._go(self._middle(most), job)
        elif self.tries:
            self.patience = FIRST if self.found else min(2 * self.patience, MOST)
            self.tries = False
        elif self.streak >= self.patience:
            if self._is_close():
                self.bad, self.step = None, 0
            self.tries, self.found = True, False
            self._go(self._middle(most), job)

    def _is_soon(self, job: Job) -> bool:
        """Whether a trial that is too much would still be over by the time that misses are to be:
        jobs that begin before it is taken back miss as well."""
        return self.first is not None and job.number + 1 + 2 * self.lag < self.first + SOON

    def _failed_again(self) -> None:
        """The level that was held is too much again: by and by it was no chance."""
        self.back *= 2
        if self.back > CHANCES:
            self.held, self.back, self.tries, self.found = None, CONFIRMED, True, False

    def _learn_lag(self, job: Job) -> None:
        if self.changed_ns is not None and not self.streak:
            self.lag = max(0, job.number - self.decided - 1)

    def _is_good(self) -> None:
        if self.good is not None and self.level > self.good:
            self.found = True
            self.step = 2 * max(self.step, self.resolution)
        if self.good is None or self.level > self.good:
            self.good = self.level
        if self.held is not None and self.level >= self.held:
            self.held = None
        if self.bad is not None and self.bad <= self.level:  # at the floor
            self.bad, self.step = None, 0

    def _is_close(self) -> bool:
        """Whether nothing between the good and the bad is worth a trial."""
        if self.good is None or self.bad is None:
            return False
        return (self.good + self.bad) // 2 - self.good < self.resolution

    def _middle(self, most: int) -> int:
        if self.bad is not None:
            return (self.level + self.bad) // 2
        return min(most, self.level + max(self.step, self.resolution))

    def _go(self, level: int, job: Job) -> None:
        if level != self.level:
            self.level, self.changed_ns, self.decided = level, job.ended_ns, job.number
        self.streak = 0


@controller("bisection")
class Bisection(Controller):
    """Finds for each task the largest level at which none of its jobs misses, and stays there.

    CudaMon's controller cannot know where that is and saw-tooths around it for ever; "since the
    controller has a global view …, we envision a more optimal algorithm" (§3.4). A miss takes the
    level to the best one known, or to half. Within the few jobs by which misses are to end, each
    job in time takes it to the middle between the best one known and the least that was too much.
    From then on it stays where jobs are in time, and tries more only after many of them. What was
    found is remembered for the task and those who were beside it, so when the same tasks meet again
    nothing is searched.
    """

    def __init__(self, floor: int = LEAST_PERMILLE, between_ns: int = 0) -> None:
        """Jobs that begin within `between_ns` after a change do not count: the actuator may not be
        done with it."""
        super().__init__()
        if not 0 < floor <= WHOLE_PERMILLE:
            raise ValueError(f"floor: expected more than 0 and at most 1000, found {floor}")
        self._floor = floor
        self._between_ns = between_ns
        self._known: dict[tuple[str, frozenset[str]], _Search] = {}

    def level(self, task: Sharer) -> int:
        search = self._known.get((task.name, _names(self.below(task))))
        return WHOLE_PERMILLE if search is None else search.level

    def job_ended(self, job: Job, goal: float) -> None:
        others = self.below(job.task)
        if not others:
            return
        # Lower than what the others have at least: who may not be given so little is gated in time.
        floor = self._floor
        most = max(other.shares.most for other in others)
        search = self._search(job.task.name, _names(others), most)
        search.resolution = max(RESOLUTION, self.quantum)
        changed_ns = search.changed_ns
        if changed_ns is not None and job.begun_ns < changed_ns + self._between_ns:
            return
        if search.misses.count(job, goal):
            search.missed(job, floor)
        else:
            binary = job.deadline_ns is not None or job.slowdown is None
            search.passed(job, most, 1 if binary else RECENT)

    def _search(self, name: str, others: frozenset[str], most: int) -> _Search:
        search = self._known.get((name, others))
        if search is None:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            search = self._known[name, others] = _Search(Misses(), most)
        return search


def _names(tasks: list[Sharer]) -> frozenset[str]:
    return frozenset(task.name for task in tasks)
