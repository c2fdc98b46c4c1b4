"""At once: programs that may begin a turn with the asking for it.

A program's port says so before the program asks, so all who were told have to hear of it whenever
somebody else comes onto the GPU or leaves it. To tell everybody would make each grant the slower
the more programs there are. So a few have it: the most important, and of equals those that asked
last. The others ask, and wait for the answer.
"""

from __future__ import annotations

from collections.abc import Collection

from headway.engine.model import Task
from headway.engine.turns.client import Client

MOST = 8
"""Pages that are written with one grant, a microsecond each."""


class AtOnce:
    """Who was told."""

    def __init__(self) -> None:
        self._told: dict[Client, None] = {}
        """Who asked last stands last."""

    def asks(self, client: Client) -> None:
        """A program takes turns, or asks for one: it may be among the few from now on."""
        task = client.task
        if task is None or client.port is None or not task.policy.at_once:
            return
        if client not in self._told and len(self._told) >= MOST:
            last = max(self._told, key=_rank)
            if task.rank > _rank(last):
                return
            self.gone(last)
        self._told.pop(client, None)
        self._told[client] = None

    def gone(self, client: Client) -> None:
        """The program is not among them any more."""
        if client in self._told:
            del self._told[client]
            _tell(client, on=False)

    def above(self, task: Task) -> list[Client]:
        """Of the most important programs those that come before the task and stand nobody beside
        their jobs."""
        return [
            client
            for client in self._told
            if client.task is not None and client.task.rank < task.rank and not client.task.corun
        ]

    def tell(self, online: Collection[Client]) -> None:
        """Tell each whether it may, as the GPU is now."""
        there = [c.task for c in online if c.task is not None and not c.task.corun]
        best_rank = min((task.rank for task in there), default=None)
        alike = {task.mixes for task in there if task.rank == best_rank}
        for client in list(self._told):
            task = client.task
            if task is None or not task.policy.at_once:
                self.gone(client)
                continue
            funded = task.reserve is None or task.reserve.budget_ns > 0
            first = best_rank is None or task.rank < best_rank
            if task.rank == best_rank and task.mixes is not None:
                first = alike == {task.mixes}
            _tell(client, on=funded and first and client not in online)


def _rank(client: Client) -> int:
    return 0 if client.task is None else client.task.rank


def _tell(client: Client, *, on: bool) -> None:
    if client.port is not None:
        client.port.set_at_once(on)
