"""The share server: which part of the GPU each launched program gets, by the daemon's controller.

A launcher (`headway launch`, `headway shell`) joins with each of its programs over its control
connection, says what became of their jobs, and is told when a program is to have another share.
Programs whose share takes a restart get fewer changes: a rise is told only if it is worth that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway.engine.actuation import WORTH_A_RESTART, Actuation
from headway.engine.controllers import Controller, controllers
from headway.engine.jobs import Job
from headway.engine.model import MAX_LEVEL, Rank, make_rank
from headway.engine.shares import ANY, WHOLE_PERMILLE, Range, parse_share
from headway.engine.turns.spaces import Spaces
from headway.live.server.callers import Caller

Words = dict[str, Any]
DEFAULT_CONTROLLER = "slowdown"
MOST, MOST_OF_USER = 1024, 128
MOST_JOBS = 1000
"""Jobs in one message."""
GOAL = 0.1
"""Launched programs say themselves what a miss is, so no goal is asked for."""


class ShareError(ValueError):
    """A request that cannot be done; one line."""


@dataclass(eq=False)
class Member(Actuation):
    """One launched program."""

    name: str
    level: int
    shares: Range
    caller: Caller
    jobs: int = 0
    misses: int = 0
    said_ns: int | None = None
    """When its last job ended."""
    stuck: str = ""
    """Why it keeps the share that it has."""

    @property
    def rank(self) -> Rank:
        return make_rank(self.level)


class ShareServer:
    """The launched programs of a daemon, and what each gets."""

    def __init__(
        self,
        controller: str,
        tell: Callable[[Caller, Words], None],
        record: Callable[..., None],
        pages: Spaces,
    ) -> None:
        """`record` hears of each job and each share that a program has: an observer's hook by its
        name, what is said to it, and when that was."""
        self.controller = _controller(controller)
        self._pages = pages
        pages.choose(self.controller)
        self._tell = tell
        self._record = record
        self.members: dict[str, Member] = {}

    def choose(self, name: str) -> None:
        """Another controller decides from now on, with nothing learned yet."""
        self.controller = _controller(name)
        self._set_quantum()
        for member in self.members.values():
            self.controller.joins(member)
        self._pages.choose(self.controller)

    def _set_quantum(self) -> None:
        """Controllers are to know which changes are made at all."""
        restarts = any(member.restarts for member in self.members.values())
        self.controller.quantum = WORTH_A_RESTART if restarts else 1

    @property
    def busy(self) -> bool:
        """Whether somebody is served."""
        return bool(self.members)

    def handle(self, request: Words, caller: Caller, now_ns: int) -> Words:
        """Answer one request; a ShareError is what the caller did wrong."""
        act = request.get("act")
        if act == "join":
            return self._join(request, caller, now_ns)
        if act == "look":
            return {
                "controller": self.controller.name,
                "tasks": [_described(m) for m in self._in_order()],
            }
        if act not in ("jobs", "applied", "stuck", "set", "leave"):
            raise ShareError(f"act: found {act!r}, expected join, jobs, applied, set or leave")
        member = self._own(request, caller)
        if act == "jobs":
            self._jobs(member, request, now_ns)
        elif act == "applied":
            self._applied(member, request, now_ns)
        elif act == "stuck":
            self._stuck(member, request)
        elif act == "set":
            self._set(member, request)
        else:
            self._leave(member)
        self.publish(now_ns)
        return {}

    def gone(self, caller: Caller) -> None:
        """The connection is closed, and with it its programs are gone."""
        for member in [m for m in self.members.values() if m.caller is caller]:
            self._leave(member)

    def _in_order(self) -> list[Member]:
        return sorted(self.members.values(), key=lambda m: (m.rank, m.name))

    # -- requests ----------------------------------------------------------------------------

    def _join(self, request: Words, caller: Caller, now_ns: int) -> Words:
        name = _name(request)
        if name in self.members:
            raise ShareError(
                f"a task is called {name!r} already; choose another name, as in"
                f" headway launch 5 --name {name}2 -- …"
            )
        users = Counter(m.caller.peer.uid for m in self.members.values())
        if len(self.members) >= MOST or users[caller.peer.uid] >= MOST_OF_USER:
            raise ShareError(f"{users[caller.peer.uid]} tasks of this user are there; fewer can be")
        shares = _range(request) or ANY
        member = Member(
            name,
            _level(request),
            shares,
            caller,
            restarts=bool(request.get("restarts")),
            told=shares.most,
            applied=shares.most,
            changed_ns=now_ns,
        )
        self.members[name] = member
        self._set_quantum()
        self.controller.joins(member)
        member.told = member.applied = self.controller.share(member)
        caller.keeps = True
        self._record("share_set", member, member.applied, at_ns=now_ns)
        self.publish(now_ns)
        return {"share": member.told}

    def _own(self, request: Words, caller: Caller) -> Member:
        member = self.members.get(_name(request))
        if member is None or member.caller.peer.uid != caller.peer.uid:
            raise ShareError(f"no launched task of yours is called {_name(request)!r}")
        return member

    def _jobs(self, member: Member, request: Words, now_ns: int) -> None:
        words = request.get("jobs")
        if not isinstance(words, str) or len(words) > MOST_JOBS or set(words) - {"p", "m"}:
            raise ShareError(
                f"jobs: expected p for each in time and m for each missed, {MOST_JOBS} at most"
            )
        if words:
            member.speak(now_ns)
        for word in words:
            begun_ns = now_ns if member.said_ns is None else member.said_ns
            job = Job(member, member.jobs, begun_ns, now_ns, missed=word == "m")
            member.said_ns = now_ns
            member.jobs += 1
            member.misses += job.missed
            self._record("job_ended", job, at_ns=now_ns)
            settled = [self._settled_ns(other, now_ns) for other in self._below(member)]
            if begun_ns >= max(settled, default=0):
                self.controller.job_ended(job, GOAL)

    def _settled_ns(self, member: Member, now_ns: int) -> int:
        share, most = self.controller.share(member), member.shares.most
        return member.settled_ns(share, most, now_ns, speaks=bool(member.jobs))

    def _below(self, member: Member) -> list[Member]:
        return [other for other in self.members.values() if other.rank > member.rank]

    def _applied(self, member: Member, request: Words, now_ns: int) -> None:
        share = request.get("share")
        if type(share) is not int or not 0 < share <= WHOLE_PERMILLE:
            raise ShareError(f"share: found {share!r}, expected thousandths")
        member.apply(share, now_ns)
        self._record("share_set", member, member.applied, at_ns=now_ns)

    def _stuck(self, member: Member, request: Words) -> None:
        """The program cannot be given another share: it has what it has, and others are told so."""
        member.stuck = str(request.get("why"))[:200]
        member.told = member.applied
        member.shares = Range(member.applied, member.applied)

    def _set(self, member: Member, request: Words) -> None:
        if request.get("priority") is not None:
            member.level = _level(request)
        shares = _range(request)
        if shares is not None:
            if member.stuck:
                raise ShareError(f"{member.name} keeps its share: {member.stuck}")
            member.shares = shares

    def _leave(self, member: Member) -> None:
        self.controller.leaves(member)
        self.members.pop(member.name, None)
        self._set_quantum()
        member.caller.keeps = any(m.caller is member.caller for m in self.members.values())

    # -- shares ------------------------------------------------------------------------------

    def publish(self, now_ns: int) -> None:
        """Tell launchers what is to change."""
        for member in self.members.values():
            share = self.controller.share(member)
            if not member.is_due(share, member.shares.most, now_ns):
                continue
            member.tell(share, now_ns)
            words = {"event": "share", "task": member.name, "share": share}
            self._tell(member.caller, words)


def _controller(name: str) -> Controller:
    found = controllers().get(name)
    if found is None:
        known = ", ".join(sorted(controllers()))
        raise ShareError(f"controller: found {name!r}, expected one of {known}")
    return found()


def _described(member: Member) -> Words:
    return {
        "task": member.name,
        "priority": member.level,
        "share": member.applied,
        "wanted": member.told,
        "range": str(member.shares),
        "jobs": member.jobs,
        "misses": member.misses,
        "pid": member.caller.peer.pid,
        "stuck": member.stuck,
    }


def _name(request: Words) -> str:
    name = request.get("task")
    if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
        raise ShareError("task: expected printable text")
    return name


def _level(request: Words) -> int:
    level = request.get("priority")
    if type(level) is not int or abs(level) > MAX_LEVEL:
        raise ShareError(
            f"priority: found {level!r}, expected a whole number, larger for more important"
        )
    return level


def _range(request: Words) -> Range | None:
    text = request.get("share")
    if text is None:
        return None
    if not isinstance(text, str):
        raise ShareError('share: expected text such as "25%..100%"')
    try:
        return parse_share(text)
    except ValueError as error:
        raise ShareError(f"share: {error}") from None
