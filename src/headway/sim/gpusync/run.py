"""Run a GPUSync plan: nodes share nothing, so each is simulated by itself, in parallel if asked."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from ctypes import c_int64
from multiprocessing import get_context
from typing import Any

from headway.sim.gpusync.node import Node, Progress
from headway.sim.gpusync.plan import GpuSyncPlan
from headway.sim.gpusync.results import GpuSyncResult, TaskResult

Part = tuple[list[TaskResult], int, int, bool]
LARGE = 50_000
"""Jobs of a plan that is worth processes of its own: a few seconds of CPU time."""
LOOK_S = 0.1
_shared: Any = None
"""In a worker: how far each node is, in nanoseconds, and behind them whether all are to stop."""


def node_numbers(plan: GpuSyncPlan) -> list[int]:
    """The CPU clusters that have tasks."""
    return sorted({entry.task.cpus for entry in plan.tasks})


def run_node(plan: GpuSyncPlan, number: int, progress: Progress | None = None) -> Part:
    """One CPU cluster of a plan."""
    tasks = [entry for entry in plan.tasks if entry.task.cpus == number]
    node = Node(plan.system, number, tasks, plan.seed)
    complete = node.run(plan.duration_ns, progress)
    return node.results, node.cpus.busy_ns, node.events, complete


def run_plan(
    plan: GpuSyncPlan, *, workers: int = 1, progress: Progress | None = None
) -> GpuSyncResult:
    """Simulate a plan. `workers`: how many processes may work at once; 0: one for each CPU if the
    plan is large. The instants that `progress` is told are the mean of all nodes'."""
    numbers = node_numbers(plan)
    if not workers:
        jobs = sum(plan.duration_ns // entry.task.period_ns for entry in plan.tasks)
        workers = (os.cpu_count() or 1) if jobs >= LARGE else 1
    workers = min(workers, len(numbers))
    if workers <= 1:
        parts = []
        for place, number in enumerate(numbers):
            told = None if progress is None else _in_turn(progress, place, len(numbers), plan)
            parts.append(run_node(plan, number, told))
    else:
        parts = _side_by_side(plan, numbers, workers, progress)
    by_name = {task.name: task for results, *_ in parts for task in results}
    return GpuSyncResult(
        plan.duration_ns,
        {entry.task.name: by_name[entry.task.name] for entry in plan.tasks},
        cpu_busy_ns=sum(busy for _, busy, _, _ in parts),
        events=sum(events for _, _, events, _ in parts),
        complete=all(complete for *_, complete in parts),
    )


def _in_turn(progress: Progress, place: int, nodes: int, plan: GpuSyncPlan) -> Progress:
    """The progress of one node as that of the whole run."""
    return lambda now_ns: progress((place * plan.duration_ns + now_ns) // nodes)


def _side_by_side(
    plan: GpuSyncPlan, numbers: Sequence[int], workers: int, progress: Progress | None
) -> list[Part]:
    """Each node in a process; nodes that `progress` stops end where they are."""
    spawn = get_context("spawn")
    shared = spawn.RawArray(c_int64, len(numbers) + 1)
    with ProcessPoolExecutor(
        workers, mp_context=spawn, initializer=_begin, initargs=(shared,)
    ) as pool:
        futures = [pool.submit(_work, plan, *node) for node in enumerate(numbers)]
        waits = set(futures)
        try:
            while waits:
                waits = wait(waits, LOOK_S).not_done
                if progress is not None and not progress(sum(shared[:-1]) // len(numbers)):
                    shared[-1] = 1
        except BaseException:  # nobody waits for the results any more
            shared[-1] = 1
            raise
        return [future.result() for future in futures]


def _begin(shared: Any) -> None:
    """A worker begins. Ctrl-C goes to everybody; whoever started the run decides."""
    global _shared
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(plan: GpuSyncPlan, place: int, number: int) -> Part:
    def told(now_ns: int) -> bool:
        _shared[place] = now_ns
        return not _shared[-1]

    return run_node(plan, number, told)
