"""Streaming statistics: what a run came to, in memory that does not grow with it.

`Statistics` is an observer like any other, so the simulator and the live daemon fill the same
tables. Percentiles are exact up to `EXACT` samples; beyond that they come from a histogram whose
buckets are 1/128 of their value wide. Rates over time keep at most `BINS` bins: when they are full
the bins are merged in pairs and become twice as long.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headway.engine.events import Observer

if TYPE_CHECKING:
    from headway.engine.model import Group, Task
    from headway.engine.reserves import Reserve

EXACT = 4096
BINS = 512
_UPPER_HALF = 1 if sys.byteorder == "little" else 0


def _buckets(values: list[int]) -> list[int]:
    """Bucket numbers of non-negative values, one after the other, at the speed of C.

    A bucket is the upper half of the value as a 32-bit float: 8 bits of exponent, 7 of mantissa.
    """
    return memoryview(array("f", values).tobytes()).cast("H")[_UPPER_HALF::2].tolist()


def _bucket_top(bucket: int) -> int:
    """The largest value that falls into a bucket."""
    (top,) = struct.unpack("f", struct.pack("I", (bucket << 16) | 0xFFFF))
    return int(top)


class Quantiles:
    """Percentiles of a stream of whole numbers."""

    def __init__(self) -> None:
        self.pending: list[int] = []
        """Samples not yet counted; callers may append here and call `fold` now and then."""
        self._buckets: Counter[int] = Counter()
        self._count = 0
        self._total = 0
        self._max = 0

    def fold(self) -> None:
        """Count the pending samples once there are more than are kept exactly."""
        if len(self.pending) > EXACT:
            self.compact()

    def compact(self) -> None:
        """Count the pending samples now: percentiles are as exact as buckets are from here on."""
        pending = self.pending
        if not pending:
            return
        self._buckets.update(_buckets(pending))
        self._count += len(pending)
        self._total += sum(pending)
        self._max = max(self._max, max(pending))
        pending.clear()

    def merge(self, other: Quantiles) -> None:
        """Count the samples of another stream, too."""
        self._buckets.update(other._buckets)
        self._count += other._count
        self._total += other._total
        self._max = max(self._max, other._max)
        self.pending.extend(other.pending)
        self.fold()

    @property
    def count(self) -> int:
        return self._count + len(self.pending)

    @property
    def total(self) -> int:
        return self._total + sum(self.pending)

    @property
    def max(self) -> int:
        return max(self._max, max(self.pending, default=0))

    def at(self, *fractions: float) -> list[int]:
        """The values below which these fractions of the samples lie (nearest rank)."""
        if not self._buckets:
            ordered = sorted(self.pending)
            return [ordered[nearest_rank(f, len(ordered))] if ordered else 0 for f in fractions]
        buckets = self._buckets + Counter(_buckets(self.pending))
        result = []
        for fraction in fractions:
            wanted = nearest_rank(fraction, self.count)
            for bucket in sorted(buckets):
                wanted -= buckets[bucket]
                if wanted < 0:
                    result.append(min(_bucket_top(bucket), self.max))
                    break
        return result


def nearest_rank(fraction: float, count: int) -> int:
    """Index of the nearest-rank percentile: the smallest value with `fraction` at or below it."""
    return max(0, -int(-fraction * count // 1) - 1)


class Series:
    """Counts per stretch of time."""

    def __init__(self, bin_ns: int = 100_000_000) -> None:
        self.bin_ns = bin_ns
        self.counts: list[int] = []

    def add(self, now_ns: int) -> None:
        place = now_ns // self.bin_ns
        while place >= BINS:
            counts = self.counts
            self.counts = [sum(counts[i : i + 2]) for i in range(0, len(counts), 2)]
            self.bin_ns *= 2
            place = now_ns // self.bin_ns
        if place >= len(self.counts):
            self.counts.extend([0] * (place + 1 - len(self.counts)))
        self.counts[place] += 1

    def rates(self, until_ns: int) -> list[tuple[int, float]]:
        """(middle of the bin in ns, per second), up to `until_ns`; a last part-bin is left out
        unless it is the only one."""
        whole = max(1, until_ns // self.bin_ns)
        counts = [*self.counts, *[0] * whole][:whole]
        width_ns = min(self.bin_ns, until_ns) or self.bin_ns
        return [
            (i * self.bin_ns + self.bin_ns // 2, n * 1e9 / width_ns) for i, n in enumerate(counts)
        ]


class TaskStatistics:
    """What one task did."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.responses = Quantiles()
        self.append_response = self.responses.pending.append
        self.frames = 0
        self.frame_series = Series()
        self.without_deadline = 0
        self.missed = 0
        self.overdue = 0
        """Jobs that were not done when the run ended, though their deadlines had passed; they are
        missed, too."""

    @property
    def groups(self) -> int:
        return self.responses.count

    @property
    def deadlines(self) -> int:
        """Jobs that had one."""
        return self.groups - self.without_deadline + self.overdue

    @property
    def gpu_ns(self) -> int:
        return self.task.gpu_ns


class ReserveStatistics:
    """How a reserve was used."""

    def __init__(self, reserve: Reserve, now_ns: int) -> None:
        self.reserve = reserve
        self.since_ns = now_ns
        self.charged_ns = 0
        self.overruns = 0
        self.worst_ns = 0
        """The deepest debt, as a negative budget."""


class Statistics(Observer):
    """Tables of a whole run, filled as it goes."""

    def __init__(self) -> None:
        self.tasks: dict[Task, TaskStatistics] = {}
        self.reserves: dict[Reserve, ReserveStatistics] = {}
        self.switches = 0
        self.gpus = 1
        self.end_ns = 0
        self.complete = False
        self._until_fold = EXACT

    def task_added(self, task: Task, now_ns: int) -> None:
        self.tasks[task] = TaskStatistics(task)

    def reserve_set(self, reserve: Reserve, now_ns: int) -> None:
        if reserve not in self.reserves:
            self.reserves[reserve] = ReserveStatistics(reserve, now_ns)

    def charged(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None:
        if group.task.reserve is not None:
            self._charge(self.reserves[group.task.reserve], amount_ns)

    def overran(self, task: Task, amount_ns: int, now_ns: int) -> None:
        if task.reserve is not None:
            self._charge(self.reserves[task.reserve], amount_ns)

    def completed(self, group: Group, now_ns: int) -> None:
        task = group.task
        entry = self.tasks[task]
        released_ns = group.released_ns
        entry.append_response(now_ns - (group.submitted_ns if released_ns is None else released_ns))
        if group.switched:
            self.switches += 1
        deadline_ns = group.deadline_ns
        if deadline_ns is None:
            entry.without_deadline += 1
        elif now_ns > deadline_ns:
            entry.missed += 1
        if group.frame:
            entry.frames += 1
            entry.frame_series.add(now_ns)
        if task.reserve is not None:
            executed_ns = now_ns - group.started_ns + group.overhead_ns
            self._charge(self.reserves[task.reserve], executed_ns - group.charged_ns)
        self._until_fold -= 1
        if not self._until_fold:
            self._fold()

    def _charge(self, entry: ReserveStatistics, executed_ns: int) -> None:
        entry.charged_ns += executed_ns
        budget_ns = entry.reserve.budget_ns
        if budget_ns < 0:
            if budget_ns + executed_ns > 0:
                entry.overruns += 1
            entry.worst_ns = min(entry.worst_ns, budget_ns)

    def _fold(self) -> None:
        self._until_fold = EXACT
        for entry in self.tasks.values():
            entry.responses.fold()

    def shown(self, task: Task, now_ns: int) -> None:
        entry = self.tasks[task]
        entry.frames += 1
        entry.frame_series.add(now_ns)

    def overdue(self, task: Task, jobs: int, now_ns: int) -> None:
        entry = self.tasks[task]
        entry.overdue += jobs
        entry.missed += jobs

    def ended(self, complete: bool, now_ns: int) -> None:
        self.complete = complete
        self.end_ns = now_ns

    def by_name(self) -> dict[str, TaskStatistics]:
        """The same tables by task name."""
        return {entry.task.name: entry for entry in self.tasks.values()}

    def fps(self, name: str) -> float:
        """Frames per second of one task over the whole run."""
        return self.by_name()[name].frames * 1e9 / self.end_ns if self.end_ns else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The part of the JSON result that is about the run as a whole."""
        end_ns = self.end_ns
        busy_ns = sum(entry.gpu_ns for entry in self.tasks.values())
        return {
            "tasks": {e.task.name: task_as_dict(e, end_ns) for e in self.tasks.values()},
            "reserves": reserves_as_dict(self.reserves.values(), end_ns),
            "device": {
                "end_ns": end_ns,
                "busy_ns": busy_ns,
                "idle_ns": max(0, end_ns * self.gpus - busy_ns),
                "switches": self.switches,
            },
            "complete": self.complete,
        }


def task_as_dict(entry: TaskStatistics, end_ns: int) -> dict[str, Any]:
    """One task's part of the JSON result."""
    p50, p99 = entry.responses.at(0.50, 0.99)
    return {
        "groups": entry.groups,
        "response_ns": {"p50": p50, "p99": p99, "max": entry.responses.max},
        "gpu_ns": entry.gpu_ns,
        "response_sum_ns": entry.responses.total,
        "gpu_share": entry.gpu_ns / end_ns if end_ns else 0.0,
        "frames": entry.frames,
        "fps": entry.frames * 1e9 / end_ns if end_ns else 0.0,
        "deadlines": entry.deadlines,
        "missed": entry.missed,
    }


def reserves_as_dict(entries: Iterable[ReserveStatistics], end_ns: int) -> dict[str, Any]:
    """The reserves' part of the JSON result."""
    result = {}
    for entry in entries:
        reserve = entry.reserve
        lasted_ns = end_ns - entry.since_ns
        entitled_ns = reserve.capacity_ns * lasted_ns / reserve.period_ns
        result[reserve.name] = {
            "policy": reserve.spec.kind,
            "capacity_ns": reserve.capacity_ns,
            "period_ns": reserve.period_ns,
            "charged_ns": entry.charged_ns,
            "used": entry.charged_ns / entitled_ns if entitled_ns else 0.0,
            "overruns": entry.overruns,
            "worst_debt_ns": -entry.worst_ns,
        }
    return result
