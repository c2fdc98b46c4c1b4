"""Channels at the gate whose programs a test plays, with an engine and an arbiter."""

from __future__ import annotations

import socket

from headway.engine.core import Engine
from headway.engine.events import Recorder
from headway.engine.priorities import Fixed
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel, Peer
from headway.live.watch.stats import Stats
from headway.live.wire.pages import Pages
from headway.live.wire.protocol import (
    Message,
)
from headway.trace.checker import Checker
from tests.pages import say

MS = 1_000_000


class GateBench:
    """An engine, an arbiter, and channels whose clients are played by the test."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.granted: list[tuple[str, int]] = []
        self.checker = Checker()
        observer = Recorder(self.checker.feed)
        self.stats = Stats()
        self.engine = Engine(observers=[observer, self.stats], cost_model="recent")
        self.arbiter = Arbiter(
            self.engine,
            lambda c: self.granted.append((c.name, c.request.seq)),
            bounds or Bounds(60 * MS),
        )
        self.channels: list[Channel] = []
        self._ends: list[socket.socket] = []

    def channel(
        self,
        name: str,
        *,
        policy: str = "prt",
        level: int = 0,
        at_ns: int = 0,
        peer: Peer | None = None,
    ) -> Channel:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel = Channel(len(self.channels), ours, peer or Peer(1, 0, 0), 0)
        channel.name, channel.pages = name, Pages()
        channel.task, _ = self.engine.add_task(
            name, at_ns, policy=policy, priority=Fixed(level), pix=True, rix=True
        )
        self.arbiter.add(channel)
        self.channels.append(channel)
        self._ends.append(theirs)
        return channel

    def hear(self, channel: Channel, kind: int, seq: int, at_ns: int) -> None:
        self.arbiter.heard(channel, Message(kind, seq), at_ns)

    def write(self, channel: Channel, name: str, value: int, index: int = 0) -> None:
        say(channel, name, value, index)

    def say_busy(self, channel: Channel, used_ns: int = 0) -> None:
        assert channel.pages is not None
        self.write(channel, "busy", 1)
        self.write(channel, "used_ns", used_ns)

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for end in self._ends:
            end.close()
