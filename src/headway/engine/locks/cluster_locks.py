"""The locks of one cluster: a token allocator, the units of its devices and what both lend.

A job needs a token of a device to use that device's units; a peer-to-peer copy also takes a unit of
the device that its state comes from. `withdraw` ends a job at any point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headway.engine.locks.affinity import Affinity
from headway.engine.locks.by_priority import PriorityAllocator
from headway.engine.locks.clusters import Cluster
from headway.engine.locks.copies import CopySettings
from headway.engine.locks.donation import DonationAllocator
from headway.engine.locks.jobs import Grant, Job, LockError, Place
from headway.engine.locks.settings import AllocatorSettings
from headway.engine.locks.tokens import Placement, TokenAllocator
from headway.engine.locks.unit_locks import UnitLocks


class Effects(NamedTuple):
    """What an event set in motion."""

    grants: list[Grant]
    """Jobs that hold a token from now on."""
    started: list[Job]
    """Jobs that own all the units they asked for from now on."""


def make_allocator(
    settings: AllocatorSettings, placement: Placement | None = None
) -> TokenAllocator:
    """The allocator of these settings; without a placement there is no affinity."""
    if settings.order == "priority":
        settings = replace(settings, length=1, cap=settings.tokens)
        return PriorityAllocator(settings, placement)
    return DonationAllocator(settings, placement)


class ClusterLocks:
    """All locks of a cluster of devices. Devices are named by their numbers on the machine."""

    def __init__(
        self,
        cluster: Cluster,
        settings: AllocatorSettings,
        *,
        copies: CopySettings | None = None,
        unit_order: str = "fifo",
        affinity: Affinity | None = None,
    ) -> None:
        if settings.devices != len(cluster.devices):
            raise LockError(f"g: found {settings.devices}, expected {len(cluster.devices)} devices")
        self.cluster = cluster
        self.copies = CopySettings() if copies is None else copies
        for key, found, expected in self.copies.mistakes():
            raise LockError(f"{key}: found {found}, expected {expected}")
        self.affinity = affinity
        self.tokens = make_allocator(settings, affinity)
        self.units = UnitLocks(
            cluster.devices, unit_order, copy_units=self.copies.units, lender=self.tokens.lender
        )

    # -- questions ---------------------------------------------------------------------------

    def device_of(self, job: Job) -> int:
        """The device on which the job holds a token."""
        if not self.tokens.holds(job):
            raise LockError(f"{job.name} uses a device, but holds no token; ask for one first")
        return self.cluster.devices[self.tokens.settings.device_of(job.token)]

    def effective(self, job: Job) -> Job:
        """The job whose base priority this one runs with."""
        return self.units.effective(job)

    # -- tokens ------------------------------------------------------------------------------

    def request(self, job: Job) -> Effects:
        """The job asks for a token."""
        return self._after(self.tokens.request(job))

    def release(self, job: Job) -> Effects:
        """The job gives its token back; it must have given its units back before."""
        if job.owned or job.claim is not None:
            raise LockError(f"{job.name} releases its token, but has or waits for units of it")
        return self._after(self.tokens.release(job))

    def change(self, job: Job, priority: int) -> Effects:
        """The job's base priority is another."""
        return self._after(self.tokens.change(job, priority))

    def unlock_virtually(self, job: Job) -> Effects:
        """The holder overran its budget under bandwidth inheritance."""
        return self._after(self.tokens.unlock_virtually(job))

    # -- units -------------------------------------------------------------------------------

    def take(self, job: Job, units: Sequence[tuple[int, str]], home: int | None = None) -> Effects:
        """The job asks for units, as (device, kind). `home` is the device from which its state is
        moved; any other device must be the one of its token."""
        device = self.device_of(job)
        allowed = {device} if home is None else {device, home}
        wrong = next((d for d, _ in units if d not in allowed), None)
        if wrong is not None:
            raise LockError(f"{job.name} uses device {wrong}, but holds a token of device {device}")
        if len(units) > 1 and home is None:
            raise LockError(f"{job.name} asks for {len(units)} units, expected one at a time")
        return Effects([], self.units.request(job, [self.units.unit(*unit) for unit in units]))

    def give_back(self, job: Job) -> Effects:
        """The job gives back its units."""
        return Effects([], self.units.release(job))

    # -- the end -----------------------------------------------------------------------------

    def withdraw(self, job: Job) -> Effects:
        """The job died or gave up, wherever it stands: its units, then its token or its request."""
        started = self.units.cancel(job)
        if job.place is Place.NOWHERE:
            return Effects([], started)
        grants, more = self._after(self.tokens.cancel(job))
        return Effects(grants, [*started, *more])

    def _after(self, grants: list[Grant]) -> Effects:
        return Effects(grants, self.units.refresh())
