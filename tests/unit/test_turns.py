"""Turns: who has the GPU and for how long, without processes and with our clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.model import Group
from headway.engine.policies.overlap import Overlap
from headway.engine.priorities import EarliestDeadline, Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.turns import ends
from headway.engine.turns.leases import KEEP_FROM_TURNS_NS
from headway.live.gate.channel import Channel
from headway.live.wire.protocol import COMPLETE, RELEASE, SUBMIT, WITHDRAW, Message
from tests.bench.gate import MS
from tests.bench.turns import HOLD_NS, TurnBench, is_leased, is_wanted, may_go_at_once


@pytest.fixture
def bench() -> Iterator[TurnBench]:
    bench = TurnBench()
    yield bench
    assert bench.checker.violations == []
    bench.close()


# -- leases ------------------------------------------------------------


def test_a_grant_is_a_lease_that_lasts_while_nobody_else_comes(bench: TurnBench) -> None:
    alone = bench.turner("alone")
    bench.begin(alone, 0)
    bench.run_until(10_000 * MS)
    assert is_leased(alone)
    assert not is_wanted(alone)
    assert bench.arbiter.next_timer_ns() is None  # and nobody looks at it


def test_who_is_more_important_takes_the_turn_at_once_but_waits_for_the_drain(
    bench: TurnBench,
) -> None:
    low, high = bench.turner("low", 1), bench.turner("high", 9)
    bench.begin(low, 0)
    bench.ask(high, 5 * MS)
    assert not is_leased(low)
    assert not is_leased(high)
    bench.rest(low, 6 * MS, last=False)
    assert is_leased(high)
    assert bench.granted == [("low", 1), ("high", 1)]


def test_the_drain_is_seen_by_the_marks_before_the_program_says_it(bench: TurnBench) -> None:
    low, high = bench.turner("low", 1), bench.turner("high", 9)
    bench.begin(low, 0)
    bench.mark(low, issued=3, done=2)
    bench.ask(high, 5 * MS)
    bench.run_until(6 * MS)
    assert not is_leased(high)
    bench.mark(low, issued=3, done=3)
    assert bench.arbiter.next_timer_ns() == 6 * MS + ends.DRAIN_NS
    bench.run_until(6 * MS + ends.DRAIN_NS)
    assert is_leased(high)
    bench.rest(low, 7 * MS, last=False)  # late, and it changes nothing
    assert is_leased(high)


def test_who_does_not_drain_loses_the_gpu_after_its_bound(bench: TurnBench) -> None:
    low, high = bench.turner("low", 1), bench.turner("high", 9)
    bench.begin(low, 0)
    bench.ask(high, 5 * MS)
    bench.run_until(5 * MS + HOLD_NS - 1)
    assert not is_leased(high)
    bench.run_until(5 * MS + HOLD_NS)
    assert is_leased(high)
    assert low.account.overdue == 1


def test_the_end_of_the_job_before_does_not_end_a_turn_that_is_used_again(
    bench: TurnBench,
) -> None:
    """The program says that it rests, begins its next job under the same lease, and loses that:
    what it said is heard only then."""
    low, high = bench.turner("low", 1), bench.turner("high", 9)
    bench.begin(low, 0)
    bench.ask(high, 5 * MS)
    bench.arbiter.heard(low, Message(RELEASE, 1, frame=True), 5 * MS)
    assert not is_leased(high)
    bench.rest(low, 6 * MS)
    assert is_leased(high)


def test_who_asked_before_it_saw_its_lease_keeps_its_turn(bench: TurnBench) -> None:
    low, high = bench.turner("low", 1), bench.turner("high", 9)
    bench.begin(low, 0)
    bench.ask(low, 1 * MS)
    assert is_leased(low)
    bench.ask(high, 5 * MS)
    assert not is_leased(high)
    bench.ask(low, 6 * MS)
    assert not is_leased(high)
    bench.rest(low, 7 * MS, last=False)
    assert is_leased(high)


def test_a_lease_that_is_not_used_is_taken_at_once_by_whoever_asks(bench: TurnBench) -> None:
    high, low = bench.turner("high", 9), bench.turner("low", 1)
    bench.begin(high, 0)
    bench.idle(high)  # nobody wanted it, so it said nothing
    bench.ask(low, 50 * MS)
    assert is_leased(low)
    assert not is_leased(high)


def test_who_was_just_granted_may_take_a_while_to_wake_up(bench: TurnBench) -> None:
    high, low = bench.turner("high", 9), bench.turner("low", 1)
    bench.ask(high, 0)
    bench.ask(low, 1000)
    assert is_leased(high)
    bench.run_until(ends.WAKE_NS - 1)
    assert is_leased(high)
    bench.run_until(ends.WAKE_NS)
    assert not is_leased(high)
    assert is_leased(low)


def test_who_did_a_job_is_awake_though_it_was_launched_before(bench: TurnBench) -> None:
    """What waits on the GPU passed the gate long ago: then a pause is a pause."""
    one, two = bench.turner("one"), bench.turner("two")
    bench.ask(one, 0)
    bench.ask(two, 1000)
    bench.write(one, "busy", 1)
    bench.run_until(3 * MS)
    bench.write(one, "paused", 1)
    bench.write(one, "last_ns", 3 * MS)  # when it was done
    bench.idle(one)
    bench.run_until(3 * MS + ends.PAUSE_NS - 1)
    assert is_leased(one)
    bench.run_until(3 * MS + ends.PAUSE_NS)
    assert is_leased(two)


def test_equals_take_turns_of_a_slice_each(bench: TurnBench) -> None:
    one, two = bench.turner("one"), bench.turner("two")
    bench.begin(one, 0)
    bench.ask(two, MS)
    assert not is_wanted(one), "a pause within its slice does not end its turn"
    bench.run_until(ends.SLICE_NS - 1)
    assert is_leased(one)
    bench.run_until(ends.SLICE_NS)
    assert not is_leased(one)
    bench.rest(one, ends.SLICE_NS + 1000, last=False)
    assert is_leased(two)
    bench.ask(one, ends.SLICE_NS + 2000)
    bench.work(two)
    bench.run_until(2 * ends.SLICE_NS)
    assert is_leased(two)
    bench.run_until(2 * ends.SLICE_NS + 1000)
    assert not is_leased(two)


@pytest.mark.parametrize(
    ("periods_ms", "slice_ns"),
    [((90, 120), 30 * MS), ((120, 90), 30 * MS), ((12, 120), ends.SLICE_NS)],
)
def test_equals_with_reserves_wait_for_a_third_of_the_shortest_period(
    bench: TurnBench, periods_ms: tuple[int, int], slice_ns: int
) -> None:
    """Or for a slice, if that is longer; each has budget enough for all of its periods."""
    one, other = (
        bench.turner(f"p{number}", reserve=ReserveSpec("pe", period_ms * MS, period_ms * MS))
        for number, period_ms in enumerate(periods_ms)
    )
    bench.begin(one, 0)
    bench.ask(other, 1000)
    bench.run_until(slice_ns - 1)
    assert is_leased(one)
    bench.run_until(slice_ns)
    assert not is_leased(one)


def test_one_equal_without_a_reserve_waits_for_no_more_than_a_slice(bench: TurnBench) -> None:
    one, other = (
        bench.turner("one", reserve=ReserveSpec("pe", 90 * MS, 90 * MS)),
        bench.turner("other"),
    )
    bench.begin(one, 0)
    bench.ask(other, 1000)
    bench.run_until(ends.SLICE_NS)
    assert not is_leased(one)


def test_equals_that_rest_for_long_lose_the_rest_of_their_slice(bench: TurnBench) -> None:
    one, two = bench.turner("one"), bench.turner("two")
    bench.begin(one, 0)
    bench.work(one)
    bench.ask(two, MS)
    bench.idle(one)
    bench.write(one, "last_ns", MS)  # when it was done
    bench.run_until(MS + ends.PAUSE_NS - 1)
    assert is_leased(one)
    bench.run_until(MS + ends.PAUSE_NS)
    assert is_leased(two)


def test_less_important_ones_do_not_take_the_turn_of_who_goes_on(bench: TurnBench) -> None:
    high, low = bench.turner("high", 9), bench.turner("low", 1)
    bench.begin(high, 0)
    bench.ask(low, MS)
    for now_ms in range(2, 1000, 5):
        bench.work(high)
        bench.run_until(now_ms * MS)
    assert is_leased(high)
    bench.rest(high, 1000 * MS)
    assert is_leased(low)


def test_who_sends_nothing_and_says_nothing_does_not_keep_its_turn_for_ever(
    bench: TurnBench,
) -> None:
    high, low = bench.turner("high", 9), bench.turner("low", 1)
    bench.begin(high, 0)
    bench.ask(low, MS)
    bench.run_until(ends.QUIET_NS - MS)
    assert is_leased(high)
    bench.run_until(ends.QUIET_NS + ends.LOOK_NS + HOLD_NS + MS)
    assert is_leased(low)


def test_who_waits_for_its_work_keeps_its_turn_for_longer(bench: TurnBench) -> None:
    high, low = bench.turner("high", 9), bench.turner("low", 1)
    bench.begin(high, 0)
    bench.write(high, "waiting", 1)
    bench.ask(low, MS)
    bench.run_until(10 * ends.QUIET_NS)
    assert is_leased(high)
    bench.run_until(ends.HANGING_NS + ends.LOOK_NS + HOLD_NS + MS)
    assert is_leased(low)


def test_a_rest_ends_the_hold_off_and_a_drain_does_not() -> None:
    for last in (True, False):
        bench = TurnBench(holdoff_ns=2 * MS)
        high, low = bench.turner("high", 9), bench.turner("low", 1)
        bench.begin(high, 0)
        bench.ask(low, MS)
        bench.rest(high, 2 * MS, last=last)
        assert is_leased(low) == last
        bench.run_until(4 * MS)
        assert is_leased(low)
        bench.close()


@pytest.mark.parametrize("turns_wait", [True, False])
def test_an_idle_gpu_is_kept_shorter_from_those_who_give_it_back_soon(turns_wait: bool) -> None:
    """It is kept for one that draws; from others than turns for the whole hold-off, and once more
    if that ends with a lease."""
    bench = TurnBench(holdoff_ns=2 * MS)
    high = bench.channel("high", level=9)
    low = bench.turner("low", 1) if turns_wait else bench.channel("low", level=1)
    bench.hear(high, SUBMIT, 1, 0)
    bench.hear(high, COMPLETE, 1, MS)
    assert is_leased(high)
    bench.hear(low, SUBMIT, 1, MS + 1)
    kept_ns = KEEP_FROM_TURNS_NS if turns_wait else 2 * MS
    bench.run_until(MS + kept_ns - 1)
    assert bench.granted == [("high", 1)]
    bench.run_until(MS + (1 if turns_wait else 2) * kept_ns + 1)
    assert bench.granted == [("high", 1), ("low", 1)]
    bench.close()


def test_done_before_the_answer_withdraws_the_asking(bench: TurnBench) -> None:
    """Who may go at once can be done before it was granted."""
    first, late = bench.turner("first", 5), bench.turner("late", 1)
    bench.begin(first, 0)
    bench.ask(late, MS)
    bench.rest(late, MS + 1)
    bench.rest(first, 2 * MS)
    assert not is_leased(late)
    assert bench.granted == [("first", 1)]


# -- going at once ------------------------------------------------------------


def test_overlap_may_corun_the_one_that_drains(bench: TurnBench) -> None:
    low = bench.turner("low", 1)
    high = bench.turner("high", 9, policy="overlap")
    bench.begin(low, 0)
    assert may_go_at_once(high)
    assert not may_go_at_once(low)
    bench.ask(high, 5 * MS)
    assert is_leased(high)
    assert not is_leased(low)
    assert not may_go_at_once(high)  # it has begun
    bench.rest(low, 6 * MS, last=False)
    bench.ask(low, 6 * MS)
    assert not is_leased(low)
    bench.rest(high, 7 * MS)
    assert is_leased(low)
    assert may_go_at_once(high)


def test_nobody_goes_at_once_beside_who_is_as_important_or_without_budget(bench: TurnBench) -> None:
    equal = bench.turner("equal", 9)
    over = bench.turner("over", 9, policy="overlap")
    poor = bench.turner("poor", 10, policy="overlap", reserve=ReserveSpec("pe", 2 * MS, 10 * MS))
    assert may_go_at_once(over)
    assert may_go_at_once(poor)
    bench.begin(poor, 0)
    bench.work(poor, used_ns=5 * MS)
    bench.rest(poor, 5 * MS)
    bench.begin(equal, 5 * MS)
    assert not may_go_at_once(over)
    assert not may_go_at_once(poor)
    bench.ask(over, 5 * MS)
    assert not is_leased(over)


def test_overlap_admits_beside_less_important_groups_only() -> None:
    engine = Engine(named=(Overlap(0),))
    tasks = {}
    for name, level in (("low", 1), ("high", 9), ("peer", 9), ("top", 10)):
        tasks[name], _ = engine.add_task(name, 0, policy="overlap", priority=Fixed(level))
        engine.submit(Group(tasks[name], 0), 0)
    went = []
    while (group := engine.dispatch(0)) is not None:
        went.append(group.task.name)
    assert went == ["top"]
    engine = Engine(named=(Overlap(0),))
    went = []
    for name, level in (("low", 1), ("high", 9), ("peer", 9), ("top", 10)):
        task, _ = engine.add_task(name, 0, policy="overlap", priority=Fixed(level))
        engine.submit(Group(task, 0), 0)
        while (group := engine.dispatch(0)) is not None:
            went.append(group.task.name)
    assert went == ["low", "high", "top"]


# -- budgets and deadlines ------------------------------------------------------------


def test_a_turn_ends_with_its_budget_and_debt_is_paid_back(bench: TurnBench) -> None:
    greedy = bench.turner("greedy", reserve=ReserveSpec("pe", 3 * MS, 10 * MS))
    bench.begin(greedy, 0)
    assert bench.arbiter.next_timer_ns() == 3 * MS
    bench.work(greedy, used_ns=2 * MS)
    bench.run_until(3 * MS)
    assert is_leased(greedy)
    bench.work(greedy, used_ns=6 * MS)
    bench.run_until(8 * MS)
    assert not is_leased(greedy)
    bench.rest(greedy, 8 * MS, last=False)
    bench.ask(greedy, 8 * MS)
    assert greedy.task is not None
    assert greedy.task.gpu_ns == 8 * MS
    bench.run_until(19 * MS)
    assert not is_leased(greedy)  # 3 - 8 + 3 is not above 0
    bench.run_until(20 * MS)
    assert is_leased(greedy)


def test_a_group_that_was_not_let_go_is_not_another_one_later(bench: TurnBench) -> None:
    """Without budget no lease follows a rest; the trace must not show one group twice."""
    poor = bench.turner("poor", reserve=ReserveSpec("pe", 2 * MS, 10 * MS))
    bench.begin(poor, 0)
    bench.work(poor, used_ns=5 * MS)
    bench.rest(poor, 5 * MS)
    assert not is_leased(poor)
    bench.ask(poor, 6 * MS)
    assert bench.checker.violations == []


def test_the_earlier_deadline_goes_first(bench: TurnBench) -> None:
    names = ("busy", "late", "soon")
    busy, late, soon = (bench.turner(name, rule=EarliestDeadline(0)) for name in names)
    busy.deadline_ns, late.deadline_ns, soon.deadline_ns = MS, 90 * MS, 20 * MS
    bench.begin(busy, 0)
    bench.ask(late, 0)
    bench.ask(soon, 5 * MS)
    bench.rest(busy, 6 * MS)
    assert is_leased(soon)
    bench.work(soon)
    bench.rest(soon, 7 * MS)
    assert is_leased(late)


def test_the_deadline_of_a_job_that_is_over_does_not_count_for_the_next(bench: TurnBench) -> None:
    holder, other = (bench.turner(name, rule=EarliestDeadline(0)) for name in ("holder", "other"))
    holder.deadline_ns, other.deadline_ns = 100 * MS, 50 * MS
    bench.begin(holder, 0)
    bench.idle(holder)
    bench.write(holder, "paused", 1)  # nobody wanted the turn, so it said nothing
    bench.work(holder)  # the next job
    bench.ask(other, 90 * MS)
    assert not is_leased(holder)
    bench.rest(holder, 91 * MS, last=False)
    assert is_leased(other)


# -- anything ------------------------------------------------------------


ACTIONS = st.sampled_from(
    ("ask", "announce", "work", "marks", "idle", "rest", "drain", "withdraw", "complete", "stray")
)
STEPS = st.lists(st.tuples(st.integers(0, 3), ACTIONS, st.integers(0, 20 * MS)), max_size=60)


def act(bench: TurnBench, channel: Channel, action: str, now_ns: int) -> None:
    if action in ("ask", "announce"):
        bench.ask(channel, now_ns)
    if action in ("work", "announce"):
        bench.work(channel, used_ns=MS // 2)
    elif action == "marks":
        bench.mark(channel, issued=now_ns % 7, done=now_ns % 5)
    elif action == "idle":
        bench.idle(channel)
    elif action in ("rest", "drain"):
        bench.rest(channel, now_ns, last=action == "rest")
    elif action == "withdraw":
        bench.hear(channel, WITHDRAW, channel.request.seq, now_ns)
    elif action == "complete":
        bench.hear(channel, COMPLETE, channel.request.seq, now_ns)
    elif action == "stray":
        bench.hear(channel, RELEASE, channel.request.seq + 7, now_ns)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 3))
def test_whatever_happens_one_has_the_gpu_and_nobody_starves(
    steps: list[tuple[int, str, int]], waiter: int
) -> None:
    bench = TurnBench(holdoff_ns=2 * MS)
    reserve = ReserveSpec("pe", 5 * MS, 20 * MS)
    channels = [
        bench.turner("low", 1),
        bench.turner("equal", 1),
        bench.turner("high", 9),
        bench.turner("bounded", 5, reserve=reserve),
    ]
    now_ns = 0
    for who, action, wait_ns in steps:
        now_ns += wait_ns
        bench.run_until(now_ns)
        act(bench, channels[who], action, now_ns)
        online = [c for c in channels if c.leased and not c.revoked]
        assert len(online) <= 1, online
        assert all(c.leased for c in channels if is_leased(c))
    others = [c for c in channels if c is not channels[waiter]]
    for channel in others:  # they are done with everything
        bench.idle(channel)
        bench.hear(channel, WITHDRAW, channel.request.seq, now_ns)
        bench.rest(channel, now_ns)
    bench.idle(channels[waiter])
    bench.ask(channels[waiter], now_ns)
    bench.run_until(now_ns + 2_000 * MS)
    assert channels[waiter].request.seq in {
        seq for name, seq in bench.granted if name == channels[waiter].name
    }
    assert bench.checker.violations == []
    bench.close()
