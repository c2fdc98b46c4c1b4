"""Channels that take turns; a test plays their programs and the GPU."""

from __future__ import annotations

from headway.engine.core import Engine
from headway.engine.events import Recorder
from headway.engine.policies.overlap import Overlap
from headway.engine.policies.prt import Prt
from headway.engine.priorities import PriorityRule
from headway.engine.reserves import ReserveSpec
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from headway.live.wire.protocol import RELEASE, SUBMIT, TURNS, Message
from headway.trace.checker import Checker
from tests.bench.gate import MS, GateBench
from tests.pages import page

HOLD_NS = 60 * MS


class TurnBench(GateBench):
    """Channels that take turns; the test plays their clients, and the GPU."""

    def __init__(self, holdoff_ns: int = 0) -> None:
        super().__init__()
        self.checker = Checker()
        recorder = Recorder(self.checker.feed)
        named = (Prt(holdoff_ns), Overlap(holdoff_ns))
        self.engine = Engine(named=named, observers=[recorder], cost_model="recent")
        self.arbiter = Arbiter(
            self.engine, lambda c: self.granted.append((c.name, c.request.seq)), Bounds(HOLD_NS)
        )

    def turner(
        self,
        name: str,
        level: int = 0,
        *,
        policy: str = "prt",
        rule: PriorityRule | None = None,
        reserve: ReserveSpec | None = None,
        at_ns: int = 0,
    ) -> Channel:
        channel = self.channel(name, policy=policy, level=level, at_ns=at_ns)
        assert channel.task is not None
        if rule is not None:
            self.engine.set_priority(channel.task, rule, at_ns)
        if reserve is not None:
            self.engine.set_reserve(channel.task, reserve, at_ns)
        self.hear(channel, TURNS, 0, at_ns)
        return channel

    def ask(self, channel: Channel, at_ns: int) -> None:
        self.hear(channel, SUBMIT, channel.request.seq + 1, at_ns)

    def begin(self, channel: Channel, at_ns: int) -> None:
        """Ask, and be on the GPU."""
        self.ask(channel, at_ns)
        assert is_leased(channel)
        self.work(channel)

    def work(self, channel: Channel, *, used_ns: int = 0) -> None:
        """Something more went through its gate."""
        assert channel.pages is not None
        self.write(channel, "busy", 1)
        self.write(channel, "passed", channel.pages.passed + 1)
        self.write(channel, "used_ns", channel.pages.used_ns + used_ns)
        self.write(channel, "unmarked", 1)

    def mark(self, channel: Channel, issued: int, done: int) -> None:
        self.write(channel, "unmarked", 0)
        self.write(channel, "issued", issued)
        self.write(channel, "done", done)

    def idle(self, channel: Channel) -> None:
        self.write(channel, "busy", 0)

    def rest(self, channel: Channel, at_ns: int, *, last: bool = True) -> None:
        """It has waited for all of its work."""
        self.idle(channel)
        self.arbiter.heard(channel, Message(RELEASE, channel.request.seq, frame=last), at_ns)

    def run_until(self, end_ns: int) -> None:
        """Let the daemon's timers come."""
        for _ in range(50_000):  # a daemon that polls looks every 10 us
            due_ns = self.arbiter.next_timer_ns()
            if due_ns is None or due_ns > end_ns:
                self.arbiter.tick(end_ns)
                return
            self.arbiter.tick(max(due_ns, self.engine.now_ns))
        raise AssertionError("timers without end")


def is_leased(channel: Channel) -> bool:
    return bool(page(channel, "lease"))


def is_wanted(channel: Channel) -> bool:
    return bool(page(channel, "wanted"))


def may_go_at_once(channel: Channel) -> bool:
    return bool(page(channel, "at_once"))
