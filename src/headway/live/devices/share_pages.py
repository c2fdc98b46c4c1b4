"""Shares of programs under the interposer: published in their pages, and changed while they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.engine.controllers import Controller
from headway.engine.events import Observer
from headway.engine.jobs import Job
from headway.engine.model import Task
from headway.engine.shares import WHOLE_PERMILLE
from headway.live.gate.channel import Channel

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


class SharePages(Observer):
    """Publishes to each program under the interposer which share it may use.

    Only programs that run beside others have one: in time slices nothing runs beside, so a share
    would slow a program down for nobody's good.
    """

    def __init__(self, record: Callable[..., None]) -> None:
        self.controller = Controller()
        self._record = record
        self._told: dict[Channel, _Told] = {}
        """Who was looked at last stands last."""

    def choose(self, controller: Controller) -> None:
        """Another controller decides from now on."""
        self.controller = controller
        for channel, told in self._told.items():
            channel.company.controller = controller
            controller.joins(told.task)

    def arrived(self, channel: Channel) -> None:
        """A program is there."""
        if channel.task is not None:
            self._told[channel] = _Told(channel.task)
            channel.company.controller = self.controller
            self.controller.joins(channel.task)

    def gone(self, channel: Channel) -> None:
        """It has left, and perhaps its task before."""
        told = self._told.pop(channel, None)
        if told is not None:
            self.controller.leaves(told.task)

    def told(self, channel: Channel) -> int:
        """The share that a program was told, in thousandths."""
        told = self._told.get(channel)
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
        for channel in some:
            told = self._told[channel] = self._told.pop(channel)
            beside = channel.company.side_by_side
            share = self.controller.share(told.task) if beside else WHOLE_PERMILLE
            if channel.pages is not None and share != told.share:
                told.share = share
                channel.pages.set_share(share)
                self._record("share_set", told.task, share, at_ns=now_ns)
        for channel in some:
            rank = self._told[channel].task.rank
            below = [other for other in some if self._told[other].task.rank > rank]
            channel.company.in_space = bool(below) and all(map(self._is_confined, below))

    def _is_confined(self, channel: Channel) -> bool:
        """Whether the program keeps to its share by itself, so that it need not stop as well: with
        all of its work since the last time."""
        pages, told = channel.pages, self._told[channel]
        if pages is None:
            return False
        before, told.whole = told.whole, pages.whole
        return told.whole == before and 0 < pages.share <= told.share
