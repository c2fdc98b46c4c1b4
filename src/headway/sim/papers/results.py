"""What the runs of one figure came to, in the form that claims and plots ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway.engine.events import Observer
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario
from headway.trace.statistics import Statistics, TaskStatistics

if TYPE_CHECKING:
    from headway.engine.inheritance import Request
    from headway.engine.model import Group, Task
    from headway.engine.reserves import Reserve

Scenario = dict[str, Any]
"""A scenario as `tomllib` would read it from a file."""
MS = 1_000_000
WINDOW_NS = 500 * MS
"""Over which frame-rates are averaged when they are shown over time."""
STORY_NS = 100 * MS
"""A scenario that is no longer than this is a worked example, of which every event is kept."""


@dataclass(frozen=True, slots=True)
class Span:
    """One group of a worked example, in milliseconds."""

    task: str
    index: int
    submitted_ms: float
    started_ms: float
    finished_ms: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """Budget that went from one reserve to another (PIX/RIX §5)."""

    at_ms: float
    giver: str
    taker: str
    amount_ms: float


@dataclass(slots=True)
class Story:
    """All that happened in a worked example; it is short by nature."""

    spans: list[Span] = field(default_factory=list)
    shown_ms: dict[str, float] = field(default_factory=dict)
    """When each task's (only) frame reached the screen."""
    asked: list[str] = field(default_factory=list)
    """Clients in the order in which they sent requests."""
    transfers: list[Transfer] = field(default_factory=list)

    @property
    def order(self) -> list[str]:
        """The groups in the order in which they executed, as "mp0"."""
        return [f"{span.task}{span.index}" for span in self.spans]

    def of(self, task: str) -> list[Span]:
        """One task's groups."""
        return [span for span in self.spans if span.task == task]

    def idle_ms(self, task: str) -> float:
        """How long the GPU stood idle between the first and the last of the task's groups."""
        own = self.of(task)
        begin, end = own[0].started_ms, own[-1].finished_ms
        busy = (s.finished_ms - s.started_ms for s in self.spans if begin <= s.started_ms < end)
        return round(end - begin - sum(busy), 6)

    def moved_ms(self, giver: str, taker: str) -> float:
        """How much budget went from one reserve to the other in all."""
        moves = (t.amount_ms for t in self.transfers if (t.giver, t.taker) == (giver, taker))
        return round(sum(moves), 6)


class _Teller(Observer):
    def __init__(self) -> None:
        self.story = Story()

    def completed(self, group: Group, now_ns: int) -> None:
        times = (group.submitted_ns / MS, group.started_ns / MS, now_ns / MS)
        self.story.spans.append(Span(group.task.name, group.index, *times))

    def shown(self, task: Task, now_ns: int) -> None:
        self.story.shown_ms[task.name] = now_ns / MS

    def entered(self, request: Request, now_ns: int) -> None:
        self.story.asked.append(request.client.name)

    def moved(self, giver: Reserve, taker: Reserve, amount_ns: int, now_ns: int) -> None:
        transfer = Transfer(now_ns / MS, giver.name, taker.name, amount_ns / MS)
        self.story.transfers.append(transfer)


@dataclass(frozen=True, slots=True)
class TaskNumbers:
    """One task in one run."""

    fps: float
    frames: int
    groups: int
    gpu_share: float
    p50_ms: float
    """Response time of a group: from submission to completion."""
    p99_ms: float
    max_ms: float
    rates: list[tuple[float, float]]
    """(seconds, frames per second) in windows of half a second."""


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation with one seed."""

    seconds: float
    tasks: dict[str, TaskNumbers]
    story: Story | None
    """Only for worked examples."""


class VariantResult:
    """A variant of a figure: the same scenario run with one or more seeds."""

    def __init__(self, name: str, runs: Iterable[Run]) -> None:
        self.name = name
        self.runs = list(runs)

    @property
    def tasks(self) -> list[str]:
        return list(self.runs[0].tasks)

    @property
    def story(self) -> Story:
        """The events of a worked example."""
        story = self.runs[0].story
        if story is None:
            raise ValueError(f"{self.name} is no worked example: it has no list of events")
        return story

    def _mean(self, task: str, what: str) -> float:
        values: list[float] = [getattr(run.tasks[task], what) for run in self.runs]
        return sum(values) / len(values)

    def fps(self, task: str) -> float:
        """Frames per second, the mean over the seeds."""
        return self._mean(task, "fps")

    def share(self, task: str) -> float:
        """The fraction of the GPU's time."""
        return self._mean(task, "gpu_share")

    def groups_per_s(self, task: str) -> float:
        return sum(run.tasks[task].groups / run.seconds for run in self.runs) / len(self.runs)

    def rates(self, task: str) -> list[tuple[float, float]]:
        """The frame-rate over time, with the first seed."""
        return self.runs[0].tasks[task].rates

    def unsteadiness(self, task: str) -> float:
        """Standard deviation of the frame-rate over time as a fraction of its mean."""
        values = []
        for run in self.runs:
            rates = [rate for _, rate in run.tasks[task].rates]
            mean = sum(rates) / len(rates)
            spread = (sum((rate - mean) ** 2 for rate in rates) / len(rates)) ** 0.5
            values.append(spread / mean if mean else 0.0)
        return sum(values) / len(values)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            task: {
                "fps": self.fps(task),
                "gpu_share": self.share(task),
                "groups_per_s": self.groups_per_s(task),
                "response_ms": {
                    "p50": self._mean(task, "p50_ms"),
                    "p99": self._mean(task, "p99_ms"),
                    "max": max(run.tasks[task].max_ms for run in self.runs),
                },
                "rates": [{"s": at, "fps": rate} for at, rate in self.rates(task)],
            }
            for task in self.tasks
        }


Results = Mapping[str, VariantResult]


def run_once(scenario: Scenario, name: str, seed: int) -> Run:
    """Simulate one variant with one seed."""
    plan = read_scenario(scenario, name, seed=seed)
    short = plan.duration_ns is None or plan.duration_ns <= STORY_NS
    teller = _Teller() if short else None
    outcome = simulate(plan, observers=() if teller is None else (teller,))
    statistics = outcome.statistics
    return Run(
        statistics.end_ns / 1e9,
        {task.name: _numbers(task, entry, statistics) for task, entry in statistics.tasks.items()},
        None if teller is None else teller.story,
    )


def _numbers(task: Task, entry: TaskStatistics, statistics: Statistics) -> TaskNumbers:
    end_ns = statistics.end_ns
    p50, p99 = entry.responses.at(0.50, 0.99)
    return TaskNumbers(
        fps=entry.frames * 1e9 / end_ns if end_ns else 0.0,
        frames=entry.frames,
        groups=entry.groups,
        gpu_share=task.gpu_ns / end_ns if end_ns else 0.0,
        p50_ms=p50 / MS,
        p99_ms=p99 / MS,
        max_ms=entry.responses.max / MS,
        rates=_windows(entry.frame_series.rates(end_ns)) if entry.frames else [],
    )


def _windows(rates: list[tuple[int, float]]) -> list[tuple[float, float]]:
    """Averages over windows; a last, shorter one is left out unless it is the only one."""
    if len(rates) < 2:
        return [(at_ns / 1e9, rate) for at_ns, rate in rates]
    per = max(1, WINDOW_NS // (rates[1][0] - rates[0][0]))
    count = max(1, len(rates) // per)
    windows = [rates[i * per : (i + 1) * per] for i in range(count)]
    return [(w[0][0] / 1e9, sum(rate for _, rate in w) / len(w)) for w in windows]
