"""Turns beside a job that goes at once (`overlap`): who stops for it, and when it goes on: without
processes, with our clock."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.reserves import ReserveSpec
from headway.engine.turns import ends
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from headway.live.wire.pages import Pages
from headway.live.wire.protocol import RELEASE, Message
from tests.bench.gate import MS
from tests.bench.pieces import PieceBench, bench, is_known, is_open, low, ticking, waits
from tests.bench.turns import HOLD_NS, is_leased
from tests.pages import page

__all__ = ["bench", "low", "ticking"]


@pytest.fixture
def guest(bench: PieceBench) -> Channel:
    return bench.turner("guest", 9, policy="overlap")


def beside(bench: PieceBench, low: Channel, guest: Channel) -> None:
    """A piece of low's is on the GPU when the important job comes, and others wait."""
    bench.announce(low, 0)
    bench.pieces(low, given=3, ended=2, opened=1, closed=0)
    bench.announce(guest, MS)
    assert is_leased(guest)
    assert not is_open(low)


def test_that_a_piece_beside_a_job_is_done_is_seen_at_once(
    bench: PieceBench, low: Channel, guest: Channel
) -> None:
    """Who waits for the GPU then has it when the job is over, and not after the next look."""
    beside(bench, low, guest)
    bench.arbiter.set_polling(True, MS)
    assert not bench.arbiter.poll(MS + 1)
    assert not waits(low)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    assert bench.arbiter.poll(MS + 2)
    assert waits(low)
    bench.job_over(guest)
    assert bench.arbiter.poll(MS + 3)
    assert is_leased(low)
    assert is_open(low)


def test_it_is_not_done_while_other_work_of_it_is_on_the_gpu(
    bench: PieceBench, low: Channel, guest: Channel
) -> None:
    beside(bench, low, guest)
    bench.arbiter.set_polling(True, MS)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.mark(low, issued=1, done=0)
    assert not bench.arbiter.poll(MS + 1)
    assert not waits(low)
    bench.mark(low, issued=1, done=1)
    assert bench.arbiter.poll(MS + 2)
    assert waits(low)


def test_where_nobody_looks_all_the_time_it_is_soon(
    bench: PieceBench, low: Channel, guest: Channel
) -> None:
    beside(bench, low, guest)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.run_until(MS + ends.DRAIN_NS)
    assert waits(low)


@pytest.mark.parametrize("looks", [True, False])
def test_who_stopped_for_a_job_beside_it_goes_on_when_that_is_over(
    bench: PieceBench, low: Channel, guest: Channel, looks: bool
) -> None:
    """Though its piece is not done, as where the GPU has taken it off for the job."""
    beside(bench, low, guest)
    if looks:
        bench.arbiter.set_polling(True, MS)
        bench.job_over(guest)
        assert bench.arbiter.poll(2 * MS)
    else:
        bench.run_until(2 * MS - 1)
        bench.rest(guest, 2 * MS)
    assert is_leased(low)
    assert is_open(low)
    bench.announce(guest, 3 * MS)
    assert not is_open(low)
    assert is_leased(guest)


@pytest.mark.parametrize("looks", [True, False])
def test_who_has_nothing_else_to_do_keeps_its_turn_until_its_work_is_done(
    bench: PieceBench, low: Channel, guest: Channel, looks: bool
) -> None:
    """It would only have to ask again."""
    bench.write(low, "piece_ns", 5 * MS)
    bench.announce(low, 0)
    bench.pieces(low, given=1, ended=0, opened=1, closed=0)
    bench.announce(guest, MS)
    bench.arbiter.set_polling(looks, MS)
    bench.job_over(guest)
    bench.arbiter.poll(2 * MS)
    bench.run_until(2 * MS)
    assert low in bench.arbiter.online.clients
    bench.rest(low, 3 * MS)
    bench.announce(low, 3 * MS)
    assert is_leased(low)


def test_it_does_not_go_on_without_a_budget(bench: PieceBench, guest: Channel) -> None:
    poor = bench.turner("poor", 1, reserve=ReserveSpec("pe", MS, 1000 * MS))
    beside(bench, poor, guest)
    bench.write(poor, "used_ns", 2 * MS)  # more than it has
    bench.rest(guest, 3 * MS)
    assert waits(poor)
    bench.run_until(10 * MS)
    assert not is_leased(poor)
    assert not is_open(poor)


def test_asking_for_a_turn_that_one_has_by_now_changes_nothing(
    bench: PieceBench, low: Channel, guest: Channel
) -> None:
    """Its program could not see it yet."""
    beside(bench, low, guest)
    bench.arbiter.set_polling(True, MS)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.gate(low)
    bench.arbiter.poll(MS + 1)
    bench.job_over(guest)
    bench.arbiter.poll(MS + 2)
    lease, index = page(low, "lease"), low.request.index
    bench.gate(low)
    assert not bench.arbiter.poll(MS + 3)
    assert (page(low, "lease"), low.request.index) == (lease, index)
    assert is_open(low)


def test_who_asks_because_its_gate_was_just_closed_is_heard(
    bench: PieceBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that lost its turn asks before the daemon is done with the one that got it."""
    high = bench.turner("high", 9, policy="overlap")
    low = bench.turner("low", 1)
    bench.announce(low, 0)
    bench.arbiter.set_polling(True, 0)
    bench.gate(high)
    set_lease = Pages.set_lease

    def close_and_see(pages: Pages, on: bool) -> None:
        set_lease(pages, on)
        if pages is low.pages and not on and low.leased:
            bench.gate(low)

    monkeypatch.setattr(Pages, "set_lease", close_and_see)
    assert bench.arbiter.poll(MS)
    assert is_leased(high)
    monkeypatch.undo()
    bench.arbiter.poll(2 * MS)
    assert waits(low)


@pytest.mark.parametrize("looks", [True, False])
def test_asking_again_does_not_shorten_a_drain(
    bench: PieceBench, low: Channel, looks: bool
) -> None:
    """A program far ahead gives pieces while what it has on the GPU drains, and asks for them."""
    high = bench.turner("high", 9)
    bench.announce(low, 0)
    bench.pieces(low, given=3, ended=2, opened=1, closed=0)
    bench.announce(high, MS)
    bench.arbiter.set_polling(looks, MS)
    bench.pieces(low, given=4, ended=3, opened=1, closed=0)
    if looks:
        bench.gate(low)
        assert not bench.arbiter.poll(MS + 1)
    else:
        bench.announce(low, MS + 1)
    assert not is_leased(high)
    bench.pieces(low, given=4, ended=3, opened=1, closed=1)
    bench.run_until(MS + 1 + ends.DRAIN_NS)
    assert is_leased(high)
    assert waits(low)
    bench.rest(high, 3 * MS)
    assert is_leased(low)


@pytest.mark.parametrize("asks", [True, False])
def test_who_got_nothing_done_but_asked_meanwhile_is_heard(
    bench: PieceBench, low: Channel, asks: bool
) -> None:
    """Its program may say it once, and wait."""
    high = bench.turner("high", 9)
    bench.announce(low, 0)
    bench.pieces(low, given=3, ended=3, opened=1, closed=0)
    bench.write(low, "passed", 3)  # work went through its gate
    bench.announce(high, MS)
    assert not ends.is_over(low, MS)
    if asks:
        bench.announce(low, 2 * MS)
    bench.run_until(MS + HOLD_NS - 1)
    bench.write(low, "busy", 1)
    low.signs.ns = low.lease.since_ns = MS + HOLD_NS - ends.QUIET_NS
    bench.run_until(MS + HOLD_NS)
    assert low.account.overdue == 1
    assert waits(low) == asks


def test_who_is_more_important_waits_for_a_drain_though_the_job_beside_it_is_over(
    bench: PieceBench, low: Channel
) -> None:
    """Unless it may go beside others itself."""
    middle = bench.turner("middle", 5, policy="overlap")
    high = bench.turner("high", 9)
    beside(bench, low, middle)
    bench.announce(high, 2 * MS)
    bench.rest(middle, 3 * MS)
    assert not is_leased(high)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.run_until(3 * MS + ends.DRAIN_NS)
    assert is_leased(high)
    assert waits(low)


def test_what_ran_until_a_job_came_is_charged_though_that_was_done_first(
    bench: PieceBench, guest: Channel
) -> None:
    """As where the job's program is killed while the other one drains."""
    payer = bench.turner("payer", 1, reserve=ReserveSpec("pe", 50 * MS, 1000 * MS))
    assert payer.task is not None
    reserve = payer.task.reserve
    assert reserve is not None
    bench.announce(payer, 0)
    bench.pieces(payer, given=3, ended=2, opened=1, closed=0)
    bench.write(payer, "used_ns", 8 * MS)
    bench.announce(guest, 10 * MS)
    assert is_leased(guest)
    bench.arbiter.remove(guest, 14 * MS)
    assert reserve.budget_ns == 42 * MS
    bench.pieces(payer, given=3, ended=2, opened=1, closed=1)
    bench.run_until(20 * MS)
    assert reserve.budget_ns == 42 * MS
    assert is_leased(payer)


def test_a_reserve_that_came_later_does_not_pay_for_that(
    bench: PieceBench, low: Channel, guest: Channel
) -> None:
    beside(bench, low, guest)
    assert low.task is not None
    bench.engine.set_reserve(low.task, ReserveSpec("pe", 5 * MS, 100 * MS), 3 * MS)
    bench.arbiter.take_back(low, 3 * MS)
    bench.arbiter.remove(guest, 4 * MS)
    assert low.task.reserve is not None
    assert low.task.reserve.budget_ns == 5 * MS


def test_where_there_are_ticks_what_went_first_ends_first_too(ticking: PieceBench) -> None:
    low = ticking.turner("low", 1)
    guest = ticking.turner("guest", 9, policy="overlap")
    ticking.announce(low, 0)
    ticking.run_until(10 * MS)
    ticking.pieces(low, given=3, ended=2, opened=1, closed=0)
    ticking.announce(guest, 11 * MS)
    ticking.run_until(20 * MS)
    assert is_leased(guest)
    ticking.rest(guest, 21 * MS)
    assert not is_leased(low)
    ticking.run_until(30 * MS)
    assert is_leased(low)
    rules = {violation.rule for violation in ticking.checker.violations}
    assert "sequence" not in rules


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["give", "begin", "end", "over", "look", "wait"]),
        st.integers(0, 2),
    ),
    max_size=60,
)


POLICIES = st.sampled_from(["prt", "overlap"])


@given(steps=MOVES, policies=st.tuples(POLICIES, POLICIES, POLICIES), ticks=st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_happens_the_rules_hold_and_whoever_waits_goes_in_the_end(
    steps: list[tuple[str, int]], policies: tuple[str, str, str], ticks: bool
) -> None:
    """Three programs with pieces, in any order: they give, begin and end pieces, and are done."""
    with closing(PieceBench()) as bench:
        if ticks:
            bounds = Bounds(HOLD_NS, tick_ns=MS)
            bench.arbiter = Arbiter(bench.engine, lambda _: None, bounds)
        names = ("low", "middle", "high")
        turners = [
            bench.turner(name, 1 + level, policy=policy)
            for level, (name, policy) in enumerate(zip(names, policies, strict=True))
        ]
        counts = {channel: [0, 0, 0] for channel in turners}  # given, opened, closed
        now_ns, looks = 0, False
        for step, which in steps:
            now_ns += MS // 4
            channel = turners[which]
            before = {turner for turner in turners if is_leased(turner)}
            if step == "give":
                counts[channel][0] += 1
                show(bench, channel, counts[channel])
                if is_leased(channel):
                    bench.write(channel, "busy", 1)
                    bench.write(channel, "gated", 1)
                elif not is_busy(channel) or not is_known(channel):
                    bench.gate(channel) if looks else bench.announce(channel, now_ns)
            elif step == "begin" and is_open(channel) and counts[channel][1] < counts[channel][0]:
                counts[channel][1] += counts[channel][1] == counts[channel][2]
            elif step == "end" and counts[channel][2] < counts[channel][1]:
                counts[channel][2] += 1
            elif step == "over" and is_busy(channel) and len(set(counts[channel])) == 1:
                finish(bench, channel, now_ns, looks=looks)
            elif step == "look" and not ticks:
                looks = not looks
                bench.arbiter.set_polling(looks, now_ns)
            show(bench, channel, counts[channel])
            if looks:
                bench.arbiter.poll(now_ns)
            bench.run_until(now_ns)
            if not ticks:
                assert_drained(turners, before, counts)
        for _ in range(20):  # all that waits is done, the most important one's first
            for channel in reversed(turners):
                now_ns += MS
                given_, opened, _ = counts[channel]
                counts[channel] = [given_] * 3 if is_open(channel) else [given_, opened, opened]
                show(bench, channel, counts[channel])
                if is_busy(channel) and len(set(counts[channel])) == 1:
                    finish(bench, channel, now_ns, looks=looks)
                if looks:
                    bench.arbiter.poll(now_ns)
                bench.run_until(now_ns)
        assert not any(is_busy(channel) for channel in turners), "nobody waits for ever"
        rules = {violation.rule for violation in bench.checker.violations}
        assert rules <= ({"work-conserving"} if ticks else set())


def assert_drained(
    turners: list[Channel], before: set[Channel], counts: dict[Channel, list[int]]
) -> None:
    """Who has its turn now and did not have it before found an empty GPU, unless its policy lets
    it go beside others, or the work there is its own."""
    for turner in turners:
        assert turner.task is not None
        if is_leased(turner) and turner not in before and not turner.task.policy.at_once:
            others = [turner_ for turner_ in turners if turner_ is not turner]
            assert all(counts[other][1] == counts[other][2] for other in others)


def is_busy(channel: Channel) -> bool:
    assert channel.pages is not None
    return channel.pages.busy


def show(bench: PieceBench, channel: Channel, counts: list[int]) -> None:
    given_, opened, closed = counts
    bench.pieces(channel, given=given_, ended=given_, opened=opened, closed=closed)


def finish(bench: PieceBench, channel: Channel, now_ns: int, *, looks: bool) -> None:
    """Its job is over, as its program says."""
    bench.job_over(channel)
    if not looks:
        bench.arbiter.heard(channel, Message(RELEASE, channel.request.seq, frame=True), now_ns)
