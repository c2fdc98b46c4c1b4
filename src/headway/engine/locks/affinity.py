"""Affinity: a request goes where its section is predicted to end soonest, migration included.

Each task has a home, the device that it used last and that holds its state. A token of another
device costs a migration, so a job moves only if that pays: if the queues at home are longer than
the migration. The queues' length limit keeps the bound on waiting whatever the predictions are.
"""

from __future__ import annotations

from headway.engine.locks.jobs import Job
from headway.engine.locks.predictor import CostPredictor
from headway.engine.locks.tokens import TokenAllocator
from headway.engine.locks.topology import Topology


class Affinity:
    """A placement (`tokens.py`) for one allocator. Devices are numbered within the cluster."""

    any_queue = True

    def __init__(self, predictor: CostPredictor, topology: Topology, tokens: int, devices: int):
        self.predictor = predictor
        self.topology = topology
        self.homes: dict[int, int] = {}
        """The home device of each task that has one."""
        self._devices = devices
        self.loads_ns = [0] * tokens
        """The predicted costs of all requests in each queue."""
        self._residents = [0] * devices
        """How many tasks have their home on each device."""

    # -- homes -------------------------------------------------------------------------------

    def distance(self, task: int, device: int) -> int:
        """How far a device is from the task's home."""
        return self.topology.distance(self.homes.get(task), device)

    def settle(self, task: int, device: int) -> None:
        """The task's state is on this device from now on."""
        self.forget(task)
        self.homes[task] = device
        self._residents[device] += 1

    def forget(self, task: int) -> None:
        """The task is gone, or its state is."""
        home = self.homes.pop(task, None)
        if home is not None:
            self._residents[home] -= 1

    # -- placement ---------------------------------------------------------------------------

    def queue(self, job: Job, locks: TokenAllocator) -> int:
        home = self.homes.get(job.task)
        known = [
            self.predictor.estimate(job.task, self.topology.distance(home, device))
            for device in range(self._devices)
        ]
        best = -1
        best_ns = 0
        best_key = (False, 0, 0)
        limit = locks.settings.length
        for token, queue in enumerate(locks.queues):
            if limit is not None and len(queue) >= limit and not locks.has_room(token):
                continue
            device = token % self._devices
            end_ns = self.loads_ns[token] + known[device]
            if best >= 0 and end_ns > best_ns:
                continue
            key = (device != home, self._residents[device], locks.held_on(device))
            if best < 0 or end_ns < best_ns or key < best_key:
                best, best_ns, best_key = token, end_ns, key
        return best

    def enters(self, job: Job, token: int) -> None:
        distance = self.distance(job.task, token % self._devices)
        job.cost_ns = self.predictor.estimate(job.task, distance)
        self.loads_ns[token] += job.cost_ns

    def leaves(self, job: Job, token: int) -> None:
        self.loads_ns[token] -= job.cost_ns
        job.cost_ns = 0

    def donee(self, donor: Job, locks: TokenAllocator, lowest: Job) -> Job:
        candidates = [
            (self.distance(donor.task, token % self._devices), place, token, job)
            for token, queue in enumerate(locks.queues)
            for place, job in enumerate(queue)
            if job is lowest or not (job.virtual or job.donor is not None or locks.in_top(job))
        ]
        return min(candidates)[3]

    def donor(self, token: int, donors: list[Job]) -> Job:
        device = token % self._devices
        return min(donors, key=lambda d: (self.distance(d.task, device), -d.base[0], -d.base[1]))

    def stolen(self, token: int, locks: TokenAllocator, *, waited_for: bool) -> Job | None:
        here = token % self._devices
        best: Job | None = None
        best_gain = 0
        for other, queue in enumerate(locks.queues):
            for place, job in enumerate(queue[1:], 1):
                if waited_for and not self._gains(job, place, other, token, locks):
                    continue
                gain = self.distance(job.task, other % self._devices) - self.distance(
                    job.task, here
                )
                if best is None or gain > best_gain:
                    best, best_gain = job, gain
        return best

    def _gains(self, job: Job, place: int, other: int, token: int, locks: TokenAllocator) -> bool:
        """Whether a waiter is predicted to finish earlier on the empty queue `token`."""
        stays_ns = sum(ahead.cost_ns for ahead in locks.queues[other][: place + 1])
        distance = self.distance(job.task, token % self._devices)
        return self.predictor.estimate(job.task, distance) < stays_ns
