"""Clusters: which CPUs and which devices belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.engine.locks.settings import Mistake


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster of devices and the cluster of CPUs whose tasks use it."""

    number: int
    cpus: tuple[int, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clusters:
    """m CPUs in clusters of c and h devices in clusters of g. A device cluster belongs to one CPU
    cluster. Clusters of one are a partitioned system, one cluster of all is a global one."""

    cpus: int
    cpus_each: int
    devices: int
    devices_each: int

    def mistakes(self) -> Iterator[Mistake]:
        """What is wrong with the numbers, by the key that files use."""
        for key, total, each in (
            ("cpus", self.cpus, self.cpus_each),
            ("devices", self.devices, self.devices_each),
        ):
            if total < 1:
                yield key, total, "a whole number from 1"
            elif each < 1 or total % each:
                yield f"{key}_each", each, f"a divisor of {total}, the number of {key}"
        if not self._sound():
            return
        cpu_clusters = self.cpus // self.cpus_each
        device_clusters = self.devices // self.devices_each
        if device_clusters % cpu_clusters:
            yield (
                "devices_each",
                self.devices_each,
                f"clusters that {cpu_clusters} clusters of CPUs can share evenly, found "
                f"{device_clusters}",
            )

    def _sound(self) -> bool:
        numbers = (self.cpus, self.cpus_each, self.devices, self.devices_each)
        return min(numbers) > 0 and not (
            self.cpus % self.cpus_each or self.devices % self.devices_each
        )

    def __iter__(self) -> Iterator[Cluster]:
        """Every cluster of devices, those of the first CPU cluster first."""
        each = (self.devices // self.devices_each) // (self.cpus // self.cpus_each)
        for number in range(self.devices // self.devices_each):
            first_cpu = number // each * self.cpus_each
            first = number * self.devices_each
            yield Cluster(
                number,
                tuple(range(first_cpu, first_cpu + self.cpus_each)),
                tuple(range(first, first + self.devices_each)),
            )
