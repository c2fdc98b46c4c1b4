"""Spaces: which share of the multiprocessors each program at the gate may use while others run.

The same controller says for how long others may be on the GPU beside a task's jobs, and which share
they may have: a program that keeps to its share need not stop as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.engine.controllers import Controller
from headway.engine.events import Observer
from headway.engine.jobs import Job
from headway.engine.model import Task
from headway.engine.shares import LEAST_PERMILLE, WHOLE_PERMILLE
from headway.engine.turns.client import Client

MOST = 64
"""Programs whose shares are looked at with one heartbeat: of very many, looking at all would take
too long."""


@dataclass(slots=True)
class _Told:
    """One program, and what it was told."""

    task: Task
    share: int = WHOLE_PERMILLE
    level: int = WHOLE_PERMILLE
    whole: int = 0
    """Its groups so far that had all multiprocessors though they were to have fewer."""


class Spaces(Observer):
    """Publishes to each program at the gate which share it may use.

    Only programs that run beside others have one: in time slices nothing runs beside, so a share
    would slow a program down for nobody's good.
    """

    def __init__(self, record: Callable[..., None]) -> None:
        self.controller = Controller()
        self._record = record
        self._told: dict[Client, _Told] = {}
        """Who was looked at last stands last."""

    def choose(self, controller: Controller) -> None:
        """Another controller decides from now on."""
        self.controller = controller
        for client, told in self._told.items():
            client.company.controller = controller
            controller.joins(told.task)

    def arrived(self, client: Client) -> None:
        """A program is there."""
        if client.task is not None:
            self._told[client] = _Told(client.task)
            client.company.controller = self.controller
            self.controller.joins(client.task)

    def gone(self, client: Client) -> None:
        """It has left, and perhaps its task before."""
        told = self._told.pop(client, None)
        if told is not None:
            self.controller.leaves(told.task)

    def told(self, client: Client) -> int:
        """The share that a program was told, in thousandths."""
        told = self._told.get(client)
        return WHOLE_PERMILLE if told is None else told.share

    def job_ended(self, job: Job, now_ns: int) -> None:
        """Others may have to get less at once."""
        level = self.controller.level(job.task)
        for told in self._told.values():
            if told.task is job.task and told.level != level:
                told.level = level
                self.publish(now_ns)
                return

    def publish(self, now_ns: int) -> None:
        """Tell programs what they may use, as far as that has changed."""
        some = list(self._told)[:MOST]
        for client in some:
            told = self._told[client] = self._told.pop(client)
            beside = client.company.side_by_side
            share = self.controller.share(told.task) if beside else WHOLE_PERMILLE
            if client.port is not None and share != told.share:
                told.share = share
                client.port.set_share(share)
                self._record("share_set", told.task, share, at_ns=now_ns)
        keeps = {client: self._is_confined(client) for client in some}
        for client in some:
            task = self._told[client].task
            below = [other for other in some if self._told[other].task.rank > task.rank]
            # Who may not be given so little as the task stands is gated in time.
            level = max(self.controller.level(task), LEAST_PERMILLE)
            client.company.in_space = bool(below) and all(
                self._told[other].share <= level and keeps[other] for other in below
            )

    def _is_confined(self, client: Client) -> bool:
        """Whether the program keeps to its share by itself, so that it need not stop as well: with
        all of its work since the last time."""
        port, told = client.port, self._told[client]
        if port is None:
            return False
        before, told.whole = told.whole, port.whole
        return told.whole == before and 0 < port.share <= told.share
