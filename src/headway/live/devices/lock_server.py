"""The daemon as lock server: tokens and units of GPUs, one job for each control connection.

The engine's objects decide, the same ones that the simulator drives. A request that cannot be
granted at once is answered with `wait`; the grant follows as a line of its own. Whoever closes the
connection, or dies, has given back what it held and withdrawn what it asked for; a token that is
kept for a program (`lock_places.py`) lasts as long as its process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from headway.engine.locks.cluster_locks import Effects
from headway.engine.locks.copies import Move
from headway.engine.locks.device_cluster import DeviceCluster
from headway.engine.locks.jobs import Job, LockError, Place
from headway.engine.locks.system import LockSystem
from headway.live.devices.lock_places import Outlive, Places
from headway.live.devices.lock_tasks import LockTask, LockTasks
from headway.live.devices.policing import Policing
from headway.live.server.callers import Caller

Words = dict[str, Any]
UNITS = ("compute", "h2d", "d2h", "peer", "state in", "state out")
MAX_PRIORITY = 2**31
MOVES = {
    "h2d": Move.IN,
    "d2h": Move.OUT,
    "state in": Move.STATE_IN,
    "state out": Move.STATE_OUT,
}
LONGEST_NS = 10**15
"""Of periods and budgets: eleven days."""


@dataclass(slots=True, eq=False)
class Session:
    """One connection's job."""

    caller: Caller
    job: Job
    cluster: DeviceCluster
    task: LockTask
    home: int | None = None
    """The device, within the cluster, on which the task's state was before this token."""
    granted_ns: int = 0
    waited_ns: int = 0
    """How long it waited for units since it has the token."""
    asked_ns: int = 0


class LockServer:
    """Tokens and units for all programs of a daemon."""

    def __init__(
        self, system: LockSystem, tell: Callable[[Caller, Words], None], outlive: Outlive
    ) -> None:
        self.system = system
        self._tell = tell
        self._clusters = [DeviceCluster(system, cluster) for cluster in system.clusters]
        self._sessions: dict[Caller, Session] = {}
        self._by_job: dict[Job, Session] = {}
        self._tasks = LockTasks()
        self._policing = Policing(system)
        self._places: Places[Session] = Places(outlive, self._over)
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
        if act == "attach":
            return self._attach(request, caller, now_ns)
        session = self._sessions.get(caller)
        if session is None:
            raise LockError(f"{act!r} without a token; ask for one first")
        if act == "keep":
            return self._keep(session)
        if act == "unit":
            return self._unit(request, session, now_ns)
        if act == "give back":
            self._apply(session.cluster.locks.give_back(session.job), now_ns)
        elif act in ("release", "withdraw") and self._is_kept(session):
            raise LockError(f"{act}: a program's place is given back at the program's end")
        elif act == "release":
            self._release(session, now_ns)
        elif act == "withdraw":
            self._withdraw(session, now_ns)
        else:
            raise LockError(
                f"act: found {act!r}, expected token, unit, give back, release, withdraw, keep or "
                "attach"
            )
        return {}

    def due_ns(self) -> int | None:
        """When `tick` has something to do."""
        return self._policing.due_ns()

    def tick(self, now_ns: int) -> None:
        """Postpone the deadlines of jobs that have used their budgets."""
        for job in self._policing.exhausted(now_ns):
            locks = self._by_job[job].cluster.locks
            self._apply(locks.change(job, self._policing.priority_of(job)), now_ns)
            if self._policing.virtual and locks.tokens.holds(job) and not job.virtual:
                self._apply(locks.unlock_virtually(job), now_ns)

    @property
    def busy(self) -> bool:
        """Whether somebody holds or waits for a token."""
        return bool(self._by_job)

    def gone(self, caller: Caller) -> None:
        """The connection is closed: what it held is free, but for a token that is kept."""
        session = self._sessions.get(caller)
        if session is None:
            return
        now_ns = time.monotonic_ns()
        if not self._places.has(session):
            self._end(session, now_ns)
            return
        del self._sessions[caller]
        self._places.detach(session, caller)
        if session.caller is caller:
            self._apply(Effects([], session.cluster.locks.units.cancel(session.job)), now_ns)

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
                    "unlocked": [str(job.name) for job in tokens.jobs() if job.virtual],
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
        if number == "any":
            number = self._emptiest()
        if type(number) is not int or not 0 <= number < len(self._clusters):
            most = len(self._clusters) - 1
            raise LockError(f"cluster: found {number!r}, expected a number from 0 to {most}")
        task = self._tasks.find((caller.peer.uid, caller.peer.pid, number, name))
        self._forget_others()
        terms = self._policing.terms(
            priority,
            _span(request, "period_ns"),
            _span(request, "budget_ns"),
            max(now_ns, task.release_ns),
        )
        self._orders += 1
        rank = self._policing.priority(terms)
        job = Job(f"{name}.{caller.peer.pid}", rank, self._orders, task.number)
        cluster = self._clusters[number]
        session = Session(caller, job, cluster, task, task.home, asked_ns=now_ns)
        self._sessions[caller] = self._by_job[job] = session
        self._policing.begin(job, terms)
        task.jobs += 1
        caller.keeps = True
        effects = cluster.locks.request(job)
        held = any(grant.job is job for grant in effects.grants)
        self._apply(effects, now_ns, but=job)
        return self._granted(session, now_ns) if held else {"wait": True}

    def _emptiest(self) -> int:
        """The cluster with the fewest jobs for each token."""

        def crowd(number: int) -> Fraction:
            tokens = self._clusters[number].locks.tokens
            return Fraction(sum(1 for _ in tokens.jobs()), tokens.settings.tokens)

        return min(range(len(self._clusters)), key=crowd)

    def _keep(self, session: Session) -> Words:
        """The token of a launcher becomes the place of the program that the launcher becomes."""
        if not session.cluster.locks.tokens.holds(session.job):
            raise LockError("keep: the token is not there yet; wait for it")
        return {"place": self._places.keep(session)}

    def _attach(self, request: Words, caller: Caller, now_ns: int) -> Words:
        """A connection of a program asks for the units of the program's place."""
        if caller in self._sessions:
            raise LockError("attach: this connection has a token of its own")
        session, before = self._places.attach(request.get("place"), caller)
        if before is not None:
            del self._sessions[before]
            self._apply(Effects([], session.cluster.locks.units.cancel(session.job)), now_ns)
        self._sessions[caller] = session
        caller.keeps = True
        return {
            "device": session.cluster.locks.device_of(session.job),
            "chunk": session.cluster.locks.copies.chunk,
        }

    def _is_kept(self, session: Session) -> bool:
        """Whether the session is a program's place, with no unit that the program has or wants."""
        job = session.job
        return self._places.has(session) and job.claim is None and not job.owned

    def _over(self, session: Session) -> None:
        """The process whose place this was has ended."""
        self._end(session, time.monotonic_ns())

    def _forget_others(self) -> None:
        for task in self._tasks.forgotten():
            cluster = self._clusters[task.key[2]]
            cluster.predictor.forget(task.number)
            if cluster.affinity is not None:
                cluster.affinity.forget(task.number)

    def _granted(self, session: Session, now_ns: int) -> Words:
        """What a job is told whose token is there."""
        cluster, job = session.cluster, session.job
        device = cluster.locks.device_of(job)
        session.granted_ns = now_ns
        session.task.home = device - cluster.first
        if cluster.affinity is not None:
            cluster.affinity.settle(job.task, session.task.home)
        home = None if session.home is None else cluster.first + session.home
        return {
            "device": device,
            "home": home,
            "slices": self.system.slices,
            "migration": self.system.migration,
            "enforced": self._policing.enforced,
        }

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
            home = request.get("home")
            others = [other for other in locks.cluster.devices if other != device]
            if type(home) is not int or home not in others:
                raise LockError(f"peer: found a copy from {home!r}, expected a GPU of {others}")
            needs = locks.copies.needs(Move.PEER, home, device)
        else:
            needs = locks.copies.needs(MOVES[kind], device, device)
        session.asked_ns = now_ns
        started = locks.take(job, needs, home).started
        self._apply(Effects([], started), now_ns, but=job)
        return {} if job in started else {"wait": True}

    def _release(self, session: Session, now_ns: int) -> None:
        locks, job = session.cluster.locks, session.job
        effects = locks.release(job)
        assert session.task.home is not None
        distance = session.cluster.topology.distance(session.home, session.task.home)
        observed_ns = now_ns - session.granted_ns - session.waited_ns
        session.cluster.predictor.observe(job.task, distance, max(0, observed_ns))
        self.sections += 1
        self._drop(session)
        self._apply(effects, now_ns)

    def _withdraw(self, session: Session, now_ns: int) -> None:
        """Give up waiting: for a unit, which leaves the token; or for the token itself."""
        locks, job = session.cluster.locks, session.job
        if job.claim is not None or job.owned:
            self._apply(Effects([], locks.units.cancel(job)), now_ns)
        else:
            self._end(session, now_ns)

    # -- inside ------------------------------------------------------------------------------

    def _end(self, session: Session, now_ns: int) -> None:
        effects = session.cluster.locks.withdraw(session.job)
        self._drop(session)
        self._apply(effects, now_ns)

    def _drop(self, session: Session) -> None:
        session.caller.keeps = False
        session.task.jobs -= 1
        terms = self._policing.end(session.job)
        session.task.release_ns = max(
            session.task.release_ns, self._policing.next_release_ns(terms)
        )
        self._places.drop(session)
        self._sessions.pop(session.caller, None)
        del self._by_job[session.job]

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
        self._police(now_ns)

    def _police(self, now_ns: int) -> None:
        """Start and stop budgets as the locks are now, in each cluster of CPUs."""
        if not self._policing.enforced:
            return
        pending: dict[tuple[int, ...], list[Job]] = {}
        for job, session in self._by_job.items():
            pending.setdefault(session.cluster.locks.cluster.cpus, []).append(job)
        for jobs in pending.values():
            self._policing.follow(jobs, now_ns)


def _span(request: Words, key: str) -> int | None:
    """A duration that a request names, if it does."""
    value = request.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 < value <= LONGEST_NS:
        what = key.removesuffix("_ns")
        raise LockError(f"{what}: found {value!r} ns, expected a whole number up to {LONGEST_NS}")
    return value
