"""A lock file in virtual time: the allocator alone, without CPUs, devices or affinity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from headway.engine.locks.cluster_locks import make_allocator
from headway.engine.locks.jobs import Grant, Job, Place
from headway.engine.locks.tokens import TokenAllocator
from headway.sim.gpusync.lock_file import LockPlan, Name


@dataclass(frozen=True, slots=True)
class Granted:
    """A job got a token."""

    at: int
    name: Name
    token: int


@dataclass(frozen=True, slots=True)
class Step:
    """One event and the allocator's answer, for whoever watches."""

    at: int
    event: str
    allocator: TokenAllocator
    granted: list[Grant]


@dataclass(frozen=True, slots=True)
class LockOutcome:
    """What a lock file came to."""

    grants: list[Granted]
    """By time, then token."""
    ignored: list[str]
    """Events that met no request: it had not been issued yet, or was over."""


Watcher = Callable[[Step], None]


_RELEASE, _EVENT, _REQUEST = range(3)


class LockRun:
    """One run. At one instant: releases by token, then the file's events, then its requests."""

    def __init__(self, plan: LockPlan, watcher: Watcher | None = None) -> None:
        self.allocator = make_allocator(plan.settings)
        self._plan = plan
        self._watcher = watcher
        self._jobs = [
            Job(request.name, request.priority, order)
            for order, request in enumerate(plan.requests)
        ]
        self._holds = {
            job: request.hold for job, request in zip(self._jobs, plan.requests, strict=True)
        }
        self._ends: dict[Job, int] = {}
        """When each job that was granted a token releases it."""
        self._by_name = {(type(job.name), job.name): job for job in self._jobs}
        self._due = [
            *((request.at, _REQUEST, order) for order, request in enumerate(plan.requests)),
            *((event.at, _EVENT, order) for order, event in enumerate(plan.events)),
        ]
        heapify(self._due)
        self._grants: list[Granted] = []
        self._ignored: list[str] = []

    def run(self) -> LockOutcome:
        """Until nothing is due."""
        while self._due:
            at, kind, order = heappop(self._due)
            if kind == _RELEASE:
                self._release(at, order)
            elif kind == _EVENT:
                self._event(at, order)
            else:
                job = self._jobs[order]
                self._done(at, f"{job.name} asks", self.allocator.request(job))
        self._grants.sort(key=lambda grant: (grant.at, grant.token))
        return LockOutcome(self._grants, self._ignored)

    def _done(self, at: int, event: str, granted: list[Grant]) -> None:
        for token, job in granted:
            self._grants.append(Granted(at, job.name, token))
            self._ends[job] = at + self._holds[job]
            heappush(self._due, (self._ends[job], _RELEASE, token))
        if self._watcher is not None:
            self._watcher(Step(at, event, self.allocator, granted))

    def _release(self, at: int, token: int) -> None:
        job = self.allocator.holder(token)
        if job is None or self._ends[job] != at:
            return  # this was the end of a holder that was cancelled before
        self._done(at, f"{job.name} releases token {token}", self.allocator.release(job))

    def _event(self, at: int, order: int) -> None:
        event = self._plan.events[order]
        job = self._by_name[type(event.name), event.name]
        if job.place is Place.NOWHERE:
            self._ignored.append(f"events[{order}]: {job.name} has no request at {at}")
        elif event.action == "cancel":
            self._done(at, f"{job.name} is cancelled", self.allocator.cancel(job))
        elif event.action == "priority":
            assert event.to is not None
            granted = self.allocator.change(job, event.to)
            self._done(at, f"{job.name} has priority {event.to}", granted)
        elif not self.allocator.holds(job) or job.virtual:
            what = "is unlocked already" if job.virtual else "holds no token"
            self._ignored.append(f"events[{order}]: {job.name} {what} at {at}")
        else:
            granted = self.allocator.unlock_virtually(job)
            self._done(at, f"{job.name} is unlocked virtually", granted)
