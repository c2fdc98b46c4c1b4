"""The bus: transfers in flight share links and hubs evenly, as fluids do (max-min fairness).

A transfer's rate changes whenever another one starts or ends. What remains of each is kept exactly,
in bytes times nanoseconds a second, so no rounding adds up.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from headway.engine.locks.copies import Move
from headway.engine.locks.system import Bus
from headway.engine.locks.topology import Topology

SECOND_NS = 1_000_000_000
Route = tuple[Hashable, ...]
"""The links and hubs that a transfer crosses."""


@dataclass(frozen=True, slots=True)
class Path:
    """From where to where; `number` is its bit in the set of transfers in flight."""

    number: int
    route: Route


class Transfer:
    """Bytes on their way."""

    __slots__ = ("owner", "path", "rate", "remaining")

    def __init__(self, path: Path, size: int, owner: Any) -> None:
        self.path = path
        self.remaining = size * SECOND_NS
        self.rate = 1
        self.owner = owner


class FluidBus:
    """The links of a node's devices and their hub."""

    def __init__(self, bus: Bus, topology: Topology) -> None:
        self._bus = bus
        self._topology = topology
        self._paths: dict[tuple[Move, int, int], Path] = {}
        self._flows: dict[Path, Transfer] = {}
        self._in_flight = 0
        self._rates: dict[int, dict[int, int]] = {}
        self._now_ns = 0

    def path(self, move: Move, source: int, target: int) -> Path:
        """The way of a copy. The host's end of it counts for nothing."""
        if move in (Move.IN, Move.STATE_IN):
            key: tuple[Move, int, int] = (move, -1, target)
            route: Route = (("down", target), "hub down")
        elif move in (Move.OUT, Move.STATE_OUT):
            key = (move, source, -1)
            route = (("up", source), "hub up")
        else:
            key = (move, source, target)
            route = (("up", source), ("down", target))
            if self._topology.distance(source, target) > 1:
                route = (*route, "hub up", "hub down")
        known = self._paths.get(key)
        if known is None:
            known = self._paths[key] = Path(len(self._paths), route)
        return known

    def start(self, path: Path, size: int, owner: Any, now_ns: int) -> None:
        """A transfer begins; `owner` is handed back by `done`. One unit copies at most one thing at
        a time, so no path is in use twice."""
        self._move_to(now_ns)
        self._flows[path] = Transfer(path, size, owner)
        self._in_flight |= 1 << path.number
        self._share()

    def done(self, now_ns: int) -> list[Any]:
        """The owners of all transfers that are complete now."""
        self._move_to(now_ns)
        owners = []
        for path in [p for p, flow in self._flows.items() if flow.remaining <= 0]:
            owners.append(self._flows.pop(path).owner)
            self._in_flight &= ~(1 << path.number)
        if owners:
            self._share()
        return owners

    def next_ns(self) -> int | None:
        """When the next transfer is complete if none starts before."""
        first: int | None = None
        for flow in self._flows.values():
            end = -(-flow.remaining // flow.rate)
            if first is None or end < first:
                first = end
        return None if first is None else self._now_ns + first

    def _move_to(self, now_ns: int) -> None:
        passed = now_ns - self._now_ns
        if passed:
            for flow in self._flows.values():
                flow.remaining -= flow.rate * passed
            self._now_ns = now_ns

    def _share(self) -> None:
        rates = self._rates.get(self._in_flight)
        if rates is None:
            rates = self._rates[self._in_flight] = max_min(
                {path.number: path.route for path in self._flows}, self._capacity
            )
        for path, flow in self._flows.items():
            flow.rate = rates[path.number]

    def _capacity(self, part: Hashable) -> int:
        return self._bus.hub if isinstance(part, str) else self._bus.link


def max_min(routes: dict[int, Route], capacity: Any) -> dict[int, int]:
    """Rates in bytes a second: nobody's can grow without taking from somebody who has no more."""
    left = {part: capacity(part) for route in routes.values() for part in route}
    open_flows = dict(routes)
    rates: dict[int, int] = {}
    while open_flows:
        users = {
            part: [number for number, route in open_flows.items() if part in route] for part in left
        }
        share, tight = min(
            (
                (left[part] // len(numbers), str(part), part)
                for part, numbers in users.items()
                if numbers
            ),
            key=lambda item: item[:2],
        )[::2]
        for number in users[tight]:
            rates[number] = max(share, 1)
            for part in open_flows.pop(number):
                left[part] -= share
    return rates
