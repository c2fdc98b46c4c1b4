"""Turns beside a job that goes at once (`overlap`): who stops for it, and when it goes on: without
processes, with our clock."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.reserves import ReserveSpec
from headway.live import turns
from headway.live.arbiter import Arbiter, Bounds
from headway.live.channel import Channel
from headway.live.protocol import RELEASE, Message
from tests.unit.test_pieces import PIECE_NS, Pieces, bench, is_known, is_open, low, ticking, waits
from tests.unit.test_turns import HOLD_NS, MS, is_leased, page

__all__ = ["bench", "low", "ticking"]


@pytest.fixture
def guest(bench: Pieces) -> Channel:
    return bench.turner("guest", 9, policy="overlap")


def beside(bench: Pieces, low: Channel, guest: Channel) -> None:
    """A piece of low's is on the GPU when the important job comes, and others wait."""
    bench.announce(low, 0)
    bench.pieces(low, given=3, ended=2, opened=1, closed=0)
    bench.announce(guest, MS)
    assert is_leased(guest)
    assert not is_open(low)


def test_that_a_piece_beside_a_job_is_done_is_seen_at_once(
    bench: Pieces, low: Channel, guest: Channel
) -> None:
    """Who waits for the GPU then has it when the job is over, and not after the next look."""
    beside(bench, low, guest)
    bench.arbiter.look(True, MS)
    assert not bench.arbiter.glance(MS + 1)
    assert not waits(low)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    assert bench.arbiter.glance(MS + 2)
    assert waits(low)
    bench.job_over(guest)
    assert bench.arbiter.glance(MS + 3)
    assert is_leased(low)
    assert is_open(low)


def test_it_is_not_done_while_other_work_of_it_is_on_the_gpu(
    bench: Pieces, low: Channel, guest: Channel
) -> None:
    beside(bench, low, guest)
    bench.arbiter.look(True, MS)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.mark(low, issued=1, done=0)
    assert not bench.arbiter.glance(MS + 1)
    assert not waits(low)
    bench.mark(low, issued=1, done=1)
    assert bench.arbiter.glance(MS + 2)
    assert waits(low)


def test_where_nobody_looks_all_the_time_it_is_soon(
    bench: Pieces, low: Channel, guest: Channel
) -> None:
    beside(bench, low, guest)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.run_until(MS + turns.DRAIN_NS)
    assert waits(low)


@pytest.mark.parametrize("looks", [True, False])
def test_who_stopped_for_a_job_beside_it_goes_on_when_that_is_over(
    bench: Pieces, low: Channel, guest: Channel, looks: bool
) -> None:
    """Though its piece is not done, as where the GPU has taken it off for the job."""
    beside(bench, low, guest)
    if looks:
        bench.arbiter.look(True, MS)
        bench.job_over(guest)
        assert bench.arbiter.glance(2 * MS)
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
    bench: Pieces, low: Channel, guest: Channel, looks: bool
) -> None:
    """It would only have to ask again."""
    bench.write(low, PIECE_NS, "<Q", 5 * MS)
    bench.announce(low, 0)
    bench.pieces(low, given=1, ended=0, opened=1, closed=0)
    bench.announce(guest, MS)
    bench.arbiter.look(looks, MS)
    bench.job_over(guest)
    bench.arbiter.glance(2 * MS)
    bench.run_until(2 * MS)
    assert low in bench.arbiter.online.channels
    bench.rest(low, 3 * MS)
    bench.announce(low, 3 * MS)
    assert is_leased(low)


def test_it_does_not_go_on_without_a_budget(bench: Pieces, guest: Channel) -> None:
    poor = bench.turner("poor", 1, reserve=ReserveSpec("pe", MS, 1000 * MS))
    beside(bench, poor, guest)
    bench.write(poor, 32, "<Q", 2 * MS)  # more than it has
    bench.rest(guest, 3 * MS)
    assert waits(poor)
    bench.run_until(10 * MS)
    assert not is_leased(poor)
    assert not is_open(poor)


def test_asking_for_a_turn_that_one_has_by_now_changes_nothing(
    bench: Pieces, low: Channel, guest: Channel
) -> None:
    """Its program could not see it yet."""
    beside(bench, low, guest)
    bench.arbiter.look(True, MS)
    bench.pieces(low, given=3, ended=2, opened=1, closed=1)
    bench.gate(low)
    bench.arbiter.glance(MS + 1)
    bench.job_over(guest)
    bench.arbiter.glance(MS + 2)
    lease, index = page(low, 16), low.index
    bench.gate(low)
    assert not bench.arbiter.glance(MS + 3)
    assert (page(low, 16), low.index) == (lease, index)
    assert is_open(low)


def test_who_asks_because_its_gate_was_just_closed_is_heard(bench: Pieces) -> None:
    """Both ask between two looks: the lease that is there when the second is looked at is not."""
    high = bench.turner("high", 9, policy="overlap")
    low = bench.turner("low", 1)
    bench.announce(low, 0)
    bench.arbiter.look(True, 0)
    bench.gate(high)
    bench.gate(low)
    assert bench.arbiter.glance(MS)
    assert is_leased(high)
    assert waits(low)


def test_where_there_are_ticks_what_went_first_ends_first_too(ticking: Pieces) -> None:
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
        st.integers(0, 1),
    ),
    max_size=60,
)


POLICIES = st.sampled_from(["prt", "overlap"])


@given(steps=MOVES, policies=st.tuples(POLICIES, POLICIES), ticks=st.booleans())
@settings(max_examples=200)
def test_whatever_happens_the_rules_hold_and_whoever_waits_goes_in_the_end(
    steps: list[tuple[str, int]], policies: tuple[str, str], ticks: bool
) -> None:
    """Two programs with pieces, in any order: they give, begin and end pieces, and are done."""
    with closing(Pieces()) as bench:
        if ticks:
            bounds = Bounds(HOLD_NS, tick_ns=MS)
            bench.arbiter = Arbiter(bench.engine, lambda _: None, bounds)
        names = ("low", "high")
        turners = [
            bench.turner(name, 1 + level, policy=policy)
            for level, (name, policy) in enumerate(zip(names, policies, strict=True))
        ]
        counts = {channel: [0, 0, 0] for channel in turners}  # given, opened, closed
        now_ns, looks = 0, False
        for step, which in steps:
            now_ns += MS // 4
            channel = turners[which]
            if step == "give":
                counts[channel][0] += 1
                show(bench, channel, counts[channel])
                if not is_busy(channel) or not (is_leased(channel) or is_known(channel)):
                    bench.gate(channel) if looks else bench.announce(channel, now_ns)
            elif step == "begin" and is_open(channel) and counts[channel][1] < counts[channel][0]:
                counts[channel][1] += counts[channel][1] == counts[channel][2]
            elif step == "end" and counts[channel][2] < counts[channel][1]:
                counts[channel][2] += 1
            elif step == "over" and is_busy(channel) and len(set(counts[channel])) == 1:
                finish(bench, channel, now_ns, looks=looks)
            elif step == "look" and not ticks:
                looks = not looks
                bench.arbiter.look(looks, now_ns)
            show(bench, channel, counts[channel])
            if looks:
                bench.arbiter.glance(now_ns)
            bench.run_until(now_ns)
        for _ in range(20):  # all that waits is done, the most important one's first
            for channel in reversed(turners):
                now_ns += MS
                given_, opened, _ = counts[channel]
                counts[channel] = [given_] * 3 if is_open(channel) else [given_, opened, opened]
                show(bench, channel, counts[channel])
                if is_busy(channel) and len(set(counts[channel])) == 1:
                    finish(bench, channel, now_ns, looks=looks)
                if looks:
                    bench.arbiter.glance(now_ns)
                bench.run_until(now_ns)
        assert not any(is_busy(channel) for channel in turners), "nobody waits for ever"
        rules = {violation.rule for violation in bench.checker.violations}
        assert rules <= ({"work-conserving"} if ticks else set())


def is_busy(channel: Channel) -> bool:
    assert channel.pages is not None
    return channel.pages.busy


def show(bench: Pieces, channel: Channel, counts: list[int]) -> None:
    given_, opened, closed = counts
    bench.pieces(channel, given=given_, ended=given_, opened=opened, closed=closed)


def finish(bench: Pieces, channel: Channel, now_ns: int, *, looks: bool) -> None:
    """Its job is over, as its program says."""
    bench.job_over(channel)
    if not looks:
        bench.arbiter.heard(channel, Message(RELEASE, channel.seq, frame=True), now_ns)
