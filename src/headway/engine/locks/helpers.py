"""Helper threads: interrupt threads and runtime workers run with the priority of whom they serve.

When an operation on a device is done, the device's interrupt thread runs, then the worker of the
process whose job waits, then the job. At their base priorities helpers use idle CPUs only. While a
job is suspended for an operation on a unit that it owns, the interrupt thread of the unit's device
and the workers of the job's process inherit its effective priority. A job that is suspended for a
lock lends nothing this way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from headway.engine.locks.jobs import Base, Job

CpuKey = tuple[int, int, int, int]
"""Orders threads on CPUs, the greatest first."""


class Thread(IntEnum):
    """Kinds of threads; of equal effective priority the greater goes first."""

    WORKER = 0
    INTERRUPT = 1
    JOB = 2


LOWEST = -(2**63)
"""Below every priority of a job."""


def cpu_key(lender: Job | None, kind: Thread, number: int) -> CpuKey:
    """The place of a thread on the CPUs. `lender`: the job whose base priority it runs with; None:
    a helper at its base priority. `number` orders helpers of one kind, the lower first."""
    if lender is None:
        return (LOWEST, 0, kind, -number)
    priority, order = lender.base
    return (priority, order, kind, -number)


class Helpers:
    """Which jobs are suspended for an operation, and whom that makes helpers run as."""

    def __init__(self, effective: Callable[[Job], Job]) -> None:
        self._effective = effective
        self._by_process: dict[int, list[Job]] = {}
        self._by_device: dict[int, list[Job]] = {}
        self._devices: dict[int, tuple[int, ...]] = {}

    def suspend(self, job: Job, process: int) -> None:
        """The job waits for an operation on units that it owns."""
        devices = tuple({unit.device for unit in job.owned})
        self._devices[id(job)] = devices
        self._by_process.setdefault(process, []).append(job)
        for device in devices:
            self._by_device.setdefault(device, []).append(job)

    def wake(self, job: Job, process: int) -> None:
        """The job no longer waits."""
        for device in self._devices.pop(id(job), ()):
            self._by_device[device].remove(job)
        if job in self._by_process.get(process, ()):
            self._by_process[process].remove(job)

    def interrupt(self, device: int) -> Job | None:
        """Whose priority the interrupt thread of this device has; None: its base."""
        return self._strongest(self._by_device.get(device, ()))

    def worker(self, process: int) -> Job | None:
        """Whose priority the workers of this process have; None: their base."""
        return self._strongest(self._by_process.get(process, ()))

    def _strongest(self, jobs: Iterable[Job]) -> Job | None:
        best: Job | None = None
        best_base: Base = (LOWEST, 0)
        for job in jobs:
            lender = self._effective(job)
            if lender.base > best_base:
                best, best_base = lender, lender.base
        return best
