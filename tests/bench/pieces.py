"""Channels whose work waits on the GPU in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from headway.live.wire.protocol import SUBMIT, Message
from tests.bench.gate import MS
from tests.bench.turns import HOLD_NS, TurnBench
from tests.pages import page, said

LEVELS = (("high", 9), ("equal", 9), ("low", 1))


class PieceBench(TurnBench):
    """Programs whose work waits on the GPU; the test plays them, and the GPU."""

    def gate(self, channel: Channel) -> int:
        """A turn of pieces is asked for, which shows in the page; the number of the asking."""
        assert channel.pages is not None
        asks = (channel.pages.asks + 1) % (1 << 32)
        self.write(channel, "gated", 1)
        self.write(channel, "busy", 1)
        self.write(channel, "asks", asks)
        return asks

    def announce(self, channel: Channel, at_ns: int) -> None:
        """The same, and it is said in a message, whose answer is not waited for."""
        message = Message(SUBMIT, channel.request.seq + 1, units=self.gate(channel))
        self.arbiter.heard(channel, message, at_ns)

    def pieces(
        self,
        channel: Channel,
        *,
        given: int,
        ended: int,
        opened: int,
        closed: int,
        stream: int = 0,
    ) -> None:
        counts = {"given": given, "ended": ended, "opened": opened, "closed": closed}
        for name, count in counts.items():
            self.write(channel, name, count, stream)

    def job_over(self, channel: Channel) -> None:
        assert channel.pages is not None
        self.write(channel, "gated", 0)
        self.write(channel, "paused", (channel.pages.paused + 1) % (1 << 64))
        self.idle(channel)


def is_open(channel: Channel) -> bool:
    assert channel.pages is not None
    return bool(said(channel, "open"))


def is_known(channel: Channel) -> bool:
    """It is told that it need not ask again."""
    return bool(page(channel, "waits"))


def is_looked_at(channel: Channel) -> bool:
    return bool(page(channel, "polled"))


def waits(channel: Channel) -> bool:
    assert channel.task is not None
    return channel.task.waiting is not None


@pytest.fixture
def bench() -> Iterator[PieceBench]:
    bench = PieceBench()
    yield bench
    assert bench.checker.violations == []
    bench.close()


@pytest.fixture
def low(bench: PieceBench) -> Channel:
    return bench.turner("low", 1)


@pytest.fixture
def high(bench: PieceBench) -> Channel:
    return bench.turner("high", 9)


@pytest.fixture
def ticking() -> Iterator[PieceBench]:
    """Gates close when somebody asks; what that means is decided at the next tick."""
    with closing(PieceBench()) as bench:
        bounds = Bounds(HOLD_NS, tick_ns=10 * MS)
        bench.arbiter = Arbiter(bench.engine, lambda _: None, bounds)
        yield bench


@pytest.fixture
def looking(bench: PieceBench, low: Channel, high: Channel) -> PieceBench:
    bench.arbiter.set_polling(True, 0)
    return bench
