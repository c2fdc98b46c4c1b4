"""Run a GPUSync plan: nodes share nothing, so each is simulated by itself, in parallel if asked."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from headway.sim.gpusync.node import Node, Progress
from headway.sim.gpusync.plan import GpuSyncPlan
from headway.sim.gpusync.results import GpuSyncResult, TaskResult

Part = tuple[list[TaskResult], int, int, bool]


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
    """Simulate a plan. `workers`: how many processes may work at once; 0: one for each CPU. With
    `progress` one process does all; the instants that it is told run over the nodes in turn."""
    numbers = node_numbers(plan)
    workers = min(workers or (os.cpu_count() or 1), len(numbers))
    if workers <= 1 or progress is not None:
        parts = []
        for place, number in enumerate(numbers):
            told = None if progress is None else _shared(progress, place, len(numbers), plan)
            parts.append(run_node(plan, number, told))
    else:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            parts = list(pool.map(run_node, [plan] * len(numbers), numbers))
    by_name = {task.name: task for results, *_ in parts for task in results}
    return GpuSyncResult(
        plan.duration_ns,
        {entry.task.name: by_name[entry.task.name] for entry in plan.tasks},
        cpu_busy_ns=sum(busy for _, busy, _, _ in parts),
        events=sum(events for _, _, events, _ in parts),
        complete=all(complete for *_, complete in parts),
    )


def _shared(progress: Progress, place: int, nodes: int, plan: GpuSyncPlan) -> Progress:
    """The progress of one node as that of the whole run."""
    return lambda now_ns: progress((place * plan.duration_ns + now_ns) // nodes)
