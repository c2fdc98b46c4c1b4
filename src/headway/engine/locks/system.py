"""A machine under GPUSync and the tasks on it: what the simulator runs and the analysis bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from headway.engine.locks.budgets import BudgetSettings
from headway.engine.locks.clusters import Cluster, Clusters
from headway.engine.locks.copies import CopySettings
from headway.engine.locks.settings import AllocatorSettings, Mistake, preset
from headway.engine.locks.topology import Topology
from headway.engine.locks.unit_locks import ORDERS

SCHEDULERS = ("edf", "rm")
MIGRATIONS = ("peer", "system")


@dataclass(frozen=True, slots=True)
class Bus:
    """How fast devices copy. Each device has a link, each CPU cluster a hub; both carry as much in
    one direction as in the other, and transfers in flight share them evenly (max-min)."""

    link: int = 6_000_000_000
    """Bytes a second, of each device and direction."""
    hub: int = 24_000_000_000
    """Bytes a second, of each hub and direction. Copies between devices behind one switch, at
    distance 1, do not cross the hub."""


@dataclass(frozen=True, slots=True)
class LockSystem:
    """The machine and how its locks are configured."""

    clusters: Clusters
    scheduler: str = "edf"
    rho: int = 1
    """Tokens of each device."""
    allocator: str = "r2dglp-wc"
    length: int | None = None
    """The queues' length, with the allocator "length" only."""
    unit_order: str = "fifo"
    copies: CopySettings = field(default_factory=CopySettings)
    migration: str = "peer"
    """How state moves: "peer" copies it when it is needed; "system" copies it to the host after
    every job, and back if the next job is on another device."""
    affinity: bool = True
    distances: tuple[tuple[int, ...], ...] | None = None
    bus: Bus = field(default_factory=Bus)
    interrupt_ns: int = 5_000
    """CPU time of a device's interrupt thread for each operation that is done."""
    worker_ns: int = 5_000
    """CPU time of the process's runtime worker after that."""
    launch_ns: int = 0
    """CPU time of a job before each operation, with the unit's lock held."""
    budgets: BudgetSettings = field(default_factory=BudgetSettings)
    slices: int = 1
    """As how many devices each GPU stands: parts of its multiprocessors."""

    def mistakes(self) -> Iterator[Mistake]:
        """What is wrong with the settings, by the key that files use."""
        yield from self.clusters.mistakes()
        if self.scheduler not in SCHEDULERS:
            yield "scheduler", self.scheduler, " or ".join(SCHEDULERS)
        if self.unit_order not in ORDERS:
            yield "units", self.unit_order, " or ".join(ORDERS)
        if self.migration not in MIGRATIONS:
            yield "migration", self.migration, " or ".join(MIGRATIONS)
        for key, rate in (("link", self.bus.link), ("hub", self.bus.hub)):
            if rate < 1:
                yield key, rate, "more than zero"
        if self.budgets.policy == "bwi" and self.scheduler != "edf":
            yield "policy", "bwi", "another, or the scheduler edf, which bwi is for"
        yield from self.copies.mistakes()
        yield from self.budgets.mistakes()
        if not any(True for _ in self.clusters.mistakes()):
            if self.slices < 1 or self.clusters.devices % self.slices:
                expected = f"a divisor of {self.clusters.devices}, the number of gpus"
                yield "slices", self.slices, expected
            if self.bus.link > 0 and self.bus.hub > 0 and self.worst_rate < 1:
                narrow = "link" if self.bus.link < self.bus.hub else "hub"
                found = getattr(self.bus, narrow)
                yield narrow, f"{found}B/s", "1B/s and more for each copy that may be in flight"
            if (self.length is not None) != (self.allocator == "length"):
                wanted = "a queue length" if self.length is None else "none"
                found = "nothing" if self.length is None else self.length
                yield "length", found, f"{wanted} with the allocator {self.allocator}"
            else:
                try:
                    self.token_settings(next(iter(self.clusters)))
                except ValueError as error:
                    yield "allocator", self.allocator, str(error)
            try:
                self.topology()
            except ValueError as error:
                place, found, expected = _parts(str(error))
                yield "distances", f"{found} at {place}" if found else "another table", expected

    def topology(self) -> Topology:
        """Distances between all devices of the machine."""
        return Topology(self.clusters.devices, self.distances)

    def token_settings(self, cluster: Cluster) -> AllocatorSettings:
        """The settings of the allocator of one cluster of devices."""
        return preset(
            self.allocator,
            cpus=len(cluster.cpus),
            devices=len(cluster.devices),
            rho=self.rho,
            length=self.length,
        )

    def hub_of(self, device: int) -> int:
        """The CPU cluster whose hub a device is behind."""
        each = self.clusters.devices // (self.clusters.cpus // self.clusters.cpus_each)
        return device // each

    @property
    def worst_rate(self) -> int:
        """Bytes a second that a copy has at least, however many others are in flight. The links
        and hubs of one direction carry one copy for each copy engine that can copy that way."""
        per_device = 2 if self.copies.units == 2 and self.copies.reserved else 1
        if self.copies.units == 2 and self.copies.outbound_pair:
            per_device = 2  # the second engine of the target copies inwards
        hubs = self.clusters.cpus // self.clusters.cpus_each
        behind = self.clusters.devices // hubs
        return min(self.bus.link // per_device, self.bus.hub // (per_device * behind))


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """What a job does in its token section: input, kernels, output; the task keeps state."""

    kernels_ns: tuple[int, ...]
    input_bytes: int = 0
    output_bytes: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LockTask:
    """A periodic or sporadic task. A job computes, has its token section, and computes again."""

    name: str
    period_ns: int
    deadline_ns: int
    """Relative to the release."""
    cpu_ns: int
    """CPU time before and after the section."""
    work: DeviceWork | None = None
    cpus: int = 0
    """The number of its CPU cluster."""
    devices: int = 0
    """The number of its cluster of devices, among all; of no meaning without `work`."""
    budget_ns: int | None = None
    """What a job may use; None: what it needs, and a twentieth."""
    least: Fraction = Fraction(1)
    """No job is shorter than this fraction of it. Only tasks without a bound need to know."""
    jitter_ns: int = 0
    """How much later than its release a job may begin."""


def _parts(mistake: str) -> tuple[str, str, str]:
    """Place, what was found if that is said, and what was expected."""
    before, _, expected = mistake.partition("expected ")
    place, _, found = before.partition(": ")
    return place, found.removeprefix("found ").rstrip(", "), expected
