"""The gate of whoever is next opens when a turn is over, and before where that harms nobody:
without processes, with our clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.engine.priorities import Fixed
from headway.engine.turns import ends
from headway.engine.turns.arrivals import ALIKE_NS
from headway.engine.turns.early_gate import LATE_NS, LEAD_NS, SHORT_NS
from headway.live.gate.channel import Channel
from headway.live.wire.pages import Pages
from headway.live.wire.protocol import ITS_END, ITS_MARK
from tests.bench.gate import MS
from tests.bench.pieces import is_open
from tests.bench.regular import JOBS, PERIOD_NS, RegularBench, goes
from tests.bench.turns import is_leased

LENGTH_NS = MS
"""Of an important job."""


class Jobs(RegularBench):
    """Short pieces that always wait, and jobs that all take as long."""

    def low(self) -> Channel:
        low = self.turner("low", 1)
        self.announce(low, 0)
        return low

    def job(self, high: Channel, low: Channel, length_ns: int = LENGTH_NS) -> int:
        """The next one; when it began."""
        begin_ns = self.now_ns + PERIOD_NS
        self.come(high, begin_ns)
        self.stop(low)
        self.be_done(high, begin_ns + length_ns)
        return begin_ns

    def stop(self, low: Channel) -> None:
        """What it has on the GPU waits at its gate."""
        self.pieces(low, given=2, ended=1, opened=1, closed=1)

    def wait(self, channel: Channel, on: bool = True) -> None:
        """It waits for the GPU."""
        self.write(channel, "waiting", int(on))

    def be_near(self, channel: Channel, announced: int, done: int) -> None:
        """It was so often about to wait for its work, and so much of that the GPU has done."""
        self.write(channel, "end_marks", announced)
        self.write(channel, "end_marked", done)

    def next_job(self, high: Channel, low: Channel) -> int:
        """A job that is like those before it; when it began."""
        begin_ns = self.now_ns + PERIOD_NS
        self.come(high, begin_ns)
        self.stop(low)
        self.go(begin_ns + ends.DRAIN_NS)
        assert is_leased(high)
        assert not is_open(low)
        return begin_ns


@pytest.fixture
def bench() -> Iterator[Jobs]:
    bench = Jobs()
    yield bench
    assert bench.checker.violations == []
    bench.close()


def wanted(channel: Channel) -> int:
    """What its page says that is wanted of its turn."""
    assert channel.pages is not None
    return channel.pages._words.wanted.value


def pair(
    bench: Jobs, *, policy: str = "overlap", length_ns: int = LENGTH_NS
) -> tuple[Channel, Channel]:
    low, high = bench.low(), bench.turner("high", 9, policy=policy)
    for _ in range(JOBS):
        bench.job(high, low, length_ns)
    return low, high


def test_it_opens_just_before_a_short_job_is_over_that_is_waited_for(bench: Jobs) -> None:
    low, high = pair(bench)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS - 1)
    assert not is_open(low)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS)
    assert is_open(low)
    assert not is_leased(low)
    assert is_leased(high)
    bench.be_done(high, begin_ns + LENGTH_NS)
    assert goes(low)


def test_not_while_the_program_may_have_more_to_send(bench: Jobs) -> None:
    """What it sends next would have to wait."""
    low, high = pair(bench)
    begin_ns = bench.next_job(high, low)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS // 2)
    assert not is_open(low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS)
    assert is_open(low)


def test_it_closes_again_if_the_job_takes_longer_than_it_should(bench: Jobs) -> None:
    low, high = pair(bench)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS + LATE_NS - 1)
    assert is_open(low)
    bench.go(begin_ns + LENGTH_NS + LATE_NS)
    assert not is_open(low)
    bench.be_done(high, begin_ns + 2 * LENGTH_NS)
    assert goes(low)


@pytest.mark.parametrize(
    ("policy", "length_ns"), [("prt", LENGTH_NS), ("overlap", SHORT_NS + MS // 10)]
)
def test_not_beside_who_wants_the_gpu_alone_or_for_longer_than_a_slice(
    bench: Jobs, policy: str, length_ns: int
) -> None:
    low, high = pair(bench, policy=policy, length_ns=length_ns)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    for share in (0.5, 0.9, 1.0, 1.2):
        bench.go(begin_ns + int(share * length_ns))
        assert not is_open(low)


def test_not_where_both_would_run_side_by_side(bench: Jobs) -> None:
    low, high = pair(bench)
    high.company.side_by_side = True
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS)
    assert not is_open(low)
    bench.be_done(high, begin_ns + LENGTH_NS)
    assert goes(low)


def beside(bench: Jobs) -> tuple[Channel, Channel]:
    """A job that runs side by side with others, and is looked at all the time."""
    bench.arbiter.set_polling(True, bench.now_ns)
    low, high = pair(bench)
    high.company.side_by_side = True
    bench.next_job(high, low)
    return low, high


def test_side_by_side_it_opens_when_the_gpu_has_done_what_the_program_waits_for(
    bench: Jobs,
) -> None:
    low, high = beside(bench)
    assert wanted(high) == ITS_MARK
    bench.be_near(high, announced=7, done=6)
    bench.wait(high)
    bench.arbiter.poll(bench.now_ns)
    assert not is_open(low)
    bench.be_near(high, announced=7, done=7)
    bench.arbiter.poll(bench.now_ns)
    assert is_open(low)
    assert is_leased(high)
    bench.be_done(high, bench.now_ns + 10_000, looked=True)
    assert goes(low)


def test_a_mark_of_work_that_nobody_waits_for_says_nothing(bench: Jobs) -> None:
    low, high = beside(bench)
    bench.be_near(high, announced=7, done=7)
    bench.arbiter.poll(bench.now_ns)
    assert not is_open(low)


def test_it_closes_again_if_the_program_does_not_see_that_its_job_is_done(bench: Jobs) -> None:
    low, high = beside(bench)
    bench.be_near(high, announced=7, done=7)
    bench.wait(high)
    bench.arbiter.poll(bench.now_ns)
    assert is_open(low)
    bench.wait(high, False)
    bench.arbiter.poll(bench.now_ns + LATE_NS)
    assert not is_open(low)


def test_no_mark_is_wanted_where_it_would_be_of_no_use(bench: Jobs) -> None:
    """By programs in time slices, where a gate opens without; and by who looks now and then."""
    low, high = beside(bench)
    assert wanted(high) == ITS_MARK
    bench.be_done(high, bench.now_ns + LENGTH_NS, looked=True)
    high.company.side_by_side = False
    bench.next_job(high, low)
    assert wanted(high) == ITS_END
    bench.be_done(high, bench.now_ns + LENGTH_NS, looked=True)
    high.company.side_by_side = True
    bench.arbiter.set_polling(False, bench.now_ns)
    bench.next_job(high, low)
    assert wanted(high) == ITS_END


def test_not_for_jobs_that_take_now_this_long_and_now_that_long(bench: Jobs) -> None:
    low, high = bench.low(), bench.turner("high", 9, policy="overlap")
    for number in range(JOBS):
        bench.job(high, low, LENGTH_NS if number % 2 else LENGTH_NS - ALIKE_NS - 1)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS)
    assert not is_open(low)


def test_it_opens_before_a_job_can_be_over_and_closes_when_it_should_have_been(bench: Jobs) -> None:
    """They take now this long, now a little longer: it is the GPU that keeps them apart."""
    low, high = bench.low(), bench.turner("high", 9, policy="overlap")
    longer_ns = LENGTH_NS + ALIKE_NS // 2
    for number in range(JOBS):
        bench.job(high, low, LENGTH_NS if number % 2 else longer_ns)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS - 1)
    assert not is_open(low)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS)
    assert is_open(low)
    bench.go(begin_ns + longer_ns + LATE_NS - 1)
    assert is_open(low)
    bench.go(begin_ns + longer_ns + LATE_NS)
    assert not is_open(low)


def test_a_daemon_that_looks_all_the_time_sees_at_once_that_a_program_waits(bench: Jobs) -> None:
    """And does nothing else for it: that would take longer than the rest of a job."""
    low, high = pair(bench)
    begin_ns = bench.next_job(high, low)
    bench.arbiter.set_polling(True, bench.now_ns)
    time_ns = begin_ns + LENGTH_NS - LEAD_NS
    due_ns = bench.arbiter.next_timer_ns()
    assert due_ns is None or due_ns > time_ns
    assert not bench.arbiter.poll(time_ns)
    assert not is_open(low)
    bench.wait(high)
    assert not bench.arbiter.poll(time_ns + 1)
    assert is_open(low)
    bench.be_done(high, begin_ns + LENGTH_NS)
    assert goes(low)


def test_nobody_goes_before_who_is_more_important_and_comes_meanwhile(bench: Jobs) -> None:
    low, high = pair(bench)
    third = bench.turner("third", 5, policy="overlap", at_ns=bench.now_ns)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS)
    assert is_open(low)
    bench.come(third, begin_ns + LENGTH_NS - LEAD_NS // 2)
    assert not is_open(low)
    bench.be_done(high, begin_ns + LENGTH_NS)
    assert is_leased(third)
    assert not is_open(low)


def test_who_asks_meanwhile_and_is_less_important_changes_nothing(bench: Jobs) -> None:
    low, high = pair(bench)
    lowest = bench.turner("lowest", 0, policy="overlap", at_ns=bench.now_ns)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.come(lowest, begin_ns + LENGTH_NS // 2)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS)
    assert is_open(low)
    assert not is_open(lowest)
    bench.be_done(high, begin_ns + LENGTH_NS)
    assert goes(low)


def test_the_dead_keep_no_gate_open_or_closed(bench: Jobs) -> None:
    low, high = pair(bench)
    begin_ns = bench.next_job(high, low)
    bench.wait(high)
    bench.go(begin_ns + LENGTH_NS - LEAD_NS)
    assert is_open(low)
    bench.arbiter.remove(high, bench.now_ns)
    assert goes(low)
    bench.go(begin_ns + PERIOD_NS)
    assert goes(low)


def test_when_a_turn_is_over_the_next_gate_opens_before_it_is_decided_on(
    bench: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = pair(bench)
    seen: list[tuple[bool, bool]] = []
    lease = Pages.set_lease

    def set_lease(pages: Pages, on: bool) -> None:
        if pages is low.pages and on:
            seen.append((is_open(low), is_leased(low)))
        lease(pages, on)

    monkeypatch.setattr(Pages, "set_lease", set_lease)
    bench.job(high, low)
    assert seen == [(True, False)]
    assert goes(low)


def test_that_closes_again_if_it_is_somebody_elses_turn(bench: Jobs) -> None:
    """Its importance changes while it waits, before anybody has heard of that."""
    low, high = pair(bench)
    other = bench.turner("other", 0, at_ns=bench.now_ns)
    begin_ns = bench.next_job(high, low)
    bench.come(other, begin_ns + LENGTH_NS // 2)
    assert other.task is not None
    bench.engine.set_priority(other.task, Fixed(5), bench.now_ns)
    bench.be_done(high, begin_ns + LENGTH_NS)
    assert is_leased(other)
    assert not is_open(low)
