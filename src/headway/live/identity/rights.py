"""Rights: what users other than the daemon's own may do, by the spec's `[allow]` table.

The daemon's own user and root are trusted with everything. Every channel, task, launch, pool and
server belongs to a user. What crosses from one user to another needs a right in the spec: a higher
priority, a policy that passes others, a pool of the daemon's user.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from dataclasses import dataclass, replace
from fractions import Fraction

from headway.engine.admission import percent
from headway.engine.choice import parse_policy
from headway.engine.ledger import Ledger
from headway.engine.model import DEFAULT_LEVEL
from headway.engine.policies import policies
from headway.engine.reserves import BACKGROUND, ReserveSpec
from headway.engine.spec import Allowed, Spec
from headway.live.gate.channel import Peer
from headway.live.identity.options import TaskOptions

MAX_CHANNELS_PER_USER = 2048
MAX_RESERVES_PER_USER = 64
ADMITTED = Fraction(1, 2)
"""What part of the GPU time that admission control gives out one user may have, if the spec does
not say."""
OWNED = "/"
"""Stands between a user's number and the name of that user's pool."""


@dataclass(frozen=True, slots=True)
class Allow:
    """Users other than the daemon's own who may be served, and how far they may go."""

    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()
    max_level: int = DEFAULT_LEVEL
    channels: int = MAX_CHANNELS_PER_USER
    """Connections, and so tasks, that one user may have at a time."""
    policies: frozenset[str] = frozenset()
    """Policies that pass more important tasks, and may be used all the same."""
    pools: frozenset[str] = frozenset()
    """Pools of the daemon's user that others may join; only their owner changes them."""
    reserves: int = MAX_RESERVES_PER_USER
    limit: Fraction | None = None
    """How much of the GPU one user's reserves may come to; None: half of what admission control
    gives out, if there is any."""
    nice: bool = False
    """Whether a window server of such a user may be raised on the CPU."""

    @classmethod
    def by(cls, allowed: Allowed) -> Allow:
        """As a spec file says; a name that this machine does not know allows nobody."""
        uids, gids = set(allowed.uids), set()
        for name in allowed.users:
            with contextlib.suppress(KeyError):
                uids.add(pwd.getpwnam(name).pw_uid)
        for name in allowed.groups:
            with contextlib.suppress(KeyError):
                gids.add(grp.getgrnam(name).gr_gid)
        return cls(
            frozenset(uids),
            frozenset(gids),
            allowed.priority,
            allowed.channels or MAX_CHANNELS_PER_USER,
            frozenset(allowed.policies),
            frozenset(allowed.pools),
            allowed.reserves or MAX_RESERVES_PER_USER,
            allowed.limit,
            allowed.nice,
        )

    def names(self, peer: Peer) -> bool:
        """Whether this user is in a table. The group is the one the kernel vouches for."""
        return peer.uid in self.uids or peer.gid in self.gids


class Rights:
    """Answers who may do what. `peer` is always the kernel's word."""

    def __init__(self, spec: Spec, allow: Allow | None = None) -> None:
        """`allow` replaces the table of the spec, now and later."""
        self._given = allow
        self._owner = os.geteuid()
        self._per_user: dict[int, int] = {}
        self._connected = 0
        self.room: int | None = None
        """Clients that there are descriptors for, once that is known."""
        self.follow(spec)

    def follow(self, spec: Spec) -> None:
        """The spec has changed; what programs have already stays as it is."""
        self.allow = self._given or Allow.by(spec.allowed)
        self._admitted = spec.settings.limit
        options = [entry.reserve.spec for entry in spec.entries]
        self._pools = {w.shared: w for w in options if w is not None and w.shared is not None}

    # -- connections -------------------------------------------------------------------------

    @property
    def serves_others(self) -> bool:
        return bool(self.allow.uids or self.allow.gids)

    def is_trusted(self, uid: int) -> bool:
        """The daemon's own user, and root."""
        return uid in (self._owner, 0)

    def may_connect(self, peer: Peer) -> bool:
        """The same user, root, and who is in the table."""
        return self.is_trusted(peer.uid) or self.allow.names(peer)

    def arrive(self, peer: Peer) -> bool:
        """One more connection, if this user has not too many. One who is not trusted has at most as
        many as are still free, so the last one to come finds room however greedy the others are."""
        own = self._per_user.get(peer.uid, 0)
        if not self.may_connect(peer):
            return False
        if not self.is_trusted(peer.uid):
            free = self.allow.channels if self.room is None else self.room - self._connected
            if own >= min(self.allow.channels, free):
                return False
        self._connected += 1
        self._per_user[peer.uid] = own + 1
        return True

    def leave(self, peer: Peer) -> None:
        self._connected -= 1
        left = self._per_user.get(peer.uid, 0) - 1
        if left > 0:
            self._per_user[peer.uid] = left
        else:
            self._per_user.pop(peer.uid, None)

    # -- objects of others -------------------------------------------------------------------

    def may_manage(self, peer: Peer, uid: int) -> bool:
        """Changing what belongs to a user is for that user and for those who are trusted."""
        return self.is_trusted(peer.uid) or peer.uid == uid

    def may_rule(self, peer: Peer) -> bool:
        """Stopping the daemon, recording everybody, reading the spec again."""
        return self.is_trusted(peer.uid)

    def may_serve(self, server: Peer, client: Peer) -> bool:
        """Whether a process that listens on a display counts as the window server of a client: it
        is the client's own user's, or of somebody trusted. Anybody may listen anywhere."""
        return self.is_trusted(server.uid) or server.uid == client.uid

    def may_be_nice(self, server: Peer) -> bool:
        """Whether a window server's CPU priority may follow what it inherits."""
        return self.is_trusted(server.uid) or self.allow.nice

    # -- what programs want ------------------------------------------------------------------

    def within(self, peer: Peer, options: TaskOptions) -> tuple[TaskOptions, str]:
        """What of some options this user may have, and what not, in words."""
        problems = []
        if self.is_trusted(peer.uid):
            return options, ""
        if options.priority is not None:
            most = max(DEFAULT_LEVEL, self.allow.max_level)
            if options.priority.level > most:
                problems.append(f"its user may not go above priority {most}")
                options = replace(options, priority=None)
        if options.policy is not None and not self._may_use(options.policy):
            problems.append(
                f"its user may not use the policy {options.policy}, which passes others"
            )
            options = replace(options, policy=None)
        return options, "; ".join(problems)

    def _may_use(self, policy: str) -> bool:
        name = parse_policy(policy).name
        return policies()[name].keeps_rank or name in self.allow.policies

    def parties_of(self, peer: Peer) -> tuple[str, ...]:
        """With whom a program stands in the queue among its equals: connections with the others of
        their process, and processes of one who is not trusted with the others of that user."""
        process = f"process {peer.pid}"
        return (process,) if self.is_trusted(peer.uid) else (f"user {peer.uid}", process)

    # -- reserves ----------------------------------------------------------------------------

    def pool_of(self, uid: int, spec: ReserveSpec) -> tuple[ReserveSpec, bool]:
        """The pool that this user means by a name, and whether its numbers are that user's to say.
        Every user has pools of their own; those of the daemon's user bear their bare names."""
        assert spec.shared is not None
        mine = f"{uid}{OWNED}"
        if self.is_trusted(uid) or spec.shared.startswith(mine):
            return spec, True
        if spec.shared == BACKGROUND:
            return spec, False
        if spec.shared in self.allow.pools and spec.shared in self._pools:
            return self._pools[spec.shared], False
        return replace(spec, shared=f"{mine}{spec.shared}"), True

    def may_reserve(self, uid: int, spec: ReserveSpec, ledger: Ledger) -> str:
        """Why this user may not open this pool, or give it these numbers; else nothing."""
        if self.is_trusted(uid):
            return ""
        mine = f"{uid}{OWNED}"
        others = [p for n, p in ledger.pools.items() if n.startswith(mine) and n != spec.shared]
        if len(others) >= self.allow.reserves:
            return f"its user has {len(others)} reserves, and may have {self.allow.reserves}"
        limit = self.allow.limit
        if limit is None and self._admitted is not None:
            limit = self._admitted * ADMITTED
        share = spec.share + sum(pool.spec.share for pool in others if pool.members)
        if limit is not None and share > limit:
            return (
                f"its user would have {percent(share)} of the GPU reserved,"
                f" and may have {percent(limit)}"
            )
        return ""
