"""Who is who, and who may do what: from a connection to a task of the engine."""

from __future__ import annotations

import contextlib
import grp
import os
from dataclasses import dataclass, replace
from pathlib import Path

from headway.engine.core import Engine
from headway.engine.model import DEFAULT_LEVEL, MAX_LEVEL, Task
from headway.engine.priorities import PriorityRule
from headway.engine.reserves import ReserveSpec
from headway.engine.settings import describe
from headway.engine.spec import Allowed, Spec
from headway.live.desktop.servers import Inherit
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.launches import Claims, Launches, life
from headway.live.identity.wishes import Wish
from headway.live.server.requests import Request
from headway.live.wire.protocol import Hello

MAX_CHANNELS_PER_USER = 2048


@dataclass(frozen=True, slots=True)
class Allow:
    """Users other than the daemon's own who may be served, and how far they may raise a priority.
    The daemon's own user and root may do everything."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()
    max_level: int = DEFAULT_LEVEL
    channels: int = MAX_CHANNELS_PER_USER
    """Connections that one user may have at a time."""

    @classmethod
    def by(cls, allowed: Allowed) -> Allow:
        """As a spec file says; a group that this machine does not know allows nobody."""
        gids = set()
        for name in allowed.groups:
            with contextlib.suppress(KeyError):
                gids.add(grp.getgrnam(name).gr_gid)
        channels = allowed.channels or MAX_CHANNELS_PER_USER
        return cls(frozenset(allowed.uids), frozenset(gids), allowed.priority, channels)

    def names(self, peer: Peer) -> bool:
        """Whether this user is in a table. The group is the one the kernel vouches for."""
        return peer.uid in self.uids or peer.gid in self.gids


class Registry:
    """Names, spec entries and launch options."""

    def __init__(
        self,
        engine: Engine,
        spec: Spec,
        allow: Allow | None = None,
        inherit: Inherit | None = None,
        folder: Path | None = None,
    ) -> None:
        """What is said of programs is kept in the folder, if there is one."""
        self.engine = engine
        self.launches = Launches(folder and folder / "launches")
        self._claims = Claims(folder and folder / "claims")
        self._inherit = inherit or Inherit()
        self.spec = spec
        self.allow = allow or Allow()
        self._per_user: dict[int, int] = {}
        self._owner = os.geteuid()

    def tidy(self) -> None:
        """Of what was said to daemons before, forget what is about nobody any more."""
        self.launches.tidy()
        self._claims.tidy()

    # -- who may do what ---------------------------------------------------------------------

    def may_connect(self, peer: Peer) -> bool:
        """The same user, root, and who is in the table."""
        return peer.uid in (self._owner, 0) or self.allow.names(peer)

    def may_raise(self, peer: Peer, priority: PriorityRule) -> bool:
        """Going above the default priority is for the owner of the daemon, and within bounds for
        those whom the owner named."""
        own = peer.uid in (self._owner, 0)
        return priority.level <= (MAX_LEVEL if own else max(DEFAULT_LEVEL, self.allow.max_level))

    def may_manage(self, peer: Peer, uid: int) -> bool:
        """Changing what runs is for its user and for the daemon's."""
        return peer.uid in (self._owner, 0, uid)

    def arrive(self, peer: Peer) -> bool:
        """One more connection, if this user has not too many."""
        if not self.may_connect(peer) or self._per_user.get(peer.uid, 0) >= self.allow.channels:
            return False
        self._per_user[peer.uid] = self._per_user.get(peer.uid, 0) + 1
        return True

    def leave(self, peer: Peer) -> None:
        left = self._per_user.get(peer.uid, 0) - 1
        if left > 0:
            self._per_user[peer.uid] = left
        else:
            self._per_user.pop(peer.uid, None)

    # -- tasks -------------------------------------------------------------------------------

    def enrol(self, channel: Channel, hello: Hello, now_ns: int) -> Task:
        """Make a task for a channel: launch options first, then the spec, then the default; and on
        top of that what the program says of itself now."""
        claims = self._claims.of(life(channel.peer.pid))
        task = self._enrol(channel, hello, claims[-1].name if claims else None, now_ns)
        if claims:
            channel.task = task
            channel.before = _as_it_is(task, channel.deadline_ns)
            channel.note = self._become(channel, claims[-1], now_ns) or channel.note
        return task

    def _enrol(self, channel: Channel, hello: Hello, name: str | None, now_ns: int) -> Task:
        wish = self._wish_of(channel, hello)
        name = name or (wish.name if wish is not None else None) or hello.name
        channel.name = name
        entry = self.spec.match(name)
        unique = f"{name}.{channel.peer.pid}"
        if unique in self.engine.tasks:
            unique = f"{unique}.{channel.number}"
        # Anybody may turn out to be a server. What is lent to Background all its members could use.
        pix, rix = self._inherit.pix, self._inherit.rix
        if entry is None and wish is None and self.spec.entries:
            channel.note = "no entry of the spec matches it: Background"
            return self.engine.add_background_task(unique, now_ns, pix=pix)
        wish = wish or Wish()
        policy = wish.policy or (entry.policy if entry else "prt")
        priority = wish.priority or (entry.priority if entry else None)
        reserve = wish.reserve or (entry.reserve.spec if entry else None)
        if entry is not None and entry.reserve.background and reserve is None:
            return self.engine.add_background_task(unique, now_ns, policy=policy, pix=pix)
        if priority is not None and not self.may_raise(channel.peer, priority):
            priority = None
            channel.note = "its user may not go above the default priority"
        task, _ = self.engine.add_task(
            unique,
            now_ns,
            policy=policy,
            priority=priority,
            period_ns=wish.period_ns,
            pix=pix,
            rix=rix,
        )
        self._set_deadline(channel, wish)
        if reserve is not None:
            self._reserve(channel, task, reserve, now_ns)
        return task

    # -- what programs say of themselves -----------------------------------------------------

    def claim(
        self, peer: Peer, wish: Wish, said: Request, channels: list[Channel], now_ns: int
    ) -> str:
        """This process begins a task; says what cannot be done."""
        self._claims.begin(life(peer.pid), wish, said)
        return self._follow(peer, channels, now_ns)

    def unclaim(self, peer: Peer, channels: list[Channel], now_ns: int) -> str:
        """It ends the innermost one."""
        self._claims.end(life(peer.pid))
        return self._follow(peer, channels, now_ns)

    def _follow(self, peer: Peer, channels: list[Channel], now_ns: int) -> str:
        claims, problem = self._claims.of(life(peer.pid)), ""
        for channel in channels:
            if channel.before is None and channel.task is not None:
                channel.before = _as_it_is(channel.task, channel.deadline_ns)
            now = claims[-1] if claims else channel.before
            if now is not None:
                problem = self._become(channel, now, now_ns) or problem
        return problem

    def _become(self, channel: Channel, wish: Wish, now_ns: int) -> str:
        task = channel.task
        assert task is not None
        if wish.policy is not None:
            self.engine.set_policy(task, wish.policy, now_ns)
        if wish.priority is not None:
            self.engine.set_priority(task, wish.priority, now_ns)
        task.period_ns = wish.period_ns
        self._set_deadline(channel, wish)
        if wish.reserve is not None:
            return self.change_reserve(channel, wish.reserve, now_ns)
        if channel.before is not None and channel.before.reserve is None:
            self.engine.set_reserve(task, None, now_ns)
        return ""

    def _set_deadline(self, channel: Channel, wish: Wish) -> None:
        channel.deadline_ns = wish.deadline_ns or wish.period_ns
        if channel.pages is not None:
            channel.pages.set_deadline(channel.deadline_ns or 0)

    def _wish_of(self, channel: Channel, hello: Hello) -> Wish | None:
        wish = self.launches.find(hello.token, life(channel.peer.pid))
        if wish is None or wish.uid != channel.peer.uid:
            return None
        channel.token = hello.token
        return wish

    def _own_pool(self, channel: Channel, spec: ReserveSpec) -> ReserveSpec:
        """Several channels of one program are one task to its owner: they share its reserve. And
        what a group will cost is not known beforehand here, as it is in a simulation."""
        shared = spec.shared or f"{channel.name}.{channel.peer.pid}"
        predict = "history" if spec.predict == "exact" else spec.predict
        return replace(spec, shared=shared, predict=predict)

    def _reserve(self, channel: Channel, task: Task, spec: ReserveSpec, now_ns: int) -> None:
        spec = self._own_pool(channel, spec)
        pool = self.engine.ledger.pools.get(spec.shared or "")
        if pool is not None and pool.members and pool.spec != spec:
            # Whoever opened a pool chose its numbers; those who come later share what there is.
            channel.note = f"the pool {spec.shared!r} has {describe(pool.spec)}: it counts here too"
            spec = pool.spec
        answer = self.engine.set_reserve(task, spec, now_ns)
        if not answer.accepted:
            channel.note = f"its reserve was turned away ({answer.why}): Background"

    def change_reserve(self, channel: Channel, spec: ReserveSpec, now_ns: int) -> str:
        """Give a task that runs another reserve, and its pool with it; says why not."""
        task = channel.task
        assert task is not None
        spec = self._own_pool(channel, spec)
        pool = self.engine.ledger.pools.get(spec.shared or "")
        if pool is not None and pool.members and pool.spec != spec:
            answer = self.engine.change_pool(spec.shared or "", spec, now_ns)
            if not answer.accepted:
                return answer.why
        answer = self.engine.set_reserve(task, spec, now_ns)
        if answer.accepted:
            channel.note = ""
        return answer.why

    def replace(self, spec: Spec) -> None:
        """A new spec counts for new channels."""
        self.spec = spec
        self.engine.limit = spec.settings.limit


def _as_it_is(task: Task, deadline_ns: int | None) -> Wish:
    """What would make the task what it is now."""
    reserve = None if task.reserve is None else task.reserve.spec
    return Wish(None, task.policy.name, task.rule, reserve, task.period_ns, deadline_ns)
