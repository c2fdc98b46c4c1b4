"""Ranks of tasks: by their priority rules, by clients that wait for them, by stepping back."""

from __future__ import annotations

from collections.abc import Callable

from headway.engine.inheritance import Links, Request, inherited_rank
from headway.engine.ledger import Ledger
from headway.engine.model import BEHIND_ALL, Task, behind_equals
from headway.engine.queue import ReadyQueue

Tell = Callable[..., None]


class Ranks:
    """Keeps each task's rank up to date, and who waits for whom (inheritance.py)."""

    def __init__(self, queue: ReadyQueue, ledger: Ledger, tell: Tell, device: int = 0) -> None:
        self._queue = queue
        self._ledger = ledger
        self._tell = tell
        self._links: dict[Task, Links] = {}
        self._numbers = device << 40
        """Of the last request. Engines of several GPUs count apart: one stream has the records of
        all."""

    def add(self, task: Task, *, pix: bool, rix: bool) -> None:
        """A task is new: `pix` and `rix` say which protocols its clients' requests follow."""
        self._links[task] = Links(pix=pix, rix=rix)
        self.refresh(task, quiet=True)

    def remove(self, task: Task) -> None:
        """A task is gone, and nobody waits for it any more."""
        del self._links[task]

    def refresh(self, task: Task, *, quiet: bool = False) -> None:
        """Work out the rank anew, with what is inherited, and carry it on to servers."""
        base_rank = task.rule.rank(task, task.waiting)
        if task.steps_back:
            base_rank = behind_equals(base_rank) if task.steps_back == 1 else BEHIND_ALL
        rank = inherited_rank(base_rank, self._links[task])
        if (rank, base_rank) == (task.rank, task.base_rank) and not quiet:
            return
        task.base_rank = base_rank
        was_ready = task.in_ready_queue
        if was_ready:
            self._queue.pull(task)
        task.rank = task.key = rank
        if was_ready and task.waiting is not None:
            self._queue.push(task.waiting)
        if not quiet:
            self._tell("ranked", task)
        for request in self._links[task].asking.values():
            self.refresh(request.server)

    def enter(self, client: Task, server: Task, now_ns: int) -> Request:
        """The client asks the server for something: the server inherits."""
        self._numbers += 1
        request = Request(self._numbers, client, server, rix=self._links[server].rix)
        self._links[server].serving[request.number] = request
        self._links[client].asking[request.number] = request
        self._tell("entered", request)
        self.refresh(server)
        self._ledger.lend(request)
        self._ledger.settle(request, now_ns)
        return request

    def leave(self, request: Request, now_ns: int) -> None:
        """The request was answered, in whatever order, or one of the two is gone."""
        client, server = request.client, request.server
        links = self._links.get(server)
        if links is None or links.serving.pop(request.number, None) is None:
            return
        self._links[client].asking.pop(request.number)
        self._ledger.give_back(request)
        self._ledger.settle(request, now_ns)
        self.refresh(server)
        self._tell("left", request)

    def requests_to(self, task: Task) -> list[Request]:
        """What the task's clients wait for, in the order in which they asked."""
        links = self._links.get(task)
        return [] if links is None else list(links.serving.values())

    def requests_of(self, task: Task) -> list[Request]:
        """What the task asked for, and what its clients asked of it."""
        links = self._links[task]
        return [*links.asking.values(), *links.serving.values()]

    def requests(self) -> list[Request]:
        """Every pending request, in the order in which they came."""
        asking = (request for links in self._links.values() for request in links.asking.values())
        return sorted(asking, key=lambda request: request.number)

    def waits_for(self, server: Task, client: Task) -> bool:
        """Does the server already wait, directly or not, for this client?"""
        asked = [request.server for request in self._links[server].asking.values()]
        return any(other is client or self.waits_for(other, client) for other in asked)
