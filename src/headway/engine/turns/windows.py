"""How much work of a program goes to the GPU at once, so that the others need not wait for more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.engine.turns.client import Client

DEFAULT_SPLIT_NS = 500_000
DEFAULT_WINDOW_NS = 200_000
WIDER, WIDEST = 10, 25
"""So many of them at least, and at most, are one where nobody more important is there."""
PERIODS, CAPACITIES = 20, 4
"""Between the two: such a part of the shortest period, and of a budget, where all have reserves."""


@dataclass(frozen=True, slots=True)
class Windows:
    """What programs are told while it matters."""

    split_ns: int
    """Groups of more than this are split."""
    window_ns: int
    """Of one who takes turns, no more predicted work than this is in flight."""

    def set(self, clients: Iterable[Client]) -> None:
        """Splitting bounds what the others wait for, and how far a budget is overrun. A program
        that is alone and has no budget is left as it is; the first to come meets at most what its
        driver had queued, once."""
        served = [c for c in clients if c.task is not None]
        crowded = any(c.process != served[0].process for c in served)
        for client in served:
            if client.port is not None and client.task is not None:
                bounded = crowded or client.task.reserve is not None
                client.port.set_split(self.split_ns if bounded else 0)
                client.port.set_window(self._window_ns(client, served) if bounded else 0)

    def _window_ns(self, client: Client, others: list[Client]) -> int:
        """Somebody more important waits for a window at most. Equals wait for slices anyway, and a
        budget is for much more than a window: a wider one keeps the GPU busy, the more so the
        fewer gates there are."""
        level = _level(client)
        if any(_level(c) > level for c in others):
            return self.window_ns
        equals = [c for c in others if _level(c) == level]
        reserves = [c.task.reserve for c in equals if c.task is not None]
        own = client.task.reserve if client.task is not None else None
        if own is None:
            return WIDER * self.window_ns if len(equals) > 1 else 0
        periods_ns = (0 if reserve is None else reserve.period_ns for reserve in reserves)
        bound_ns = min(min(periods_ns) // PERIODS, own.capacity_ns // CAPACITIES)
        return min(max(WIDER * self.window_ns, bound_ns), WIDEST * self.window_ns)


def _level(client: Client) -> int:
    return client.task.priority if client.task is not None else 0
