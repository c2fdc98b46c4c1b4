"""The largest share that keeps misses at zero, found by bisection and remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.engine.controllers import Controller, controller
from headway.engine.controllers.misses import Misses
from headway.engine.shares import LEAST_PERMILLE, WHOLE_PERMILLE, Sharer

if TYPE_CHECKING:
    from headway.engine.jobs import Job

CONFIRMED = 16
"""So many jobs in time, one after the other, make a level a good one: with fewer, one that misses
every tenth job would be taken for good as often as not."""
RESOLUTION = 16
"""Levels that differ by less than so many thousandths are the same: two of an H200's 132
multiprocessors, the finest step of its green contexts."""
FIRST, MOST = 256, 8192
"""So many jobs in time after the search, more is tried once: programs change. Twice as many after
each trial that was a miss: people look at the worst job in a hundred."""
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
    """The largest level that was confirmed."""
    bad: int | None = None
    """The smallest at which a job missed, of those above the good one."""
    step: int = 0
    """How far up a trial goes while nothing above is known to be bad; twice as far each time."""
    streak: int = 0
    """Jobs in time at this level."""
    patience: int = FIRST
    changed_ns: int | None = None

    def missed(self, floor: int, now_ns: int) -> None:
        """The level is too much: go to the best that is known, or to half."""
        if self.good is not None and self.level > self.good:
            self.bad = self.level
            if self._is_found():
                self.patience = min(2 * self.patience, MOST)
            self._go(self.good, now_ns)
            return
        self.good = None  # or it is not good any more
        self.bad = self.level
        self._go(max(floor, self.level // 2), now_ns)

    def passed(self, most: int, now_ns: int) -> None:
        """One more job in time."""
        self.streak += 1
        if self.streak < CONFIRMED or self.level >= most:
            return
        if self.good is None or self.level > self.good:
            self._is_good()
        if self.bad is None:
            self._go(min(most, self.level + max(self.step, self.resolution)), now_ns)
        elif not self._is_found():
            self._go((self.level + self.bad) // 2, now_ns)
        elif self.streak >= self.patience:
            self.bad, self.step = None, 0
            self._go(min(most, self.level + max(self.step, self.resolution)), now_ns)

    def _is_good(self) -> None:
        if self.good is not None and self.bad is None:
            self.step, self.patience = 2 * max(self.step, self.resolution), FIRST
        self.good = self.level
        if self.bad is not None and self.bad <= self.level:  # at the floor
            self.bad, self.step = None, 0

    def _is_found(self) -> bool:
        """Whether nothing between the good and the bad is worth a trial."""
        if self.good is None or self.bad is None:
            return False
        return (self.good + self.bad) // 2 - self.good < self.resolution

    def _go(self, level: int, now_ns: int) -> None:
        if level != self.level:
            self.level, self.changed_ns = level, now_ns
        self.streak = 0


@controller("bisection")
class Bisection(Controller):
    """Finds for each task the largest level at which none of its jobs misses, and stays there.

    CudaMon's controller cannot know where that is and saw-tooths around it for ever; "since the
    controller has a global view …, we envision a more optimal algorithm" (§3.4). A miss takes the
    level to the best one known, or to half; jobs in time take it to the middle between the best one
    known and the least that was too much, until these are next to each other. What was found is
    remembered for the task and those who were beside it, so when the same tasks meet again nothing
    is searched.
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
        floor = max(self._floor, min(other.shares.least for other in others))
        most = max(other.shares.most for other in others)
        search = self._search(job.task.name, _names(others), most)
        search.resolution = max(RESOLUTION, self.quantum)
        changed_ns = search.changed_ns
        if changed_ns is not None and job.begun_ns < changed_ns + self._between_ns:
            return
        if search.misses.count(job, goal):
            search.missed(floor, job.ended_ns)
        else:
            search.passed(most, job.ended_ns)

    def _search(self, name: str, others: frozenset[str], most: int) -> _Search:
        search = self._known.get((name, others))
        if search is None:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            search = self._known[name, others] = _Search(Misses(), most)
        return search


def _names(tasks: list[Sharer]) -> frozenset[str]:
    return frozenset(task.name for task in tasks)
