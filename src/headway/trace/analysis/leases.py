"""GPU time under leases: told now and then while a lease goes on, and as a whole at its end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Lease:
    index: int
    gpu: int
    since_ns: int
    """From when on nothing of its GPU time was told."""
    told_ns: int = 0


class Leases:
    """What is known of the leases that go on, by the number of their task."""

    def __init__(self) -> None:
        self._open: dict[int, _Lease] = {}

    def begin(self, number: int, index: int, gpu: int, ns: int) -> None:
        self._open[number] = _Lease(index, gpu, ns)

    def tell(self, number: int, used_ns: int, ns: int) -> tuple[int, int, int] | None:
        """The group's index, its GPU, and when the GPU time that is told now began: it ends now,
        for nobody knows better, and does not begin before what was told last."""
        lease = self._open.get(number)
        if lease is None or used_ns <= 0 or ns <= lease.since_ns:
            return None
        started_ns = max(ns - used_ns, lease.since_ns)
        lease.told_ns += ns - started_ns
        lease.since_ns = ns
        return lease.index, lease.gpu, started_ns

    def end(self, number: int, started_ns: int, ns: int) -> int:
        """When the GPU time began of which nothing was told, if the whole would have begun then."""
        lease = self._open.pop(number, None)
        if lease is None or not lease.told_ns:
            return started_ns
        rest_ns = max(0, ns - started_ns - lease.told_ns)
        return max(ns - rest_ns, min(lease.since_ns, ns))

    def forget(self) -> None:
        self._open.clear()

    def renumber(self, numbers: dict[int, int]) -> None:
        self._open = {numbers[n]: lease for n, lease in self._open.items() if n in numbers}
