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

from headway.engine.locks.jobs import Job
from headway.engine.locks.unit_locks import Unit

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


def interrupt_lender(units: Iterable[Unit], effective: Callable[[Job], Job]) -> Job | None:
    """Whose priority the interrupt thread of a device has, from the device's units."""
    return worker_lender((unit.owner for unit in units if unit.owner is not None), effective)


def worker_lender(jobs: Iterable[Job], effective: Callable[[Job], Job]) -> Job | None:
    """Whose priority the workers of a process have, from the jobs of its threads."""
    lenders = [effective(job) for job in jobs if job.in_operation and job.owned]
    return max(lenders, key=lambda job: job.base, default=None)
