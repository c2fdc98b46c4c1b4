"""A stream that takes up a run in the middle first says what there is: nothing is judged there, the
books are filled. Where the past would matter and is not told (how much of a period was used, since
when a group is ready), the books take what accuses nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.engine.events import (
    Charged,
    Dispatched,
    Entered,
    Event,
    LastUsed,
    Moved,
    ReserveSet,
    Submitted,
)
from headway.trace.checker.books import Books, GroupBook, RequestBook, ReserveBook, TaskBook
from headway.trace.checker.ranks import Ranks


class TakeUp:
    """Fills the books from the records between `TakenUp` and `Found`."""

    def __init__(self, books: Books, ranks: Ranks, task: Callable[[str, int], TaskBook]) -> None:
        self._books = books
        self._ranks = ranks
        self._task = task
        self._request: RequestBook | None = None
        """The one that a `Moved` tells of."""
        self.handlers: dict[type[Event], Callable[[Any], None]] = {
            ReserveSet: self._reserve_set,
            LastUsed: self._last_used,
            Submitted: self._submitted,
            Dispatched: self._dispatched,
            Charged: self._charged,
            Entered: self._entered,
            Moved: self._moved,
        }
        """What is told otherwise here; the rest is as ever."""

    def _reserve_set(self, event: ReserveSet) -> None:
        reserve = ReserveBook(
            event.reserve,
            event.policy,
            event.capacity_ns,
            event.period_ns,
            event.budget_ns,
            event.anchor_ns,
            event.shared,
        )
        reserve.passed = reserve.replenished = reserve.begun = reserve.boundary(event.ns)
        reserve.gained_ns = event.ns
        reserve.saved_ns = max(0, event.budget_ns - event.capacity_ns)
        self._books.reserves[event.reserve] = reserve

    def _last_used(self, event: LastUsed) -> None:
        gpu = self._books.gpu(event.gpu)
        gpu.last, gpu.free_ns = self._task(event.task, event.ns), event.ns

    def _submitted(self, event: Submitted) -> None:
        task = self._task(event.task, event.ns)
        group = GroupBook(task, event.index, event.ns, event.predicted_ns)
        task.waiting = self._books.waiting[task] = group
        task.last_index = event.index
        if task.reserve is not None:
            task.reserve.note_wanted()

    def _dispatched(self, event: Dispatched) -> None:
        task = self._task(event.task, event.ns)
        group = task.waiting or GroupBook(task, event.index, event.ns)
        task.waiting = None
        self._books.waiting.pop(task, None)
        task.last_index = None  # on several GPUs a later one may be done already
        group.dispatched_ns = event.ns
        # It has no reserve in the books: which one let it through, and when, was before their time.
        gpu = self._books.gpu(event.gpu)
        gpu.last = task
        gpu.online.append(group)

    def _charged(self, event: Charged) -> None:
        """Not a charge, but what the group has paid."""
        found = self._books.find_online(event.task, event.index)
        if found is not None:
            found[1].charged_ns = event.amount_ns

    def _entered(self, event: Entered) -> None:
        client, server = self._task(event.client, event.ns), self._task(event.server, event.ns)
        request = self._request = RequestBook(event.request, client, server)
        self._books.requests[event.request] = request
        client.asking[event.request] = server.serving[event.request] = request
        self._ranks.touch(server)

    def _moved(self, event: Moved) -> None:
        """Not a move, but what the server holds through the request told before."""
        request = self._request
        if request is None or request.client.reserve is None or request.server.reserve is None:
            return
        request.held_ns = event.amount_ns
        request.server.rix = True
        request.client.reserve.lent.append(request)
        server = request.server.reserve
        server.inherited.add(request)
        server.ahead_ns -= event.amount_ns
