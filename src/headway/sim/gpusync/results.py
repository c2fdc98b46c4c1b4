"""What a GPUSync simulation came to: per task, its jobs, its devices and its predictions."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.engine.locks.topology import DISTANCES


class JobRecord(NamedTuple):
    """One job that ended."""

    release_ns: int
    deadline_ns: int
    """As it was at the release; early releasing may have postponed it since."""
    finish_ns: int

    @property
    def response_ns(self) -> int:
        return self.finish_ns - self.release_ns

    @property
    def missed(self) -> bool:
        return self.finish_ns > self.deadline_ns


def _numbers() -> array[int]:
    return array("q")


def _fractions() -> list[array[float]]:
    return [array("d") for _ in range(DISTANCES)]


@dataclass(slots=True)
class TaskResult:
    """One task of a run."""

    name: str
    period_ns: int
    relative_deadline_ns: int
    releases: array[int] = field(default_factory=_numbers)
    finishes: array[int] = field(default_factory=_numbers)
    unfinished: bool = False
    """Whether a job was under way when the simulation ended."""
    aborted: int = 0
    """Jobs that a signal ended."""
    overruns: int = 0
    """How often a budget was exhausted."""
    distances: list[int] = field(default_factory=lambda: [0] * DISTANCES)
    """Tokens that were granted at each distance from the task's home."""
    unit_held_ns: array[int] = field(default_factory=_numbers)
    """For each job: how long the task had held execution engines in all when the job ended."""
    errors: list[array[float]] = field(default_factory=_fractions)
    """By distance: how far each prediction was off, as a fraction of what the section took."""
    worst_wait_ns: int = 0
    """The longest that a request waited for a token."""

    @property
    def jobs(self) -> Iterator[JobRecord]:
        """Every job that ended, in order."""
        for release, finish in zip(self.releases, self.finishes, strict=True):
            yield JobRecord(release, release + self.relative_deadline_ns, finish)

    def __len__(self) -> int:
        return len(self.releases)

    @property
    def missed(self) -> int:
        """How many jobs ended after their deadline."""
        late = self.relative_deadline_ns
        return sum(f - r > late for r, f in zip(self.releases, self.finishes, strict=True))

    def responses(self) -> list[int]:
        """Response times, sorted."""
        return sorted(f - r for r, f in zip(self.releases, self.finishes, strict=True))

    @property
    def worst_ns(self) -> int:
        """The longest response time."""
        return max((f - r for r, f in zip(self.releases, self.finishes, strict=True)), default=0)

    def grows(self) -> bool:
        """Whether response times keep growing, a sign of unbounded tardiness: over the last half of
        the run, the mean of each fifth is above that of the one before, by a tenth in all, and
        above the deadline."""
        values = [f - r for r, f in zip(self.releases, self.finishes, strict=True)]
        half = values[len(values) // 2 :]
        if len(half) < 25:
            return False
        size = len(half) // 5
        means = [sum(half[i * size : (i + 1) * size]) / size for i in range(5)]
        rises = all(a < b for a, b in itertools.pairwise(means))
        return rises and means[-1] > 1.1 * means[0] and means[-1] > self.relative_deadline_ns


@dataclass(slots=True)
class GpuSyncResult:
    """A run."""

    duration_ns: int
    tasks: dict[str, TaskResult]
    cpu_busy_ns: int = 0
    events: int = 0
    complete: bool = True
    """Whether nobody stopped the run."""

    @property
    def missed(self) -> int:
        return sum(task.missed for task in self.tasks.values())

    @property
    def unschedulable(self) -> list[str]:
        """The tasks whose response times keep growing."""
        return [name for name, task in self.tasks.items() if task.grows()]
