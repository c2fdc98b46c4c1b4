"""Turns that go on over the ends of periods: what is charged to which, and what shares come to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import Charged, Completed, Event, Recorder
from headway.engine.model import Group
from headway.engine.reserves import Reserve, ReserveSpec
from headway.engine.turns import ends
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from headway.trace.checker import check
from tests.bench.gate import MS
from tests.bench.greedy import Gpu
from tests.bench.turns import HOLD_NS, TurnBench, is_leased

SPEC = ReserveSpec("pe", 70 * MS, 100 * MS, None, predict="history")
ALL_OF_IT = (1 << 64) - 1


class Books(TurnBench):
    """A bench that keeps what the engine says."""

    def __init__(self, tick_ns: int | None = None) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.engine.attach(Recorder(self.events.append))
        if tick_ns is not None:
            bounds = Bounds(HOLD_NS, tick_ns=tick_ns)
            self.arbiter = Arbiter(self.engine, lambda channel: None, bounds)

    def parts(self) -> list[tuple[float, float]]:
        """Until when and how much was charged of turns that went on, in ms."""
        found = [e for e in self.events if isinstance(e, Charged)]
        return [(e.until_ns / MS, e.amount_ns / MS) for e in found]

    def executed(self) -> list[float]:
        """What groups took that are done, in ms."""
        found = [e for e in self.events if isinstance(e, Completed)]
        return [(e.ns - e.started_ns) / MS for e in found]

    def said(self, channel: Channel, used_ns: int) -> None:
        """All its work is done, and it says what that took."""
        self.work(channel)
        self.write(channel, "used_ns", used_ns)
        self.mark(channel, 1, 1)


def budget_ms(channel: Channel) -> float:
    return reserve_of(channel).budget_ns / MS


def reserve_of(channel: Channel) -> Reserve:
    assert channel.task is not None
    assert channel.task.reserve is not None
    return channel.task.reserve


@pytest.fixture
def bench() -> Iterator[Books]:
    bench = Books()
    yield bench
    assert bench.checker.violations == []
    bench.close()


# -- what is charged ------------------------------------------------------------------------------


def test_a_turn_goes_on_over_the_end_of_a_period_which_pays_for_its_part(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 30 * MS)
    bench.run_until(100 * MS)
    assert bench.parts() == [(100, 30)]
    assert is_leased(one)
    assert budget_ms(one) == 70
    bench.said(one, 55 * MS)
    bench.rest(one, 130 * MS, last=False)
    assert bench.executed() == [55]
    assert budget_ms(one) == 70 - 25


def test_what_is_left_of_the_budget_counts_from_the_last_charge(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 40 * MS)
    bench.run_until(100 * MS)
    bench.said(one, 40 * MS + 69 * MS)
    bench.run_until(169 * MS)
    assert ends.budget_left_ns(one, 169 * MS) == MS
    assert is_leased(one)
    bench.said(one, 40 * MS + 70 * MS)
    bench.run_until(171 * MS)
    assert not is_leased(one)


def test_what_others_wait_counts_before_anything_is_said(bench: Books) -> None:
    """Books may be kept late; the others' time is not."""
    one = bench.turner("one", reserve=SPEC)
    bench.turner("other", reserve=SPEC)
    bench.begin(one, 0)
    bench.ask(bench.channels[1], 20 * MS)
    bench.run_until(30 * MS)
    assert ends.budget_left_ns(one, 30 * MS) == 60 * MS
    bench.said(one, 25 * MS)
    assert ends.budget_left_ns(one, 30 * MS) == 45 * MS


def test_what_was_used_before_a_turn_does_not_end_it(bench: Books) -> None:
    """It may be said late, when it was paid for as time that others waited."""
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 0)
    bench.said(one, 60 * MS)
    assert ends.budget_left_ns(one, 5 * MS) == 65 * MS
    bench.run_until(5 * MS)
    assert is_leased(one)


@pytest.mark.parametrize(
    ("pieces", "said_ms", "charged_ms"),
    [(1, 0, 40), (3, 20, 30), (9, 32, 36), (101, 20, 20.2), (3, 36, 40)],
    ids=["nothing is done yet", "two of three", "eight of nine", "many small", "nearly no pause"],
)
def test_work_that_is_not_done_counts_as_long_as_a_piece_of_it_takes(
    bench: Books, pieces: int, said_ms: int, charged_ms: float
) -> None:
    """It began at 60 ms, and something is on the GPU at 100 ms."""
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    for _ in range(pieces - 1):
        bench.work(one, used_ns=said_ms * MS // (pieces - 1))
    bench.mark(one, pieces, pieces - 1)
    bench.run_until(100 * MS)
    assert bench.parts() == [(100, charged_ms)]


def test_or_as_long_as_a_window(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    assert one.pages is not None
    one.pages.set_window(2 * MS, 0)
    bench.begin(one, 60 * MS)
    for _ in range(100):
        bench.work(one, used_ns=MS // 5)
    bench.run_until(100 * MS)
    assert bench.parts() == [(100, 22)]


def test_a_turn_that_drains_at_the_end_of_the_period_is_charged_to_it(bench: Books) -> None:
    """A kernel of 40 ms of which nothing was said; somebody has waited since 70 ms."""
    low = bench.turner("low", 1, reserve=SPEC)
    high = bench.turner("high", 9)
    bench.begin(low, 65 * MS)
    bench.ask(high, 70 * MS)
    assert not is_leased(low)
    bench.run_until(100 * MS)
    assert bench.parts() == [(100, 35)]
    bench.said(low, 40 * MS)
    bench.rest(low, 105 * MS, last=False)
    assert bench.executed() == [40]
    assert budget_ms(low) == 70 - 5
    assert is_leased(high)


def test_who_says_nothing_is_charged_for_what_the_others_waited(bench: Books) -> None:
    """In parts, but no more than if it had been charged at the end: they waited from 70 to 105."""
    low = bench.turner("low", 1, reserve=SPEC)
    high = bench.turner("high", 9)
    bench.begin(low, 65 * MS)
    bench.ask(high, 70 * MS)
    bench.mark(low, 1, 2)
    bench.write(low, "unmarked", 0)
    bench.run_until(100 * MS)
    assert bench.parts() == [(100, 35)]
    bench.rest(low, 105 * MS, last=False)
    assert bench.executed() == [35]


@pytest.mark.parametrize("lie", [0, ALL_OF_IT])
def test_a_lie_is_believed_within_what_is_possible(bench: Books, lie: int) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, lie)
    bench.run_until(100 * MS)
    assert bench.parts() == ([(100, 40)] if lie else [])
    bench.rest(one, 110 * MS, last=False)
    assert bench.executed() == [50 if lie else 0]


def test_a_counter_that_falls_gives_nothing_back(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 30 * MS)
    bench.run_until(100 * MS)
    bench.said(one, 0)
    bench.run_until(200 * MS)
    bench.rest(one, 205 * MS, last=False)
    assert bench.parts() == [(100, 30)]
    assert bench.executed() == [30]


def test_a_daemon_that_is_late_by_periods_charges_each_time_once() -> None:
    bench = Books()
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.work(one, used_ns=0)
    bench.said(one, 370 * MS)
    bench.arbiter.tick(430 * MS)
    assert bench.parts() == [(100, 40), (200, 100), (300, 100), (400, 100)]
    assert budget_ms(one) == 70 - 300 + 3 * 70, "what was left at 100 is lost with its period"
    bench.rest(one, 430 * MS, last=False)
    assert bench.executed() == [370]
    assert check(bench.events, tolerance_ns=30 * MS).violations == []
    bench.close()


def test_a_message_that_was_read_before_the_timer_comes_after_it() -> None:
    """It is 105 ms, and the program says that it is done before the daemon saw what time it is."""
    bench = Books()
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 45 * MS)
    bench.rest(one, 105 * MS, last=False)
    assert bench.parts() == [(100, 40)]
    assert bench.executed() == [45]
    assert budget_ms(one) == 70 - 5
    bench.close()


def test_a_program_that_dies_is_charged_to_the_periods_it_ran_in() -> None:
    bench = Books()
    one, other = bench.turner("one", reserve=SPEC), bench.turner("other")
    reserve = reserve_of(one)
    bench.begin(one, 60 * MS)
    bench.ask(other, 60 * MS)
    bench.arbiter.remove(one, 104 * MS)
    assert bench.parts() == [(100, 40)]
    assert bench.executed() == [44]
    assert reserve.budget_ns == 70 * MS - 4 * MS
    assert is_leased(other)
    assert check(bench.events, tolerance_ns=4 * MS).violations == []
    bench.close()


def test_a_new_reserve_has_no_periods_that_are_over(bench: Books) -> None:
    """What the turn used before counts for it, but nothing is replenished for that."""
    one, mate = bench.turner("one", reserve=SPEC), bench.turner("mate")
    pool = ReserveSpec("pe", 50 * MS, 100 * MS, "pool", predict="history")
    assert one.task is not None
    assert mate.task is not None
    bench.engine.set_reserve(mate.task, pool, 0)
    bench.begin(one, 60 * MS)
    bench.said(one, 30 * MS)
    bench.run_until(150 * MS)
    bench.said(one, 60 * MS)
    bench.engine.set_reserve(one.task, pool, 150 * MS)
    bench.arbiter.take_back(one, 150 * MS)
    bench.run_until(170 * MS)
    bench.rest(one, 170 * MS, last=False)
    assert bench.parts() == [(100, 30)]
    assert bench.executed() == [60]
    assert budget_ms(one) == 50 - 30


def test_a_longer_or_shorter_period_counts_from_its_change(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 20 * MS)
    bench.run_until(90 * MS)
    assert one.task is not None
    spec = ReserveSpec("pe", 10 * MS, 20 * MS, None, predict="history")
    bench.engine.set_reserve(one.task, spec, 90 * MS)
    bench.arbiter.take_back(one, 90 * MS)
    bench.run_until(112 * MS)
    assert bench.parts() == [(110, 20)]
    assert budget_ms(one) == 10 - 20 + 10


def test_a_turn_that_ends_as_its_reserve_changes_gains_nothing(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 10 * MS)
    bench.said(one, 20 * MS)
    bench.idle(one)
    assert one.task is not None
    spec = ReserveSpec("pe", 30 * MS, 50 * MS, None, predict="history")
    bench.engine.set_reserve(one.task, spec, 40 * MS)
    bench.arbiter.take_back(one, 40 * MS)
    bench.run_until(89 * MS)
    assert budget_ms(one) == 30 - 20
    bench.run_until(90 * MS)
    assert budget_ms(one) == 30


def test_a_reserve_that_is_taken_away_pays_what_it_paid(bench: Books) -> None:
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 30 * MS)
    bench.run_until(120 * MS)
    assert one.task is not None
    bench.engine.set_reserve(one.task, None, 120 * MS)
    bench.arbiter.take_back(one, 120 * MS)
    bench.run_until(300 * MS)
    bench.said(one, 80 * MS)
    bench.rest(one, 300 * MS, last=False)
    assert bench.parts() == [(100, 30)]
    assert bench.executed() == [180], "nobody waited, but it was taken back at 120"


def test_decisions_at_ticks_change_nothing_in_the_books() -> None:
    bench = Books(tick_ns=7 * MS)
    one = bench.turner("one", reserve=SPEC)
    bench.ask(one, 60 * MS)
    bench.run_until(63 * MS)
    assert is_leased(one)
    bench.said(one, 30 * MS)
    while (due_ns := bench.arbiter.next_timer_ns() or 0) < 100 * MS:
        assert due_ns % (7 * MS) == 0
        bench.arbiter.tick(due_ns)
    assert due_ns == 105 * MS
    bench.arbiter.tick(due_ns)
    assert bench.parts() == [(100, 30)]
    bench.said(one, 34 * MS)
    bench.rest(one, 106 * MS, last=False)
    assert bench.executed() == [34]
    assert budget_ms(one) == 70 - 4
    bench.close()


@pytest.mark.parametrize("first", ["low", "high"])
def test_time_on_the_gpu_together_is_charged_once(first: str) -> None:
    bench = Books()
    low = bench.turner("low", 1, reserve=SPEC)
    high = bench.turner("high", 9, policy="overlap", reserve=SPEC)
    bench.begin(low, 60 * MS)
    bench.begin(high, 90 * MS)
    bench.run_until(100 * MS)
    assert bench.parts() == [(100, 40)]
    bench.said(high, 30 * MS)
    bench.said(low, 50 * MS)
    if first == "low":
        bench.rest(low, 110 * MS, last=False)
    bench.rest(high, 120 * MS)
    bench.rest(low, 125 * MS, last=False)
    assert bench.executed()[:2] == ([50, 10] if first == "low" else [20, 40])
    bench.close()


def test_a_turn_that_is_not_used_is_over_with_its_period(bench: Books) -> None:
    """So a daemon whose programs do nothing sleeps."""
    one = bench.turner("one", reserve=SPEC)
    bench.begin(one, 60 * MS)
    bench.said(one, 30 * MS)
    bench.run_until(90 * MS)
    bench.idle(one)
    bench.write(one, "last_ns", 80 * MS)
    bench.run_until(99 * MS)
    assert is_leased(one)
    bench.run_until(100 * MS)
    assert not is_leased(one)
    assert bench.executed() == [30]
    assert budget_ms(one) == 70
    assert bench.arbiter.next_timer_ns() is None


# -- anything ------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            ("ask", "work", "lie", "done", "idle", "rest", "drain", "reserve", "none", "remove")
        ),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=60,
)
SPECS = [
    ReserveSpec("pe", 5 * MS, 20 * MS, None, predict="history"),
    ReserveSpec("ae", 9 * MS, 30 * MS, None, predict="history"),
    ReserveSpec("pe", 20 * MS, 20 * MS, "pool", predict="history"),
]


def act(bench: Books, channel: Channel, action: str, number: int, now_ns: int) -> None:
    task = channel.task
    if task is None:
        return
    if action == "ask":
        bench.ask(channel, now_ns)
    elif action == "work":
        assert channel.pages is not None
        if channel.pages.used_ns < ALL_OF_IT and channel.pages.passed < ALL_OF_IT:
            bench.work(channel, used_ns=number * MS)
    elif action == "lie":
        bench.write(channel, "used_ns", (0, 7 * MS, ALL_OF_IT)[number % 3])
        bench.write(channel, "passed", (0, 1, ALL_OF_IT)[number // 3 % 3])
    elif action == "done":
        bench.mark(channel, number, number)
    elif action == "idle":
        bench.idle(channel)
    elif action in ("rest", "drain"):
        bench.rest(channel, now_ns, last=action == "rest")
    elif action == "reserve":
        bench.arbiter.settle(now_ns)
        bench.engine.set_reserve(task, SPECS[number % len(SPECS)], now_ns)
        bench.arbiter.take_back(channel, now_ns)
        bench.arbiter.decide(now_ns)
    elif action == "none":
        bench.arbiter.settle(now_ns)
        bench.engine.set_reserve(task, None, now_ns)
        bench.arbiter.take_back(channel, now_ns)
        bench.arbiter.decide(now_ns)
    elif action == "remove":
        bench.arbiter.remove(channel, now_ns)


@contextmanager
def played(
    steps: list[tuple[int, str, int, int]], late_ns: int, tick_ns: int | None = None
) -> Iterator[Books]:
    """Late: the daemon looks at the time only when a message comes, and now and then."""
    with closing(Books(tick_ns)) as bench:
        channels = [
            bench.turner("low", 1, reserve=SPECS[0]),
            bench.turner("equal", 1, reserve=SPECS[1]),
            bench.turner("high", 9, policy="overlap", reserve=SPECS[2]),
        ]
        tasks = [channel.task for channel in channels]
        now_ns = looked_ns = 0
        for who, action, wait_ms, number in steps:
            now_ns += wait_ms * MS
            if not late_ns:
                bench.run_until(now_ns)
            elif now_ns - looked_ns > late_ns:
                bench.arbiter.tick(now_ns)
                looked_ns = now_ns
            act(bench, channels[who], action, number, now_ns)
            assert sum(task.gpu_ns for task in tasks if task is not None) <= now_ns
            for channel in channels:
                if channel.group is not None and channel.account.since_ns is not None:
                    assert channel.group.charged_ns <= now_ns - channel.group.dispatched_ns
        yield bench


LATE = [
    (0, "ask", 8, 0), (1, "reserve", 0, 0), (0, "ask", 9, 0), (0, "ask", 15, 0),
    (1, "ask", 14, 0), (0, "ask", 0, 0), (1, "reserve", 22, 0),
]  # fmt: skip


def test_a_change_of_a_reserve_settles_the_periods_that_are_over() -> None:
    """The second has the GPU from 46 to 68 ms, 5 ms every 20 from 8 ms on, and its daemon looks at
    the time only then. 2 ms are in the period until 48, which has 5: what is left is lost. 20 ms
    are in the next one, and at 68 there are 5 more."""
    with played(LATE, 45 * MS) as bench:
        assert budget_ms(bench.channels[1]) == 5 - 20 + 5
        assert check(bench.events, tolerance_ns=45 * MS).violations == []


def test_a_group_that_completes_late_is_charged_after_the_boundaries_before() -> None:
    """6 of 8 ms are left at 10, which fills it; nobody told the engine before the group's end."""
    events: list[Event] = []
    engine = Engine(observers=[Recorder(events.append)])
    task, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 8 * MS, 10 * MS))
    for index, (begin_ms, end_ms) in enumerate(((0, 2), (2, 27))):
        group = Group(task, index)
        engine.submit(group, begin_ms * MS)
        assert engine.dispatch(begin_ms * MS) is group
        engine.complete(group, begin_ms * MS, end_ms * MS)
    engine.advance(27 * MS)
    assert task.reserve is not None
    assert task.reserve.budget_ns == (8 - 25) * MS
    assert check(events, tolerance_ns=7 * MS).violations == []


@settings(max_examples=300, deadline=None)
@example(LATE, 45 * MS, None)
@given(STEPS, st.sampled_from((0, 0, 45 * MS)), st.sampled_from((None, 3 * MS)))
def test_whatever_happens_time_is_charged_once(
    steps: list[tuple[int, str, int, int]], late_ns: int, tick_ns: int | None
) -> None:
    with played(steps, late_ns, tick_ns) as bench:
        now_ns = sum(wait_ms for _, _, wait_ms, _ in steps) * MS
        tasks = [channel.task for channel in bench.channels]
        for channel in bench.channels:
            bench.arbiter.remove(channel, now_ns)
        paid: dict[tuple[str, int], int] = {}
        for event in bench.events:
            if isinstance(event, Charged):
                key = event.task, event.index
                paid[key] = paid.get(key, 0) + event.amount_ns
            elif isinstance(event, Completed):
                assert paid.pop((event.task, event.index), 0) <= event.ns - event.started_ns
        assert not paid
        assert sum(task.gpu_ns for task in tasks if task is not None) <= now_ns
        found = check(bench.events, tolerance_ns=2 * late_ns + (tick_ns or 0)).violations
        assert [v for v in found if v.rule == "budget" or "charged" in v.message] == []


# -- shares -------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart_ms", [0, 37, 99])
@pytest.mark.parametrize("piece_us", [500, 5000, 7000, 20000])
@pytest.mark.parametrize("percent", [10, 30])
def test_two_greedy_programs_get_what_their_reserves_say(
    percent: int, piece_us: int, apart_ms: int
) -> None:
    """Over 6 s, to within a point, though turns are longer or shorter than what is left of a
    period; and both together have all of it."""
    gpu = Gpu()
    small = gpu.add("small", percent, piece_us * 1000)
    large = gpu.add("large", 100 - percent, piece_us * 1000, at_ns=apart_ms * MS)
    before = [program.ran_ns for program in (small, large)]
    gpu.run_until((apart_ms + 6000) * MS)
    got = [
        100 * (program.ran_ns - ran_ns) / (6000 * MS)
        for program, ran_ns in zip((small, large), before, strict=True)
    ]
    assert got == [pytest.approx(percent, abs=1), pytest.approx(100 - percent, abs=1)]
    assert gpu.bench.checker.violations == []
    gpu.bench.close()


# -- what turns are expected to cost -----------------------------------------------------------


def test_a_turn_is_submitted_with_what_the_last_ones_cost(bench: Books) -> None:
    """Two programs by turns: one uses 3 ms of each of its turns, the other 1 ms."""
    one, other = bench.turner("one"), bench.turner("other")
    expected = []
    bench.begin(other, 0)
    for begin_ms in (10, 20, 30):
        for channel, used_ms, at_ms in ((one, 3, begin_ms), (other, 1, begin_ms + 5)):
            bench.ask(channel, at_ms * MS)
            assert channel.task is not None
            waiting = channel.task.waiting
            assert waiting is not None
            expected.append((waiting.predicted_ns / MS, waiting.bound_ns / MS))
            bench.rest(one if channel is other else other, (at_ms + 1) * MS, last=False)
            assert is_leased(channel)
            bench.work(channel, used_ns=used_ms * MS)
    assert expected[2:] == [(3, 3), (1, 1)] * 2
