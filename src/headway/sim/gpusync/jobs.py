"""The jobs of a task in virtual time: CPU, token, operations on units, CPU.

A job asks for a token, moves its state if the token is on another device, copies its input in, runs
its kernels, copies its output out and releases the token. For each operation it takes units, hands
the operation to the device and sleeps; the device's interrupt thread and the process's worker run
before it is ready again, and it gives the units back once it has a CPU.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from headway.engine.locks.budgets import Activations, Budget, OverrunSignal
from headway.engine.locks.cluster_locks import Effects
from headway.engine.locks.copies import Move
from headway.engine.locks.helpers import CpuKey, Thread, cpu_key, interrupt_lender, worker_lender
from headway.engine.locks.jobs import Job, Place
from headway.engine.locks.quantities import transfer_ns
from headway.engine.locks.unit_locks import Unit
from headway.sim.gpusync.bus import Path
from headway.sim.gpusync.cpus import CpuThread
from headway.sim.gpusync.plan import TaskPlan
from headway.sim.gpusync.results import TaskResult

if TYPE_CHECKING:
    from headway.engine.locks.device_cluster import DeviceCluster
    from headway.sim.gpusync.node import Node

_HELPERS_NS = 1_000_000
"""Longer than helper threads usually wait for CPUs."""
_BEFORE, _GRANTED, _LAUNCH, _DONE, _AFTER = range(5)
"""What a job does once it has a CPU and has used it for as long as it wanted."""


class Operation(NamedTuple):
    """A kernel, or a chunk of a copy."""

    units: tuple[Unit, ...]
    path: Path | None
    """None: a kernel."""
    amount: int
    """Nanoseconds of a kernel, bytes of a copy."""


class InterruptThread:
    """A device's interrupt thread: serves completions in their order."""

    def __init__(self, node: Node, device: int, cluster: DeviceCluster) -> None:
        self._node = node
        self._waiting: deque[TaskRun] = deque()
        self._units = [u for u in cluster.locks.units.units.values() if u.device == device]
        self._effective = cluster.locks.effective
        self._number = device
        self._cost_ns = node.system.interrupt_ns
        self._thread = CpuThread(self._key, self._served)

    def _key(self) -> CpuKey:
        return cpu_key(
            interrupt_lender(self._units, self._effective), Thread.INTERRUPT, self._number
        )

    def serve(self, run: TaskRun) -> None:
        """An operation of this job is done."""
        self._waiting.append(run)
        if len(self._waiting) == 1:
            self._node.cpus.wake(self._thread, self._cost_ns, self._node.now_ns)

    def _served(self) -> None:
        run = self._waiting.popleft()
        run.notified()
        if self._waiting:
            self._node.cpus.wake(self._thread, self._cost_ns, self._node.now_ns)


class TaskRun:
    """A task, and its current job."""

    def __init__(self, node: Node, plan: TaskPlan, order: int, rng: random.Random) -> None:
        task = plan.task
        self.node = node
        self.plan = plan
        self.result = TaskResult(task.name, task.period_ns, task.deadline_ns)
        self.job = Job(task.name, 0, order)
        self.job_thread = CpuThread(self._key, self._advance)
        self.worker = CpuThread(self._worker_key, self._worked)
        self.pending = False
        self.cluster = node.clusters[task.devices] if task.work is not None else None
        self.home: int | None = None
        """The device, within the cluster, that holds the task's state."""
        budgets = node.system.budgets
        self.activations = Activations(
            plan.offset_ns, task.period_ns, task.deadline_ns, catch_up=budgets.catch_up
        )
        self._pays_operations = budgets.policy != "none" and budgets.drain == "cpu+gpu"
        self.signal = OverrunSignal()
        self.budget: Budget | None = None
        if budgets.policy != "none":
            self.budget = Budget(task.budget_ns or self._provision())
            if budgets.drain != "bwi":
                self.job_thread.watcher = self
        self._rng = rng
        self._rm = node.system.scheduler == "rm"
        self._stage = _BEFORE
        self._after_ns = 0
        self._factor = 1.0
        self._released_ns = 0
        self._asked_ns = 0
        self._section_ns = 0
        self._distance = 0
        self._predicted_ns = 0
        self._operations: list[Operation] = []
        self._place = 0
        self._migration = 0
        """How many of the operations move state; a signal waits until they are over."""
        self._operation_ns = 0
        self._held_since_ns = 0
        self._held_ns = 0
        self._aborting = False
        self._known: dict[tuple[int, int | None], tuple[list[Operation], list[Operation]]] = {}

    def _provision(self) -> int:
        task = self.plan.task
        need_ns = task.cpu_ns
        if task.work is not None:
            size = task.work.input_bytes + task.work.output_bytes
            need_ns += sum(task.work.kernels_ns)
            need_ns += transfer_ns(size, self.node.system.worst_rate)
        return max(1, need_ns * 21 // 20)

    # -- keys --------------------------------------------------------------------------------

    def _key(self) -> CpuKey:
        cluster, job = self.cluster, self.job
        lender = job if cluster is None else cluster.locks.effective(job)
        return cpu_key(lender, Thread.JOB, -job.base[1])

    def _worker_key(self) -> CpuKey:
        assert self.cluster is not None
        lender = worker_lender((self.job,), self.cluster.locks.effective)
        return cpu_key(lender, Thread.WORKER, -self.job.base[1])

    def _priority(self) -> int:
        return -self.plan.task.period_ns if self._rm else -self.activations.deadline_ns

    # -- the life of a job -------------------------------------------------------------------

    def begin_at(self, when_ns: int) -> None:
        """The next job begins then, or a little later if releases vary."""
        variation = self.plan.variation
        if variation.jitter_ns:
            when_ns += self._rng.randint(0, variation.jitter_ns)
        self.node.at(max(when_ns, self.node.now_ns), self._begin, None)

    def _begin(self, _: None, tag: int) -> None:
        now_ns = self.node.now_ns
        task = self.plan.task
        self._released_ns = self.activations.release_ns
        self.job.base = (self._priority(), self.job.base[1])
        self.pending = True
        self._factor = self._draw()
        cpu_ns = int(task.cpu_ns * self._factor)
        before_ns = cpu_ns
        if task.work is not None:
            before_ns = int(cpu_ns * (self._rng.random() if self.plan.variation.split else 0.5))
        self._after_ns = cpu_ns - before_ns
        self.job_thread.active_ns = 0
        if self.budget is not None:
            self.budget.refill(now_ns)
            self.signal.refilled()
            self.node.pay()
        self._wake(_BEFORE, before_ns)

    def _draw(self) -> float:
        """How long this job is, as a multiple of its parameters."""
        variation, rng = self.plan.variation, self._rng
        factor = 1.0
        if variation.noise:
            factor = rng.gauss(1.0, variation.noise)
            factor = min(max(factor, 1 - 3 * variation.noise), 1 + 3 * variation.noise)
        if variation.shortest < 1.0:
            factor *= rng.uniform(variation.shortest, 1.0)
        if variation.aberrant_every_ns:
            chance = self.plan.task.period_ns / variation.aberrant_every_ns
            if rng.random() < chance:
                factor *= variation.aberrant_factor
        return factor

    def _wake(self, stage: int, length_ns: int) -> None:
        self._stage = stage
        self.node.cpus.wake(self.job_thread, length_ns, self.node.now_ns)

    def _advance(self) -> None:
        """The job has had the CPU for as long as it wanted."""
        stage = self._stage
        if stage == _DONE:
            self._operation_over()
        elif stage == _LAUNCH:
            self._issue()
        elif stage == _BEFORE and self.cluster is not None:
            self._asked_ns = self.node.now_ns
            self._apply(self.cluster.locks.request(self.job))
        elif stage == _GRANTED:
            self._enter()
        else:
            self._finish()

    def _apply(self, effects: Effects) -> None:
        """Wake whoever an event of the locks lets go on."""
        for _, job in effects.grants:
            self.node.runs[-job.base[1]].granted()
        self._start(effects.started)

    def _start(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.node.runs[-job.base[1]].has_units()

    def granted(self) -> None:
        """The job holds a token and goes on once it has a CPU."""
        waited_ns = self.node.now_ns - self._asked_ns
        self.result.worst_wait_ns = max(self.result.worst_wait_ns, waited_ns)
        cluster = self.cluster
        assert cluster is not None
        device = cluster.locks.tokens.settings.device_of(self.job.token)
        distance = cluster.topology.distance(self.home, device)
        estimator = cluster.predictor.estimator(self.job.task, distance)
        self._predicted_ns = estimator.average_ns
        self._distance = distance
        self._section_ns = self.job_thread.active_ns
        if self.home is not None:
            self.result.distances[distance] += 1
        self._wake(_GRANTED, 0)

    # -- the section -------------------------------------------------------------------------

    def _enter(self) -> None:
        cluster, work = self.cluster, self.plan.task.work
        assert cluster is not None
        assert work is not None
        device = cluster.locks.tokens.settings.device_of(self.job.token)
        aberrant = self._factor > 2
        copies = self._known.get((device, self.home))
        if copies is None or aberrant:
            copies = self._copies(cluster, device, int(self._factor) if aberrant else 1)
            if not aberrant:
                self._known[device, self.home] = copies
        engine = (cluster.locks.units.unit(cluster.first + device, "ee"),)
        kernels = [Operation(engine, None, int(ns * self._factor)) for ns in work.kernels_ns]
        self._operations = [*copies[0], *kernels, *copies[1]]
        self._migration = 0
        if self.home is not None and self.home != device:
            ways = 2 if self._through_both(cluster, device) else 1
            self._migration = ways * len(cluster.locks.copies.chunks(work.state_bytes))
        self._place = 0
        if self.home != device:
            self.home = device
            if cluster.affinity is not None:
                cluster.affinity.settle(self.job.task, device)
        self._next_operation()

    def _copies(
        self, cluster: DeviceCluster, device: int, times: int
    ) -> tuple[list[Operation], list[Operation]]:
        """The copies before the kernels and those after them, from the task's present home."""
        work = self.plan.task.work
        assert work is not None
        here = cluster.first + device
        home = here if self.home is None else cluster.first + self.home
        moves, later = (
            [(Move.IN, work.input_bytes * times, here)],
            [(Move.OUT, work.output_bytes * times, here)],
        )
        through_host, state = self.node.system.migration == "system", work.state_bytes
        if state and through_host:
            later.append((Move.STATE_OUT, state, here))
        if state and here != home:
            if through_host:
                moves.insert(0, (Move.STATE_IN, state, here))
            elif self._through_both(cluster, device):
                moves[:0] = [(Move.STATE_OUT, state, home), (Move.STATE_IN, state, here)]
            else:
                moves.insert(0, (Move.PEER, state, home))

        def operations(moves: list[tuple[Move, int, int]]) -> list[Operation]:
            settings = cluster.locks.copies
            result = []
            for move, size, source in moves:
                needs = settings.needs(move, source, here)
                units = tuple(cluster.locks.units.unit(*unit) for unit in needs)
                path = self.node.bus.path(move, source, here)
                result += [Operation(units, path, chunk) for chunk in settings.chunks(size)]
            return result

        return operations(moves), operations(later)

    def _through_both(self, cluster: DeviceCluster, device: int) -> bool:
        """Whether the state is copied out of its home and into the device, one after the other: the
        two have no common hub, below which alone devices copy to each other."""
        peers = self.home is None or cluster.topology.are_peers(self.home, device)
        return self.node.system.migration == "peer" and not peers

    def _next_operation(self) -> None:
        cluster = self.cluster
        assert cluster is not None
        if self._aborting and self._place >= self._migration:
            self._unwind()
            return
        if self._place < len(self._operations):
            units = self._operations[self._place].units
            self._start(cluster.locks.units.request(self.job, units))
            return
        observed_ns = self.job_thread.active_ns - self._section_ns
        if self._predicted_ns and observed_ns:
            error = abs(observed_ns - self._predicted_ns) / observed_ns
            self.result.errors[self._distance].append(error)
        cluster.predictor.observe(self.job.task, self._distance, observed_ns)
        self._apply(cluster.locks.release(self.job))
        self._wake(_AFTER, self._after_ns)

    def has_units(self) -> None:
        """The job owns the units of its next operation and issues it once it has a CPU."""
        self._held_since_ns = self.node.now_ns
        self._wake(_LAUNCH, self.node.system.launch_ns)

    def _issue(self) -> None:
        operation = self._operations[self._place]
        now_ns = self.node.now_ns
        self.job.in_operation = True
        self._operation_ns = now_ns
        if self._pays_operations:
            self.starts(now_ns, self._at_most_ns(operation))
        if operation.path is None:
            self.node.at(now_ns + operation.amount, self._kernel_done, None)
        else:
            self.node.copy(operation.path, operation.amount, self)

    def _at_most_ns(self, operation: Operation) -> int:
        """An operation is over by then, unless its helper threads wait for CPUs unusually long."""
        length_ns = operation.amount
        if operation.path is not None:
            length_ns = transfer_ns(operation.amount, self.node.system.worst_rate)
        return 2 * length_ns + _HELPERS_NS

    def _kernel_done(self, _: None, tag: int) -> None:
        self.operation_done()

    def operation_done(self) -> None:
        """The device has done the operation: its interrupt thread is next."""
        device = self._operations[self._place].units[-1].device  # of two, the copy's target
        self.node.interrupts[device].serve(self)

    def notified(self) -> None:
        """The interrupt thread has served the operation: the process's worker is next."""
        self.node.cpus.wake(self.worker, self.node.system.worker_ns, self.node.now_ns)

    def _worked(self) -> None:
        now_ns = self.node.now_ns
        self.job.in_operation = False
        self.job_thread.active_ns += now_ns - self._operation_ns
        if self._pays_operations:
            self.stops(now_ns)
        self._wake(_DONE, 0)

    def _operation_over(self) -> None:
        cluster = self.cluster
        assert cluster is not None
        operation = self._operations[self._place]
        if operation.path is None:
            self._held_ns += self.node.now_ns - self._held_since_ns
        self._place += 1
        aborts = self._aborting and self._place >= self._migration
        if cluster.locks.copies.keep and operation.path is not None and not aborts:
            following = self._operations[self._place : self._place + 1]
            if (
                following
                and following[0].path is operation.path
                and cluster.locks.units.may_keep(self.job)
            ):
                self._wake(_LAUNCH, self.node.system.launch_ns)
                return
        self._start(cluster.locks.units.release(self.job))
        self._next_operation()

    # -- the end -----------------------------------------------------------------------------

    def _finish(self) -> None:
        node, result = self.node, self.result
        result.releases.append(self._released_ns)
        result.finishes.append(node.now_ns)
        result.unit_held_ns.append(self._held_ns)
        self.pending = False
        at_once = self.activations.advance()
        if self.budget is not None:
            self.budget.stop(node.now_ns)
            node.pay()
        variation = self.plan.variation
        if variation.sporadic:
            later = int(self.plan.task.period_ns * self._rng.random() * variation.sporadic)
            self.activations.release_ns += later
            self.activations.deadline_ns += later
        self.begin_at(node.now_ns if at_once else self.activations.release_ns)

    def _unwind(self) -> None:
        """The job was told of its overrun: it gives back what it has and ends."""
        self._aborting = False
        self.result.aborted += 1
        if self.cluster is not None and self.job.place is not Place.NOWHERE:
            self._apply(self.cluster.locks.withdraw(self.job))
        self._finish()

    # -- budgets -----------------------------------------------------------------------------

    def starts(self, now_ns: int, length_ns: int | None) -> None:
        """The budget drains from now on, for `length_ns` if nothing happens."""
        budget = self.budget
        assert budget is not None
        budget.start(now_ns)
        due_ns = budget.due_ns
        assert due_ns is not None
        if due_ns > now_ns and (length_ns is None or due_ns < now_ns + length_ns):
            self.node.at(due_ns, self._due, None)

    def stops(self, now_ns: int) -> None:
        """The budget no longer drains."""
        budget = self.budget
        assert budget is not None
        if budget.due_ns is not None and budget.due_ns < now_ns and not self.signal.raised:
            self._exhausted()  # later than expected
        budget.stop(now_ns)

    def _due(self, _: None, tag: int) -> None:
        budget = self.budget
        assert budget is not None
        if budget.due_ns == self.node.now_ns and self.pending:
            self._exhausted()

    def _exhausted(self) -> None:
        budget, node = self.budget, self.node
        assert budget is not None
        self.result.overruns += 1
        if node.system.budgets.policy == "signal":
            if self.signal.post():
                self._told()
            return
        self.activations.postpone()
        budget.refill(node.now_ns)
        self.starts(node.now_ns, None)
        if self.cluster is None:
            self.job.base = (self._priority(), self.job.base[1])
        else:
            locks = self.cluster.locks
            self._apply(locks.change(self.job, self._priority()))
            bwi = node.system.budgets.policy == "bwi"
            if bwi and locks.tokens.holds(self.job) and not self.job.virtual:
                self._apply(locks.unlock_virtually(self.job))
        node.pay()

    def _told(self) -> None:
        """A signal reaches the job: at once where it computes, else when it is out of the lock
        call, the operation or the migration."""
        if self._stage in (_BEFORE, _AFTER) and self.job.place is Place.NOWHERE:
            self.node.cpus.remove(self.job_thread, self.node.now_ns)
            self._unwind()
        else:
            self._aborting = True
