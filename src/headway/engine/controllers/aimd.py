"""CudaMon's controller: additive increase, multiplicative decrease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.controllers import Controller, controller
from headway.engine.shares import LEAST_PERMILLE, WHOLE_PERMILLE, Sharer

if TYPE_CHECKING:
    from headway.engine.jobs import Job

STEP = 10
"""One per cent (§3.4)."""


@controller("aimd")
class Aimd(Controller):
    """A miss halves the share of every less important task, a job in time adds one per cent to it
    (CudaMon §3.4: "halving the partition of all lower priority tasks when a certain task misses its
    deadline … when a task meets its deadline, we increase the partition of all lower priority tasks
    by 1%").

    The report leaves open three things, which are parameters here and change nothing as they are:
    the floor, and two for actuators that are slow, such as a restart. A share that differs from the
    last published one by less than `hysteresis` is not published, and for `between_ns` after a
    change nothing is published and no miss counts: the job may have run under the share before.
    """

    def __init__(
        self, floor: int = LEAST_PERMILLE, hysteresis: int = 0, between_ns: int = 0
    ) -> None:
        super().__init__()
        if not 0 < floor <= WHOLE_PERMILLE:
            raise ValueError(f"floor: expected more than 0 and at most 1000, found {floor}")
        self._floor = floor
        self._hysteresis = hysteresis
        self._between_ns = between_ns
        self._wanted: dict[str, int] = {}
        """What each task has by the report's rule,"""
        self._published: dict[str, int] = {}
        """and what it was told."""
        self._changed_ns: dict[str, int] = {}

    def joins(self, task: Sharer) -> None:
        """Everybody begins with as much as it may have, as in the report."""
        super().joins(task)
        self._wanted[task.name] = self._published[task.name] = task.shares.most

    def leaves(self, task: Sharer) -> None:
        super().leaves(task)
        for known in (self._wanted, self._published, self._changed_ns):
            known.pop(task.name, None)

    def job_ended(self, job: Job, goal: float) -> None:
        for other in self.below(job.task):
            if job.missed:
                self._halve(other, job.ended_ns)
            else:
                self._add(other, job.ended_ns)

    def _halve(self, task: Sharer, now_ns: int) -> None:
        if self._is_settling(task, now_ns):
            return
        # The report halves what runs. Where hysteresis holds an increase back, that is less.
        halved = self._published[task.name] // 2
        self._wanted[task.name] = self._bound(task, halved)
        self._publish(task, now_ns)

    def _add(self, task: Sharer, now_ns: int) -> None:
        wanted = self._bound(task, self._wanted[task.name] + STEP)
        self._wanted[task.name] = wanted
        rise = wanted - self._published[task.name]
        enough = rise >= max(self._hysteresis, self.quantum) or wanted == task.shares.most
        if enough and not self._is_settling(task, now_ns):
            self._publish(task, now_ns)

    def _bound(self, task: Sharer, permille: int) -> int:
        return task.shares.bound(max(self._floor, permille))

    def _publish(self, task: Sharer, now_ns: int) -> None:
        if self._published[task.name] != self._wanted[task.name]:
            self._published[task.name] = self._wanted[task.name]
            self._changed_ns[task.name] = now_ns

    def _is_settling(self, task: Sharer, now_ns: int) -> bool:
        changed_ns = self._changed_ns.get(task.name)
        return changed_ns is not None and now_ns < changed_ns + self._between_ns

    def share(self, task: Sharer) -> int:
        return task.shares.bound(self._published.get(task.name, task.shares.most))

    def level(self, task: Sharer) -> int:
        """The most that any less important task has."""
        return max((self.share(other) for other in self.below(task)), default=WHOLE_PERMILLE)
