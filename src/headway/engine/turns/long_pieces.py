"""While it is known when somebody more important comes, pieces that are over by then may be longer
than a window. Then there are fewer gates, each of which costs a program some microseconds.

What is known is told to the program, for only there it is known when a piece will run: it may be
many of them ahead of the GPU. Whoever comes unexpectedly waits for such a piece at most.
"""

from __future__ import annotations

from collections.abc import Collection

from headway.engine.turns.arrivals import PeriodEstimator
from headway.engine.turns.client import Client

NOTHING = (0, 0, 0, 0)


class LongPieces:
    """Who may count on what."""

    def __init__(self, clients: Collection[Client], calm_ns: int) -> None:
        self._clients = clients
        self._calm_ns = calm_ns

    def tell(self) -> None:
        """Who is there has changed, or what is known of them. Who shares its turns with equals, or
        has a budget, cannot tell when a piece of it will run."""
        if not self._calm_ns:
            return
        levels: dict[int, list[Client]] = {}
        for client in self._clients:
            if client.task is not None:
                levels.setdefault(client.task.priority, []).append(client)
        above: list[PeriodEstimator] = []
        for level in sorted(levels, reverse=True):
            known = self._known_of(above)
            for client in levels[level]:
                alone = len(levels[level]) == 1 and client.task and client.task.reserve is None
                if client.turns and client.port is not None:
                    client.port.set_calm(*(known if alone else NOTHING))
            above.extend(client.jobs.arrivals for client in levels[level])

    def _known_of(self, above: list[PeriodEstimator]) -> tuple[int, int, int, int]:
        """How long pieces may be, when the next of these jobs begins, how much later the one after
        that, and how long it takes. Of several who come only the first is known."""
        regular = [arrivals for arrivals in above if arrivals.soonest_ns is not None]
        if not regular or len(regular) != len(above):
            return NOTHING
        first = min(regular, key=lambda arrivals: arrivals.soonest_ns or 0)
        period_ns = first.period_ns if len(regular) == 1 else 0
        return self._calm_ns, first.soonest_ns or 0, period_ns, first.job_ns
