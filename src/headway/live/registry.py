"""Who is who, and who may do what: from a connection to a task of the engine."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, replace

from headway.engine.core import Engine
from headway.engine.model import DEFAULT_LEVEL, Task
from headway.engine.priorities import PriorityRule
from headway.engine.reserves import ReserveSpec
from headway.engine.spec import Spec
from headway.live.channel import Channel, Peer
from headway.live.protocol import Hello

TOKEN_LIFE_NS = 3_600_000_000_000
MAX_TOKENS = 10_000
MAX_CHANNELS_PER_USER = 2048


@dataclass(frozen=True, slots=True)
class Wish:
    """What `headway run` was told about a program."""

    name: str | None = None
    policy: str | None = None
    priority: PriorityRule | None = None
    reserve: ReserveSpec | None = None
    uid: int = -1


class Registry:
    """Names, spec entries and launch options."""

    def __init__(self, engine: Engine, spec: Spec) -> None:
        self._engine = engine
        self.spec = spec
        self._wishes: dict[str, tuple[Wish, int]] = {}
        self._per_user: dict[int, int] = {}
        self._owner = os.geteuid()

    def may_connect(self, peer: Peer) -> bool:
        """The same user only, and root."""
        if peer.uid not in (self._owner, 0):
            return False
        return self._per_user.get(peer.uid, 0) < MAX_CHANNELS_PER_USER

    def expect(self, wish: Wish) -> str:
        """Keep what a launcher said; the program shows the token when it connects."""
        now_ns = time.monotonic_ns()
        for token in [t for t, (_, until_ns) in self._wishes.items() if until_ns < now_ns]:
            del self._wishes[token]
        if len(self._wishes) >= MAX_TOKENS:
            self._wishes.pop(next(iter(self._wishes)))
        token = secrets.token_hex(16)
        self._wishes[token] = (wish, now_ns + TOKEN_LIFE_NS)
        return token

    def enrol(self, channel: Channel, hello: Hello, now_ns: int) -> Task:
        """Make a task for a channel: launch options first, then the spec, then the default."""
        self._per_user[channel.peer.uid] = self._per_user.get(channel.peer.uid, 0) + 1
        kept = self._wishes.get(hello.token)
        wish = kept[0] if kept is not None and kept[0].uid == channel.peer.uid else Wish()
        name = wish.name or hello.name
        entry = self.spec.match(name)
        unique = f"{name}.{channel.peer.pid}"
        if unique in self._engine.tasks:
            unique = f"{unique}.{channel.number}"
        policy = wish.policy or (entry.policy if entry else "prt")
        priority = wish.priority or (entry.priority if entry else None)
        reserve = wish.reserve or (entry.reserve.spec if entry else None)
        if entry is None and kept is None and self.spec.entries:
            return self._engine.add_background_task(unique, now_ns)
        if reserve is not None and reserve.shared is None:
            # Several channels of one program are one task to its owner: they share its reserve.
            reserve = replace(reserve, shared=f"{name}.{channel.peer.pid}")
        task, _answer = self._engine.add_task(
            unique, now_ns, policy=policy, priority=priority, reserve=reserve
        )
        return task

    def leave(self, channel: Channel) -> None:
        if channel.name:
            self._per_user[channel.peer.uid] = self._per_user.get(channel.peer.uid, 1) - 1

    def replace(self, spec: Spec, now_ns: int) -> None:
        """A new spec counts for new channels, and for those that run already."""
        self.spec = spec
        self._engine.limit = spec.settings.limit

    def may_raise(self, peer: Peer, priority: PriorityRule) -> bool:
        """Going above the default priority is for the owner of the daemon."""
        return priority.level <= DEFAULT_LEVEL or peer.uid in (self._owner, 0)
