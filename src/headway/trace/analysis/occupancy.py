"""Who had each GPU when, and so what a wait was for.

A stretch of waiting is cut into pieces, each with one cause: the number of the task that had the
GPU meanwhile, or one of three things that are no task. A task has the GPU from its dispatch on:
also while the context is switched to it, and all through a lease, used or not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise

from headway.trace.analysis.facts import NO_GPU
from headway.trace.analysis.history import History

BUDGET, HOLDOFF, IDLE = -1, -2, -3
CAUSES = {
    BUDGET: "its own budget was used up",
    HOLDOFF: "the GPU was kept free for a more important task (hold-off)",
    IDLE: "nobody had the GPU: switching to this task, or a policy that lets it be",
}
"""Causes of a wait that are no task."""

Piece = tuple[int, int, int]
"""A cause, from when, until when."""


class _Gpu:
    """Who had one GPU, one after the other, from the dispatch of a group to its completion. Where
    a live program still drained while the next one had begun, the time counts for the earlier."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tasks: list[int] = []
        self.held: list[int] = []
        """Since when each had the GPU, though it may have started later."""

    def add(self, task: int, held_ns: int, start_ns: int, end_ns: int) -> None:
        """Runs arrive by their start."""
        if self.ends:
            start_ns = max(start_ns, self.ends[-1])
            held_ns = max(held_ns, self.ends[-1])
        if start_ns < end_ns:
            self.held.append(held_ns)
            self.starts.append(start_ns)
            self.ends.append(end_ns)
            self.tasks.append(task)


class Occupancy:
    """All GPUs of a run."""

    def __init__(self, history: History) -> None:
        self._tasks = history.tasks
        groups = history.groups
        columns = (
            groups.started_ns,
            groups.finished_ns,
            groups.dispatched_ns,
            groups.tasks,
            groups.gpus,
        )
        self._gpus = [_Gpu() for _ in range(history.gpus)]
        for start_ns, end_ns, held_ns, task, gpu in sorted(zip(*columns, strict=True)):
            self._gpus[gpu].add(task, held_ns, start_ns, end_ns)
        self._finished = [len(gpu.starts) for gpu in self._gpus]
        for group in history.unfinished:
            self._gpus[group.gpu].add(group.task, group.since_ns, group.since_ns, history.end_ns)

    def busy_ns(self, from_ns: int, to_ns: int) -> int:
        """For how long the GPUs executed groups that completed, all together."""
        return sum(
            max(0, min(end, to_ns) - max(start, from_ns))
            for gpu, finished in zip(self._gpus, self._finished, strict=True)
            for start, end in zip(gpu.starts[:finished], gpu.ends[:finished], strict=True)
        )

    def pieces(self, waiter: int, gpu: int, start_ns: int, end_ns: int) -> Iterator[Piece]:
        """What a task waited for: a dispatched group for its GPU, another for any GPU."""
        if gpu != NO_GPU:
            return self._on(self._gpus[gpu], waiter, start_ns, end_ns, dispatched=True)
        if len(self._gpus) == 1:
            return self._on(self._gpus[0], waiter, start_ns, end_ns)
        return self._on_all(waiter, start_ns, end_ns)

    def _on(
        self, gpu: _Gpu, waiter: int, start_ns: int, end_ns: int, *, dispatched: bool = False
    ) -> Iterator[Piece]:
        place = bisect_right(gpu.ends, start_ns)
        at_ns = start_ns
        while at_ns < end_ns:
            known = place < len(gpu.starts)
            begins_ns = min(gpu.starts[place], end_ns) if known else end_ns
            if at_ns < begins_ns:
                # Nobody executes: the GPU is kept, then idle, then given to who executes next.
                held_ns = begins_ns
                if known and gpu.tasks[place] != waiter:
                    held_ns = min(gpu.held[place], begins_ns)
                kept_ns = 0
                if not dispatched:
                    kept_ns = min(self._kept_until_ns(gpu, place, waiter), held_ns)
                holder = gpu.tasks[place] if known else IDLE
                for cause, until_ns in ((HOLDOFF, kept_ns), (IDLE, held_ns), (holder, begins_ns)):
                    if at_ns < until_ns:
                        yield cause, at_ns, until_ns
                        at_ns = until_ns
            else:
                until_ns = min(gpu.ends[place], end_ns)
                yield gpu.tasks[place], at_ns, until_ns
                place += 1
                at_ns = until_ns

    def _kept_until_ns(self, gpu: _Gpu, place: int, waiter: int) -> int:
        """Until when the GPU is kept for the task that used it last, if that is more important."""
        if not place or not self._tasks[gpu.tasks[place - 1]].holdoff_ns:
            return 0
        idle_ns = gpu.ends[place - 1]
        if self._rank(gpu.tasks[place - 1], idle_ns) >= self._rank(waiter, idle_ns):
            return 0
        return idle_ns + self._tasks[gpu.tasks[place - 1]].holdoff_ns

    def _rank(self, task: int, ns: int) -> int:
        facts = self._tasks[task]
        place = bisect_right(facts.rank_since_ns, ns)
        return facts.ranks[max(0, place - 1)] if facts.ranks else 0

    def _on_all(self, waiter: int, start_ns: int, end_ns: int) -> Iterator[Piece]:
        """Any GPU would do. One that is idle is the cause; if all are busy, the time is divided
        among those who have them."""
        rows = [list(self._on(g, waiter, start_ns, end_ns)) for g in self._gpus]
        cuts = sorted({cut for row in rows for _, *ends in row for cut in ends})
        places = [0] * len(rows)
        for from_ns, to_ns in pairwise(cuts):
            causes = []
            for number, row in enumerate(rows):
                if row[places[number]][2] <= from_ns:
                    places[number] += 1
                causes.append(row[places[number]][0])
            best = min(causes)
            if best < 0:
                yield best, from_ns, to_ns
            else:
                yield from _divided(causes, from_ns, to_ns)


def _divided(causes: list[int], from_ns: int, to_ns: int) -> Iterator[Piece]:
    """The stretch in equal parts, one after the other, so that nothing is lost by rounding."""
    for place, cause in enumerate(causes):
        start_ns = from_ns + (to_ns - from_ns) * place // len(causes)
        end_ns = from_ns + (to_ns - from_ns) * (place + 1) // len(causes)
        if start_ns < end_ns:
            yield cause, start_ns, end_ns
