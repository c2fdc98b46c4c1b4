"""A regular, important program beside others with long pieces."""

from __future__ import annotations

from headway.engine.turns.arrivals import SEEN
from headway.live.gate.channel import Channel
from tests.bench.gate import MS
from tests.bench.pieces import PieceBench, is_open
from tests.bench.turns import is_leased

PERIOD_NS = 10 * MS
LONG = 5 * MS
JOBS = SEEN + 1


class RegularBench(PieceBench):
    """One program whose pieces are long, and always wait; others come for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0

    def long(self, name: str = "low", level: int = 1, piece_ns: int = LONG) -> Channel:
        channel = self.turner(name, level, at_ns=self.now_ns)
        self.write(channel, "piece_ns", piece_ns)
        self.announce(channel, self.now_ns)
        self.pieces(channel, given=2, ended=2, opened=1, closed=1)
        return channel

    def go(self, until_ns: int) -> None:
        self.run_until(until_ns)
        self.now_ns = until_ns

    def come(self, channel: Channel, at_ns: int, *, looked: bool = False) -> None:
        """It asks for its job."""
        self.go(at_ns)
        if looked:
            self.gate(channel)
            assert self.arbiter.poll(at_ns)
        else:
            self.announce(channel, at_ns)

    def be_done(self, channel: Channel, at_ns: int, *, looked: bool = False) -> None:
        self.go(at_ns)
        self.job_over(channel)
        if looked:
            assert self.arbiter.poll(at_ns)
        else:
            self.rest(channel, at_ns)

    def jobs(
        self, channel: Channel, count: int = JOBS, *, odd_ns: int = 0, looked: bool = False
    ) -> int:
        """Every period, or every second time so much later; when the next is due."""
        begin_ns = self.now_ns + PERIOD_NS
        for number in range(count):
            self.come(channel, begin_ns + number % 2 * odd_ns, looked=looked)
            self.be_done(channel, self.now_ns + MS, looked=looked)
            begin_ns += PERIOD_NS
        return begin_ns


def is_held(channel: Channel) -> bool:
    return is_leased(channel) and not is_open(channel)


def goes(channel: Channel) -> bool:
    return is_leased(channel) and is_open(channel)
