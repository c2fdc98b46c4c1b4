"""Long pieces do not begin just before regular, more important jobs: without processes, with our
clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.model import Group
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.turns import ends
from headway.engine.turns.arrivals import LATE_NS, LEAD_NS
from headway.engine.turns.hold_back import LONG_NS, SPARED, HoldBack
from headway.engine.turns.online import Online
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from headway.live.wire.protocol import RELEASE, SUBMIT, Message
from tests.bench.gate import MS
from tests.bench.pieces import is_open
from tests.bench.regular import JOBS, PERIOD_NS, RegularBench, goes, is_held
from tests.bench.turns import HOLD_NS, is_leased
from tests.pages import page


@pytest.fixture
def bench() -> Iterator[RegularBench]:
    bench = RegularBench()
    yield bench
    assert bench.checker.violations == []
    bench.close()


# -- holding back ------------------------------------------------------------


@pytest.mark.parametrize("looked", [False, True])
def test_a_long_piece_does_not_begin_just_before_a_regular_job(
    bench: RegularBench, looked: bool
) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    bench.arbiter.set_polling(looked, 0)
    due_ns = bench.jobs(high, looked=looked)
    bench.go(due_ns - LEAD_NS - 1)
    assert goes(low)
    bench.go(due_ns - LEAD_NS)
    assert is_held(low)
    bench.come(high, due_ns, looked=looked)
    assert not is_leased(low)
    bench.go(due_ns + ends.DRAIN_NS)
    assert is_leased(high)
    bench.be_done(high, due_ns + MS, looked=looked)
    assert goes(low)


def test_timers_come_for_it(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    assert bench.arbiter.next_timer_ns() == due_ns - LEAD_NS
    bench.arbiter.tick(due_ns - LEAD_NS)
    assert is_held(low)
    assert bench.arbiter.next_timer_ns() == due_ns + LATE_NS
    bench.arbiter.tick(due_ns + LATE_NS)
    assert goes(low)
    assert bench.arbiter.next_timer_ns() is None


def test_a_gate_closes_before_the_daemon_does_anything_else_at_that_time(
    bench: RegularBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else long pieces begin while it does."""
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    seen: list[bool] = []
    settle = Online.settle

    def settle_later(online: Online, now_ns: int) -> None:
        seen.append(is_held(low))
        settle(online, now_ns)

    monkeypatch.setattr(Online, "settle", settle_later)
    bench.arbiter.tick(due_ns - LEAD_NS)
    assert seen
    assert all(seen)


def test_who_does_not_come_is_not_waited_for_again(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns + LATE_NS - 1)
    assert is_held(low)
    bench.go(due_ns + LATE_NS)
    assert goes(low)
    for number in range(1, 4):
        bench.go(due_ns + number * PERIOD_NS - 1)
        assert goes(low)
    bench.come(high, bench.now_ns + 3 * MS)
    bench.be_done(high, bench.now_ns + MS)
    bench.go(bench.now_ns + PERIOD_NS - MS)  # but for one, its intervals were regular
    assert is_held(low)


def test_what_a_late_timer_does_late_is_right_all_the_same(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.arbiter.tick(due_ns + 5 * MS)
    assert goes(low)
    assert bench.arbiter.next_timer_ns() is None


def test_a_turn_that_begins_just_before_a_job_begins_held_back(
    bench: RegularBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It never sees its gate open."""
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.job_over(low)
    bench.rest(low, bench.now_ns)
    other = bench.turner("other", 9, at_ns=bench.now_ns)
    bench.begin(other, due_ns - 2 * MS)
    bench.announce(low, due_ns - MS)
    assert low.pages is not None
    seen: list[bool] = []
    set_lease = low.pages.set_lease

    def and_look(on: bool) -> None:
        set_lease(on)
        seen.append(is_open(low))

    monkeypatch.setattr(low.pages, "set_lease", and_look)
    bench.rest(other, due_ns - MS // 2)
    assert seen == [False]
    assert is_held(low)
    bench.go(due_ns + LATE_NS)
    assert goes(low)


def test_who_rests_between_two_long_kernels_does_not_begin_the_next(bench: RegularBench) -> None:
    """It has a lease meanwhile, and would not ask."""
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.pieces(low, given=2, ended=2, opened=2, closed=2)
    bench.job_over(low)
    bench.go(due_ns - LEAD_NS)
    assert is_held(low)
    bench.go(due_ns + LATE_NS)
    assert goes(low)


def test_the_program_can_tell_that_its_gate_was_not_open_all_the_time(bench: RegularBench) -> None:
    """By the number of its lease; else it would count that time as used."""
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    numbers = [page(low, "lease")]
    for at_ns in (due_ns - LEAD_NS, due_ns, due_ns + LATE_NS, due_ns + PERIOD_NS):
        bench.go(at_ns)
        numbers.append(page(low, "lease"))
    before, closed, still, opened, later = numbers
    assert closed == still
    assert opened == later
    assert len({before, closed, opened, 0}) == 4


# -- who is not held back, and for whom ------------------------------------------------------------


def assert_never_held(bench: RegularBench, low: Channel, due_ns: int) -> None:
    assert goes(low)
    timer_ns = bench.arbiter.next_timer_ns()
    assert timer_ns is None or not due_ns - LEAD_NS <= timer_ns <= due_ns + LATE_NS
    for step_ns in range(-LEAD_NS, LATE_NS, MS // 10):
        bench.go(due_ns + step_ns)
        assert goes(low)


@pytest.mark.parametrize("window_ns", [0, MS])
def test_short_pieces_are_not_held_back(bench: RegularBench, window_ns: int) -> None:
    """Nor are those of up to two windows."""
    low = bench.long(piece_ns=max(LONG_NS, 2 * window_ns))
    assert low.pages is not None
    low.pages.set_window(window_ns, 0)
    assert_never_held(bench, low, bench.jobs(bench.turner("high", 9)))


def test_nothing_is_held_back_for_irregular_jobs(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    assert_never_held(bench, low, bench.jobs(high, 2 * JOBS, odd_ns=2 * MS))


def test_nor_for_jobs_that_were_not_seen_often_enough(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    assert_never_held(bench, low, bench.jobs(high, JOBS - 1))


@pytest.mark.parametrize("level", [5, 1])
def test_nor_for_who_is_as_important_or_less(bench: RegularBench, level: int) -> None:
    other = bench.turner("other", level)
    due_ns = bench.jobs(other)  # alone, by asking
    low = bench.long("long", 5)
    bench.go(bench.now_ns + ends.WAKE_NS)
    assert other.jobs.arrivals.due_ns == due_ns
    assert_never_held(bench, low, due_ns)


def test_nor_for_who_has_no_budget(bench: RegularBench) -> None:
    reserve = ReserveSpec("pe", 5 * MS, 1000 * MS)
    low, poor = bench.long(), bench.turner("poor", 9, reserve=reserve)
    due_ns = bench.jobs(poor, JOBS - 1)
    bench.come(poor, due_ns)
    bench.go(due_ns + MS)
    bench.work(poor, used_ns=6 * MS)
    bench.mark(poor, 0, 0)
    bench.be_done(poor, due_ns + 8 * MS)
    assert poor.jobs.arrivals is not None
    assert poor.jobs.arrivals.due_ns == due_ns + PERIOD_NS
    assert_never_held(bench, low, due_ns + PERIOD_NS)


def test_nor_for_who_is_there_already(bench: RegularBench) -> None:
    """Beside it, as some policies have it, or waiting."""
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    for online, held in (((low, high), False), ((low,), True)):
        back = HoldBack(online)
        back.learned(high)
        back.review(due_ns)
        assert is_held(low) is held
    assert high.task is not None
    bench.engine.submit(Group(high.task, high.request.index), due_ns)
    back.review(due_ns)
    assert goes(low)


def test_nor_where_decisions_are_taken_at_ticks(bench: RegularBench) -> None:
    bounds = Bounds(HOLD_NS, tick_ns=MS // 2)
    bench.engine = Engine()  # whose decisions are late by design, so nobody checks them
    bench.arbiter = Arbiter(bench.engine, lambda _: None, bounds)
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns - 2 * MS)
    assert high.jobs.arrivals is not None
    assert high.jobs.arrivals.due_ns is not None
    for step_ns in range(-LEAD_NS, LATE_NS, MS // 10):
        bench.go(due_ns + step_ns)
        assert goes(low)


def test_asking_again_in_the_middle_of_a_job_is_no_habit(bench: RegularBench) -> None:
    """It was taken its turn: by somebody more important, or by its own budget."""
    high = bench.turner("high", 9)
    for number in range(2 * JOBS):
        bench.come(high, number * PERIOD_NS)
        bench.arbiter.heard(high, Message(RELEASE, high.request.seq), bench.now_ns + MS)
    assert high.jobs.arrivals is not None
    assert high.jobs.arrivals.due_ns is None


def test_nor_is_what_the_daemon_asks_for(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    bench.jobs(high, 2 * JOBS)
    assert low.jobs.arrivals is not None
    assert low.jobs.arrivals.due_ns is None


def test_a_job_that_is_over_before_it_was_heard_of_counts(bench: RegularBench) -> None:
    """Who goes at once may be done by then; but not always."""
    low, high = bench.long(), bench.turner("high", 9)
    for number in range(JOBS):
        bench.go(number * PERIOD_NS)
        asks = bench.gate(high)
        if number % 2:
            bench.job_over(high)
        bench.arbiter.heard(high, Message(SUBMIT, high.request.seq + 1, units=asks), bench.now_ns)
        if not number % 2:
            bench.job_over(high)
        bench.rest(high, bench.now_ns)
    assert high.jobs.arrivals is not None
    assert high.jobs.arrivals.due_ns == JOBS * PERIOD_NS
    bench.go(JOBS * PERIOD_NS - LEAD_NS)
    assert is_held(low)


# -- what may happen meanwhile ------------------------------------------------------------


def test_the_gate_opens_again_when_nobody_is_to_be_expected_any_more(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns - LEAD_NS)
    assert is_held(low)
    bench.arbiter.remove(high, due_ns - LEAD_NS + 1)
    assert goes(low)
    assert bench.arbiter.next_timer_ns() is None


def test_it_opens_when_who_is_expected_is_not_more_important_any_more(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns - LEAD_NS)
    assert is_held(low)
    assert high.task is not None
    bench.engine.set_priority(high.task, Fixed(1), bench.now_ns)
    bench.arbiter.pump(bench.now_ns)
    assert goes(low)


def test_it_opens_when_pieces_are_short_now(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns - LEAD_NS)
    bench.write(low, "piece_ns", MS // 5)
    assert bench.arbiter.next_timer_ns() == due_ns + LATE_NS
    bench.arbiter.pump(bench.now_ns + 1)
    assert goes(low)


def test_a_turn_that_ends_while_it_is_held_back_leaves_nothing_closed(bench: RegularBench) -> None:
    low, high = bench.long(), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns - LEAD_NS)
    assert is_held(low)
    bench.job_over(low)
    bench.rest(low, due_ns - LEAD_NS + 1)  # and gets a lease again: nobody else wants the GPU
    assert is_held(low)
    bench.arbiter.take_back(low, due_ns - LEAD_NS + 2)
    bench.arbiter.pump(due_ns - LEAD_NS + 2)
    assert not is_leased(low)
    bench.announce(low, due_ns + LATE_NS)
    assert goes(low)


def test_many_that_are_regular_do_not_keep_one_from_ever_beginning(bench: RegularBench) -> None:
    """Each is due as soon as the last one is done."""
    low = bench.long()
    many = [bench.turner(f"p{number}", 9) for number in range(8)]
    gap_ns = PERIOD_NS // len(many)
    open_ns = closed_ns = 0
    for number in range(3 * JOBS * len(many)):
        begin_ns = (number + 1) * gap_ns
        while bench.now_ns < begin_ns:
            bench.go(min(bench.now_ns + MS // 20, begin_ns))
            if number >= JOBS * len(many):
                open_ns += goes(low)
                closed_ns += is_held(low)
        bench.come(many[number % len(many)], begin_ns)
        bench.be_done(many[number % len(many)], begin_ns + MS // 10)
    assert closed_ns > 0
    assert open_ns > (SPARED - 2) * closed_ns


# -- anything ------------------------------------------------------------

ACTIONS = st.sampled_from(("come", "done", "gone", "rank", "piece", "rest", "ask", "wait"))
STEPS = st.lists(st.tuples(ACTIONS, st.integers(0, 2), st.integers(0, 60)), max_size=50)


class Watched:
    """How long a gate was closed under a lease."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.since_ns: int | None = None
        self.longest_ns = 0

    def look(self, now_ns: int) -> None:
        held = self.channel.pages is not None and is_held(self.channel)
        if self.since_ns is not None:
            self.longest_ns = max(self.longest_ns, now_ns - self.since_ns)
        if not held or self.channel.revoked:
            self.since_ns = None
        elif self.since_ns is None:
            self.since_ns = now_ns


def serve_timers(bench: RegularBench, watched: list[Watched], until_ns: int) -> None:
    """On time."""
    for one in watched:
        one.look(bench.now_ns)
    while True:
        due_ns = bench.arbiter.next_timer_ns()
        at_ns = until_ns if due_ns is None else min(until_ns, max(due_ns, bench.engine.now_ns))
        bench.arbiter.tick(at_ns)
        bench.now_ns = at_ns
        for one in watched:
            one.look(at_ns)
        if at_ns == until_ns:
            return


def act(bench: RegularBench, channels: list[Channel], action: str, who: int, number: int) -> None:
    channel = channels[who]
    if channel.task is None:
        return
    now_ns = bench.now_ns
    if action == "come":
        bench.announce(channel, now_ns)
    elif action in ("done", "rest"):
        bench.job_over(channel)
        bench.rest(channel, now_ns, last=action == "done")
    elif action == "gone" and number < 3:
        bench.arbiter.remove(channel, now_ns)
        channel.close()
    elif action == "rank":
        bench.engine.set_priority(channel.task, Fixed(number % 10), now_ns)
        bench.arbiter.pump(now_ns)
    elif action == "piece":
        bench.write(channel, "piece_ns", number * MS // 10)
    elif action == "ask":
        bench.ask(channel, now_ns)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(2, 30))
def test_whatever_happens_no_gate_is_closed_for_long_under_a_lease(
    steps: list[tuple[str, int, int]], period: int
) -> None:
    """Two are regular at first; then anything."""
    with closing(RegularBench()) as bench:
        channels = [bench.long(), bench.turner("high", 9), bench.turner("middle", 5)]
        watched = [Watched(channel) for channel in channels]
        period_ns = period * MS
        for number in range(1, JOBS + 1):
            for shift, channel in enumerate(channels[1:]):
                begin_ns = number * period_ns + shift * MS // 2
                serve_timers(bench, watched, begin_ns)
                bench.announce(channel, begin_ns)
                serve_timers(bench, watched, begin_ns + MS // 3)
                act(bench, channels, "done", shift + 1, 0)
        for action, who, number in steps:
            serve_timers(bench, watched, bench.now_ns + number * MS // 4)
            act(bench, channels, action, who, number)
        serve_timers(bench, watched, bench.now_ns + 100 * MS)
        assert max(one.longest_ns for one in watched) <= LEAD_NS + LATE_NS
        assert not any(is_held(c) for c in channels if c.pages is not None)
        assert bench.checker.violations == []
