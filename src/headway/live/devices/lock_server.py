"""The daemon as lock server: tokens and units of GPUs, one job for each control connection.

The engine's objects decide, the same ones that the simulator drives. A request that cannot be
granted at once is answered with `wait`; the grant follows as a line of its own. Whoever closes the
connection, or dies, has given back what it held and withdrawn what it asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway.engine.locks.cluster_locks import Effects
from headway.engine.locks.copies import Move
from headway.engine.locks.device_cluster import DeviceCluster
from headway.engine.locks.jobs import Job, LockError, Place
from headway.engine.locks.system import LockSystem
from headway.live.server.callers import Caller

Words = dict[str, Any]
UNITS = ("compute", "h2d", "d2h", "peer")
MAX_PRIORITY = 2**31
MAX_TASKS = 4096
"""Tasks whose homes and costs are remembered."""


@dataclass(slots=True)
class Session:
    """One connection's job."""

    caller: Caller
    job: Job
    cluster: DeviceCluster
    home: int | None = None
    """The device, within the cluster, on which the task's state was before this token."""
    granted_ns: int = 0
    waited_ns: int = 0
    """How long it waited for units since it has the token."""
    asked_ns: int = 0


class LockServer:
    """Tokens and units for all programs of a daemon."""

    def __init__(self, system: LockSystem, tell: Callable[[Caller, Words], None]) -> None:
        self.system = system
        self._tell = tell
        self._clusters = [DeviceCluster(system, cluster) for cluster in system.clusters]
        self._sessions: dict[Caller, Session] = {}
        self._by_job: dict[Job, Session] = {}
        self._tasks: dict[tuple[int, int, str], int] = {}
        self._homes: dict[int, int] = {}
        self._orders = 0
        self.sections = 0
        """Tokens that were given back in order."""

    def handle(self, request: Words, caller: Caller, now_ns: int) -> Words:
        """Answer one request; a ValueError is what the caller did wrong."""
        act = request.get("act")
        if act == "token":
            return self._token(request, caller, now_ns)
        if act == "look":
            return {"clusters": self.describe(), "sections": self.sections}
        session = self._sessions.get(caller)
        if session is None:
            raise LockError(f"{act!r} without a token; ask for one first")
        if act == "unit":
            return self._unit(request, session, now_ns)
        if act == "give back":
            self._apply(session.cluster.locks.give_back(session.job), now_ns)
        elif act == "release":
            self._release(session, now_ns)
        elif act == "withdraw":
            return self._withdraw(session, now_ns)
        else:
            raise LockError(f"act: found {act!r}, expected token, unit, give back or release")
        return {}

    @property
    def busy(self) -> bool:
        """Whether somebody holds or waits for a token."""
        return bool(self._sessions)

    def gone(self, caller: Caller) -> None:
        """The connection is closed: what it held is free."""
        session = self._sessions.get(caller)
        if session is not None:
            self._end(session, time.monotonic_ns())

    def describe(self) -> list[Words]:
        """Who holds and who waits, by cluster."""
        found = []
        for cluster in self._clusters:
            tokens = cluster.locks.tokens
            found.append(
                {
                    "devices": list(cluster.locks.cluster.devices),
                    "queues": [[str(job.name) for job in queue] for queue in tokens.queues],
                    "waiting": [str(job.name) for job in (*tokens.overflow, *tokens.donors)],
                    "units": {
                        repr(unit): str(unit.owner.name)
                        for unit in cluster.locks.units.units.values()
                        if unit.owner is not None
                    },
                }
            )
        return found

    # -- requests ----------------------------------------------------------------------------

    def _token(self, request: Words, caller: Caller, now_ns: int) -> Words:
        if caller in self._sessions:
            raise LockError("a second token; a thread holds one at a time, release it first")
        name = request.get("name", "job")
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            raise LockError("name: expected printable text")
        priority = request.get("priority") or 0
        if type(priority) is not int or abs(priority) > MAX_PRIORITY:
            raise LockError(f"priority: found {priority!r}, expected a whole number")
        number = request.get("cluster", 0)
        if type(number) is not int or not 0 <= number < len(self._clusters):
            most = len(self._clusters) - 1
            raise LockError(f"cluster: found {number!r}, expected a number from 0 to {most}")
        self._orders += 1
        task = self._task(caller, name)
        job = Job(f"{name}.{caller.peer.pid}", priority, self._orders, task)
        cluster = self._clusters[number]
        session = Session(caller, job, cluster, self._homes.get(task), asked_ns=now_ns)
        self._sessions[caller] = self._by_job[job] = session
        caller.keeps = True
        effects = cluster.locks.request(job)
        held = any(grant.job is job for grant in effects.grants)
        self._apply(effects, now_ns, but=job)
        return self._granted(session, now_ns) if held else {"wait": True}

    def _task(self, caller: Caller, name: str) -> int:
        """The number of a task, by which its home and its costs are remembered."""
        key = (caller.peer.uid, caller.peer.pid, name)
        if key not in self._tasks:
            if len(self._tasks) >= MAX_TASKS:
                self._forget(next(iter(self._tasks)))
            self._tasks[key] = self._orders
        return self._tasks[key]

    def _forget(self, key: tuple[int, int, str]) -> None:
        task = self._tasks.pop(key)
        self._homes.pop(task, None)
        for cluster in self._clusters:
            cluster.predictor.forget(task)
            if cluster.affinity is not None:
                cluster.affinity.forget(task)

    def _granted(self, session: Session, now_ns: int) -> Words:
        """What a job is told whose token is there."""
        cluster, job = session.cluster, session.job
        device = cluster.locks.device_of(job)
        within = device - cluster.first
        session.granted_ns = now_ns
        self._homes[job.task] = within
        if cluster.affinity is not None:
            cluster.affinity.settle(job.task, within)
        home = None if session.home is None else cluster.first + session.home
        return {"device": device, "home": home}

    def _unit(self, request: Words, session: Session, now_ns: int) -> Words:
        kind = request.get("unit")
        if kind not in UNITS:
            raise LockError(f"unit: found {kind!r}, expected one of {', '.join(UNITS)}")
        locks, job = session.cluster.locks, session.job
        device = locks.device_of(job)
        home = None
        if kind == "compute":
            needs: tuple[tuple[int, str], ...] = ((device, "ee"),)
        elif kind == "peer":
            if session.home is None or session.cluster.first + session.home == device:
                raise LockError("peer: the state is on this device already")
            home = session.cluster.first + session.home
            needs = locks.copies.needs(Move.PEER, home, device)
        else:
            needs = locks.copies.needs(Move.IN if kind == "h2d" else Move.OUT, device, device)
        session.asked_ns = now_ns
        started = locks.take(job, needs, home).started
        self._apply(Effects([], started), now_ns, but=job)
        return {} if job in started else {"wait": True}

    def _release(self, session: Session, now_ns: int) -> None:
        locks, job = session.cluster.locks, session.job
        effects = locks.release(job)
        whole = session.cluster.topology
        device = self._homes[job.task]
        distance = whole.distance(session.home, device)
        observed_ns = now_ns - session.granted_ns - session.waited_ns
        session.cluster.predictor.observe(job.task, distance, max(0, observed_ns))
        self.sections += 1
        self._drop(session)
        self._apply(effects, now_ns)

    def _withdraw(self, session: Session, now_ns: int) -> Words:
        """Give up waiting: for a unit, which leaves the token; or for the token itself."""
        locks, job = session.cluster.locks, session.job
        if job.claim is not None or job.owned:
            self._apply(Effects([], locks.units.cancel(job)), now_ns)
            return {}
        self._end(session, now_ns)
        return {}

    # -- inside ------------------------------------------------------------------------------

    def _end(self, session: Session, now_ns: int) -> None:
        effects = session.cluster.locks.withdraw(session.job)
        self._drop(session)
        self._apply(effects, now_ns)

    def _drop(self, session: Session) -> None:
        session.caller.keeps = False
        del self._sessions[session.caller], self._by_job[session.job]

    def _apply(self, effects: Effects, now_ns: int, but: Job | None = None) -> None:
        """Tell those who may go on, except the one that is answered anyway."""
        for grant in effects.grants:
            if grant.job is not but and grant.job.place is Place.QUEUE:
                session = self._by_job[grant.job]
                self._tell(session.caller, {"granted": True, **self._granted(session, now_ns)})
        for job in effects.started:
            if job is not but:
                session = self._by_job[job]
                session.waited_ns += now_ns - session.asked_ns
                self._tell(session.caller, {"granted": True})
