"""What a run came to, in the form that CudaMon's figures ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.engine.events import Observer
from headway.engine.shares import Sharer
from headway.sim.cudamon.workloads import Scenario
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario

Point = tuple[float, float]
S, MS = 1e9, 1e6


@dataclass(frozen=True, slots=True)
class Series:
    """One task of a run."""

    responses: list[Point]
    """When a job ended, in seconds, and how long it took, in milliseconds."""
    missed: list[bool]
    """Of the same jobs."""
    shares: list[Point] = field(default_factory=list)
    """When the task got another share, in seconds, and which, in percent."""

    @property
    def typical_ms(self) -> float:
        """The median response."""
        values = sorted(value for _, value in self.responses)
        return values[len(values) // 2] if values else 0.0

    @property
    def misses(self) -> int:
        return sum(self.missed)

    def periods_of_misses(self) -> int:
        """How many jobs there are from the first miss to the last, both included."""
        places = [place for place, missed in enumerate(self.missed) if missed]
        return places[-1] - places[0] + 1 if places else 0


@dataclass(frozen=True, slots=True)
class Measured:
    """One run."""

    seconds: float
    tasks: Mapping[str, Series]

    def rate(self, task: str) -> float:
        """Jobs per second."""
        return len(self.tasks[task].responses) / self.seconds if self.seconds else 0.0


class _Shares(Observer):
    def __init__(self) -> None:
        self.told: dict[str, list[Point]] = {}

    def share_set(self, task: Sharer, permille: int, now_ns: int) -> None:
        self.told.setdefault(task.name, []).append((now_ns / S, permille / 10))


def run(scenario: Scenario, name: str) -> Measured:
    """Simulate a scenario."""
    shares = _Shares()
    outcome = simulate(read_scenario(scenario, name), observers=(shares,))
    tasks = {
        task: Series(
            [(job.ended_ns / S, job.response_ns / MS) for job in jobs],
            [job.missed for job in jobs],
            shares.told.get(task, []),
        )
        for task, jobs in outcome.jobs.items()
    }
    return Measured(outcome.statistics.end_ns / S, tasks)
