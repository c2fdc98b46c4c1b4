"""Shares of simulated programs by a controller, without a gate: what `headway launch` does.

Programs say what becomes of their jobs, the engine's controller decides, and a program gets another
share with its next kernel, or, if that takes a restart, when it has ended its job and come back.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.engine.actuation import WORTH_A_RESTART, Actuation
from headway.engine.controllers import controllers
from headway.engine.core import Engine
from headway.engine.jobs import Job
from headway.engine.model import Task
from headway.engine.shares import LEAST_PERMILLE, Range
from headway.sim.cuda.clock import Clock
from headway.sim.cuda.commands import Context
from headway.sim.cuda.manager import Management
from headway.sim.cuda.program import DoneJob, Program
from headway.sim.cuda.work import CudaPlan


@dataclass(eq=False)
class _Member(Actuation):
    """One program, and the share that it has."""

    task: Task
    context: Context
    program: Program
    jobs: int = 0


class ShareManager:
    """Moves shares by what becomes of jobs, as the daemon's share server does."""

    def __init__(self, clock: Clock, engine: Engine, how: Management) -> None:
        self._clock = clock
        self._engine = engine
        self._how = how
        self._controller = controllers()[how.controller]()
        if how.restart_ns is not None and how.few_restarts:
            self._controller.quantum = WORTH_A_RESTART
        self._members: dict[Task, _Member] = {}

    def add(self, task: Task, context: Context, program: Program, plan: CudaPlan) -> None:
        """A program uses the device from now on; its plan's share is the most it may have."""
        task.shares = Range(LEAST_PERMILLE, plan.share)
        restarts = self._how.restart_ns is not None
        self._members[task] = _Member(task, context, program, restarts=restarts)
        self._controller.joins(task)
        member = self._members[task]
        member.told = member.applied = self._controller.share(task)
        self._have(member, member.told)

    def remove(self, task: Task) -> None:
        """A program is gone."""
        if self._members.pop(task, None) is not None:
            self._controller.leaves(task)

    def job_done(self, task: Task, done: DoneJob) -> None:
        """A program says what became of a job, which is heard a moment later."""
        now_ns = self._clock.now_ns + self._how.reacts_ns
        self._clock.at(now_ns, lambda: self._heard(task, done))

    def _heard(self, task: Task, done: DoneJob) -> None:
        member = self._members.get(task)
        if member is None:
            return
        now_ns = self._engine.now_ns = self._clock.now_ns
        missed = done.missed
        job = Job(task, done.index, done.begun_ns, done.ended_ns, done.deadline_ns, missed=missed)
        member.jobs += 1
        member.speak(now_ns)
        self._engine.tell("job_ended", job)
        if done.begun_ns >= max(map(self._settled_ns, self._below(task)), default=0):
            self._controller.job_ended(job, self._how.slowdown)
        for other in self._members.values():
            self._publish(other)

    def _below(self, task: Task) -> list[_Member]:
        return [other for other in self._members.values() if other.task.rank > task.rank]

    def _settled_ns(self, member: _Member) -> int:
        share, most = self._controller.share(member.task), member.task.shares.most
        return member.settled_ns(share, most, self._clock.now_ns, speaks=bool(member.jobs))

    def _publish(self, member: _Member) -> None:
        task, now_ns = member.task, self._clock.now_ns
        share = self._controller.share(task)
        if self._how.few_restarts:
            due = member.is_due(share, task.shares.most, now_ns)
        else:
            due = share != member.told and not member.is_pending
        if not due:
            return
        member.tell(share, now_ns)
        if self._how.restart_ns is None:
            self._have(member, share)
        else:
            member.program.restart(self._how.restart_ns, lambda: self._have(member, share))

    def _have(self, member: _Member, share: int) -> None:
        now_ns = self._engine.now_ns = self._clock.now_ns
        member.context.device.set_share(member.context, share)
        member.apply(share, now_ns)
        self._engine.tell("share_set", member.task, share)
