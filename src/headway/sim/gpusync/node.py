"""A CPU cluster and its devices in virtual time.

The loop knows instants and nothing else; what a job does next is in `jobs.py`. Units, tokens and
priorities are the engine's (`engine/locks/`), CPUs and the bus are this package's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from headway.engine.locks.budgets import draining
from headway.engine.locks.device_cluster import DeviceCluster
from headway.engine.locks.system import LockSystem
from headway.sim.gpusync.bus import FluidBus
from headway.sim.gpusync.cpus import Cpus, CpuThread
from headway.sim.gpusync.plan import TaskPlan
from headway.sim.gpusync.results import TaskResult

Handler = Callable[[Any, int], None]
Progress = Callable[[int], bool]
"""Called now and then with the instant; says whether to go on."""
_ASK_EVERY = 5000
"""Events between two calls of it."""


class Node:
    """One CPU cluster, its devices and the tasks on them. Nodes have nothing in common."""

    def __init__(
        self, system: LockSystem, number: int, plans: Sequence[TaskPlan], seed: int
    ) -> None:
        from headway.sim.gpusync.jobs import InterruptThread, TaskRun

        self.system = system
        self.now_ns = 0
        self.events = 0
        self._queue: list[tuple[int, int, Handler, Any, int]] = []
        self._sequence = 0
        self.clusters = {
            cluster.number: DeviceCluster(system, cluster)
            for cluster in system.clusters
            if cluster.cpus[0] // system.clusters.cpus_each == number
        }
        self.cpus = Cpus(system.clusters.cpus_each, self._cpu_end)
        self.bus = FluidBus(system.bus, system.topology())
        self._bus_due: int | None = None
        self._inherits_bandwidth = system.budgets.policy != "none" and system.budgets.drain == "bwi"
        self.runs = [
            TaskRun(self, plan, order, random.Random(f"{seed} {plan.task.name}"))
            for order, plan in enumerate(plans)
        ]
        self.interrupts = {
            device: InterruptThread(self, device, cluster)
            for cluster in self.clusters.values()
            for device in cluster.locks.cluster.devices
        }

    def at(self, when_ns: int, handler: Handler, who: Any, tag: int = 0) -> None:
        """Call `handler(who, tag)` then; at one instant, in the order of the calls to `at`."""
        self._sequence += 1
        heappush(self._queue, (when_ns, self._sequence, handler, who, tag))

    def _cpu_end(self, when_ns: int, thread: CpuThread, epoch: int) -> None:
        self._sequence += 1
        heappush(self._queue, (when_ns, self._sequence, self._cpu_ended, thread, epoch))

    def _cpu_ended(self, thread: CpuThread, epoch: int) -> None:
        self.cpus.ended(thread, epoch, self.now_ns)

    def copy(self, path: Any, size: int, run: Any) -> None:
        """A copy begins; `run.operation_done` is called when it is complete."""
        self.bus.start(path, size, run, self.now_ns)
        self._expect_bus()

    def _expect_bus(self) -> None:
        due_ns = self.bus.next_ns()
        if due_ns is not None and due_ns != self._bus_due:
            self.at(due_ns, self._bus_moves, None)
        self._bus_due = due_ns

    def _bus_moves(self, _: None, tag: int) -> None:
        if self._bus_due != self.now_ns:
            return
        self._bus_due = None
        for run in self.bus.done(self.now_ns):
            run.operation_done()
        self._expect_bus()

    def pay(self) -> None:
        """Who pays under bandwidth inheritance, after jobs or priorities changed."""
        if not self._inherits_bandwidth:
            return
        pending = {id(run.job): run for run in self.runs if run.pending}
        payers = draining([run.job for run in pending.values()], self.cpus.count)
        chosen = {id(job) for job in payers}
        for key, run in pending.items():
            assert run.budget is not None
            if key not in chosen:
                run.budget.stop(self.now_ns)
            elif not run.budget.drains:
                run.starts(self.now_ns, None)

    def run(self, duration_ns: int, progress: Progress | None = None) -> bool:
        """Simulate until this instant; what happens at it is no longer simulated. False if
        `progress` stopped the run before."""
        for run in self.runs:
            run.begin_at(run.plan.offset_ns)
        queue, cpus = self._queue, self.cpus
        events = when_ns = 0
        while queue:
            when_ns, _, handler, who, tag = heappop(queue)
            if when_ns >= duration_ns:
                break
            self.now_ns = when_ns
            events += 1
            handler(who, tag)
            if cpus.ready:
                cpus.balance(when_ns)
            if progress is not None and not events % _ASK_EVERY and not progress(when_ns):
                break
        else:
            when_ns = duration_ns
        self.events = events
        for run in self.runs:
            run.result.unfinished = run.pending
        return when_ns >= duration_ns

    @property
    def results(self) -> list[TaskResult]:
        return [run.result for run in self.runs]
