"""A run, or a stretch of it, in numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.trace.analysis.facts import DEADLINE, LEASED, MISSED, ReserveFacts
from headway.trace.analysis.history import History
from headway.trace.analysis.occupancy import Occupancy
from headway.trace.analysis.waits import Waits
from headway.trace.statistics import nearest_rank


def percentile(ordered: Sequence[int], fraction: float) -> int:
    """The nearest-rank percentile of sorted values; 0 of none."""
    return ordered[nearest_rank(fraction, len(ordered))] if ordered else 0


@dataclass(slots=True)
class TaskSummary:
    """What one task did and waited for."""

    name: str
    frames: int = 0
    gpu_ns: int = 0
    deadlines: int = 0
    missed: int = 0
    responses_ns: list[int] = field(default_factory=list)
    """Of the groups that completed in this stretch, from release to completion, sorted."""
    waited_ns: Counter[int] = field(default_factory=Counter)
    """By cause: the number of a task, or `BUDGET`, `HOLDOFF`, `IDLE`."""

    @property
    def groups(self) -> int:
        return len(self.responses_ns)

    @property
    def wait_ns(self) -> int:
        return self.waited_ns.total()


@dataclass(frozen=True, slots=True)
class ReserveSummary:
    """How a reserve was used."""

    name: str
    charged_ns: int
    entitled_ns: int
    """Capacity for the time it existed; what it could have used."""
    overruns: int
    worst_debt_ns: int

    @property
    def used(self) -> float:
        return self.charged_ns / self.entitled_ns if self.entitled_ns else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything, over one stretch of time; tasks by number."""

    from_ns: int
    to_ns: int
    busy_ns: int
    tasks: list[TaskSummary]
    reserves: list[ReserveSummary]

    @property
    def duration_ns(self) -> int:
        return self.to_ns - self.from_ns

    def fps(self, task: TaskSummary) -> float:
        return task.frames * 1e9 / self.duration_ns if self.duration_ns else 0.0


def summarise(
    history: History,
    from_ns: int | None = None,
    to_ns: int | None = None,
    *,
    occupancy: Occupancy | None = None,
) -> Summary:
    """The numbers of a run between two instants; by default, of all of it.

    An instant belongs to the stretch that it ends: a group that completes at `to_ns` counts.
    """
    from_ns = history.begin_ns if from_ns is None else from_ns
    to_ns = history.end_ns if to_ns is None else to_ns
    # At the very beginning there is no stretch before, so what happens there counts here.
    after_ns = from_ns - 1 if from_ns <= history.begin_ns else from_ns
    occupancy = occupancy or Occupancy(history)
    tasks = [TaskSummary(facts.name) for facts in history.tasks]
    for task, facts in zip(tasks, history.tasks, strict=True):
        times = facts.frames_ns
        task.frames = bisect_right(times, to_ns) - bisect_right(times, after_ns)
    _add_groups(history, tasks, after_ns, from_ns, to_ns)
    for number, cause, start_ns, end_ns in Waits(history, occupancy).within(from_ns, to_ns):
        tasks[number].waited_ns[cause] += end_ns - start_ns
    reserves = [_reserve(facts, after_ns, from_ns, to_ns) for facts in history.reserves.values()]
    return Summary(from_ns, to_ns, occupancy.busy_ns(from_ns, to_ns), tasks, reserves)


def _add_groups(
    history: History, tasks: list[TaskSummary], after_ns: int, from_ns: int, to_ns: int
) -> None:
    groups = history.groups
    for number, flags, released_ns, started_ns, finished_ns in zip(
        groups.tasks,
        groups.flags,
        groups.released_ns,
        groups.started_ns,
        groups.finished_ns,
        strict=True,
    ):
        task = tasks[number]
        ran_ns = min(finished_ns, to_ns) - max(started_ns, from_ns)
        if ran_ns > 0:
            task.gpu_ns += ran_ns
        if after_ns < finished_ns <= to_ns and not flags & LEASED:
            task.responses_ns.append(finished_ns - released_ns)
            task.deadlines += bool(flags & DEADLINE)
            task.missed += bool(flags & MISSED)
    for task, facts in zip(tasks, history.tasks, strict=True):
        task.responses_ns.sort()
        if to_ns >= history.end_ns:
            task.deadlines += facts.overdue
            task.missed += facts.overdue


def _reserve(facts: ReserveFacts, after_ns: int, from_ns: int, to_ns: int) -> ReserveSummary:
    first = bisect_right(facts.charges_ns, after_ns)
    last = bisect_right(facts.charges_ns, to_ns)
    charged, after = facts.charged_ns[first:last], facts.after_ns[first:last]
    lasted_ns = max(0, to_ns - max(from_ns, facts.since_ns))
    return ReserveSummary(
        facts.name,
        sum(charged),
        facts.capacity_ns * lasted_ns // facts.period_ns,
        sum(left < 0 < left + ran for left, ran in zip(after, charged, strict=True)),
        -min(after, default=0) if min(after, default=0) < 0 else 0,
    )
