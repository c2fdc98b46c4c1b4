"""Priority inheritance: the first half of the rule `inheritance` (PIX, PIX/RIX §4).

The stream does not say which servers follow the protocol, so each is watched until it had a client
more important than itself: from then on it is held to what it did. Ranks change in cascades (a
client's, then its server's, then that one's server's), so they are looked at when one is over.
"""

from __future__ import annotations

from headway.trace.checker.books import Books, TaskBook
from headway.trace.checker.rules import Report


class Ranks:
    """Compares the ranks of tasks with their own and their clients'."""

    def __init__(self, books: Books, report: Report) -> None:
        self._books = books
        self._report = report
        self._changed: dict[TaskBook, None] = {}

    def touch(self, task: TaskBook) -> None:
        """This task's rank or the requests to it changed."""
        self._changed[task] = None
        for request in task.asking.values():
            self._changed[request.server] = None

    def forget(self, task: TaskBook) -> None:
        self._changed.pop(task, None)

    def settle(self, ns: int) -> None:
        """The cascade is over: every rank must be explained now."""
        if not self._changed:
            return
        for task in self._changed:
            self._check(task, ns)
        self._changed.clear()

    def _check(self, task: TaskBook, ns: int) -> None:
        own = task.base_rank
        clients = [request.client for request in task.serving.values()]
        if not clients:
            if task.rank != own:
                self._report(
                    ns,
                    "inheritance",
                    f"{task.name} has rank {task.rank} though its own is {own} and no client waits"
                    " for it",
                )
            return
        best = min(clients, key=lambda client: client.rank)
        if best.rank < own and task.pix is None and task.rank in (best.rank, own):
            task.pix = task.rank == best.rank
        expected = min(own, best.rank) if task.pix else own
        if task.rank > expected:
            message = f"worse than {expected}, which is due to it while {best.name} waits for it"
        elif task.rank < expected:
            message = f"better than {expected}, though nobody more important waits for it"
        else:
            return
        self._report(ns, "inheritance", f"{task.name} has rank {task.rank}, {message}")
