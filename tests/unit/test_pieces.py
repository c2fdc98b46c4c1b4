"""Work that waits on the GPU, and pages that are looked at: without processes, with our clock."""

from __future__ import annotations

import os
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.reserves import ReserveSpec
from headway.engine.turns import ends
from headway.live.gate.channel import Channel
from headway.live.wire.layout import CLIENT_PAGE, PAGE
from headway.live.wire.protocol import RELEASE, SUBMIT, WITHDRAW, Message
from tests.bench.gate import MS
from tests.bench.pieces import (
    LEVELS,
    PieceBench,
    bench,
    high,
    is_known,
    is_looked_at,
    is_open,
    looking,
    low,
    ticking,
    waits,
)
from tests.bench.turns import HOLD_NS, is_leased

__all__ = ["bench", "high", "looking", "low", "ticking"]

# -- the gate ------------------------------------------------------------


def test_the_gate_on_the_gpu_opens_and_closes_with_the_lease(
    bench: PieceBench, low: Channel, high: Channel
) -> None:
    bench.announce(low, 0)
    assert is_leased(low)
    assert is_open(low)
    bench.ask(high, 5 * MS)
    assert not is_leased(low)
    assert not is_open(low)


def test_what_waits_on_the_gpu_is_asked_for_again_when_its_turn_is_over(
    bench: PieceBench, low: Channel, high: Channel
) -> None:
    """And granted without a message: its program may have nothing to say, and reads none."""
    bench.announce(low, 0)
    bench.pieces(low, given=3, ended=2, opened=2, closed=1)
    bench.ask(high, 5 * MS)
    bench.run_until(6 * MS)
    assert not is_leased(high), "a piece runs on"
    bench.pieces(low, given=3, ended=2, opened=2, closed=2)
    bench.run_until(6 * MS + ends.DRAIN_NS)
    assert is_leased(high)
    assert is_known(low)
    before = list(bench.granted)
    bench.rest(high, 8 * MS)
    assert is_leased(low)
    assert is_open(low)
    assert bench.granted == before


def test_pieces_of_any_stream_wait(bench: PieceBench, low: Channel, high: Channel) -> None:
    bench.announce(low, 0)
    bench.pieces(low, given=4, ended=4, opened=4, closed=4)
    bench.pieces(
        low, given=2**32 - 1, ended=2**32 - 1, opened=2**32 - 2, closed=2**32 - 2, stream=63
    )
    bench.ask(high, 5 * MS)
    bench.rest(high, 8 * MS)
    assert is_leased(low)


@pytest.mark.parametrize("gated", [True, False])
def test_who_has_nothing_waiting_there_has_to_ask_itself(
    bench: PieceBench, low: Channel, high: Channel, gated: bool
) -> None:
    """Nothing waits; or what seems to was never meant to."""
    bench.announce(low, 0)
    assert is_known(low)
    bench.pieces(low, given=3 if gated else 4, ended=3, opened=3, closed=3)
    bench.write(low, "gated", gated)
    bench.ask(high, 5 * MS)
    bench.run_until(5 * MS + ends.DRAIN_NS)
    assert is_leased(high)
    assert not is_known(low)
    bench.rest(high, 8 * MS)
    bench.run_until(500 * MS)
    assert not is_leased(low)
    assert not waits(low)
    bench.announce(low, 501 * MS)  # for a piece that came just after
    assert is_leased(low)


def test_a_piece_that_may_grow_is_over_when_it_should_be(
    bench: PieceBench, low: Channel, high: Channel
) -> None:
    """Nothing tells its end before the program goes on."""
    assert low.pages is not None
    bench.announce(low, 0)
    bench.write(low, "piece_ns", 2 * MS)
    bench.pieces(low, given=2, ended=1, opened=2, closed=1)
    bench.ask(high, 5 * MS)
    likely_ns = 5 * MS + 2 * MS * 5 // 4 + ends.TRAIL_NS
    bench.run_until(likely_ns - 1)
    assert not is_leased(high)
    bench.run_until(likely_ns + ends.DRAIN_NS)
    assert is_leased(high)
    assert low.account.overdue == 0


@pytest.mark.parametrize("told", ["unmarked", "marked"])
def test_work_in_no_piece_is_not_waited_for_for_ever_while_pieces_wait(
    bench: PieceBench, low: Channel, high: Channel, told: str
) -> None:
    """Nothing tells its end, or what does stands behind a piece that waits itself. Its program
    would tell, but waits for all of them; and nobody else is there."""
    bench.announce(low, 0)
    bench.write(low, "piece_ns", 2 * MS)
    bench.pieces(low, given=3, ended=2, opened=2, closed=2)
    if told == "unmarked":
        bench.write(low, "unmarked", 1)
    else:
        bench.mark(low, 1, 0)
    bench.ask(high, 5 * MS)
    bench.arbiter.remove(high, 6 * MS)
    likely_ns = 5 * MS + 2 * MS * 5 // 4 + ends.TRAIL_NS
    bench.run_until(likely_ns - 1)
    assert not is_open(low)
    bench.run_until(likely_ns + ends.DRAIN_ALONE_NS)
    assert is_open(low)
    assert is_leased(low)
    assert low.account.overdue == 0


@pytest.mark.parametrize("given", [2, 3])
def test_a_piece_that_is_complete_is_waited_for(
    bench: PieceBench, low: Channel, high: Channel, given: int
) -> None:
    """Because it was ended, or because another one stands behind it."""
    bench.announce(low, 0)
    bench.pieces(low, given=given, ended=2 if given == 2 else 1, opened=2, closed=1)
    bench.ask(high, 5 * MS)
    bench.run_until(4 * MS + HOLD_NS)
    assert not is_leased(high)
    bench.pieces(low, given=given, ended=2, opened=2, closed=2)
    bench.run_until(4 * MS + HOLD_NS + ends.DRAIN_NS)
    assert is_leased(high)
    assert low.account.overdue == 0


def test_who_does_not_drain_loses_the_gpu_but_not_what_waits_there(
    bench: PieceBench, low: Channel, high: Channel
) -> None:
    bench.announce(low, 0)
    bench.pieces(low, given=3, ended=3, opened=2, closed=1)
    bench.ask(high, 5 * MS)
    bench.run_until(5 * MS + HOLD_NS)
    assert is_leased(high)
    assert low.account.overdue == 1
    assert is_known(low)
    bench.rest(high, 100 * MS)
    assert is_leased(low)


@pytest.mark.parametrize("running", [False, True])
def test_who_gets_nothing_done_does_not_get_turn_after_turn(
    bench: PieceBench, low: Channel, high: Channel, running: bool
) -> None:
    """It is more important, and stopped, or its pieces wait for something that does not come."""
    bench.announce(high, 0)
    bench.work(high)
    bench.mark(high, 0, 0)
    bench.pieces(high, given=3, ended=3, opened=2, closed=1 if running else 2)
    bench.ask(low, MS)
    bench.run_until(ends.QUIET_NS + HOLD_NS + 20 * MS)
    assert is_leased(low)
    bench.announce(high, 200 * MS)  # as it does when it goes on
    bench.rest(low, 201 * MS, last=False)
    assert is_leased(high)


def test_a_turn_that_begins_while_its_end_is_heard_is_not_forgotten(
    bench: PieceBench, low: Channel, high: Channel
) -> None:
    """It saw the lease that was taken from it a moment later."""
    for now_ms, rests in ((10, True), (20, False)):
        bench.announce(low, now_ms * MS)
        bench.idle(low)
        bench.gate(low)
        bench.pieces(low, given=now_ms, ended=now_ms - 1, opened=now_ms - 1, closed=now_ms - 1)
        bench.ask(high, now_ms * MS + 1)
        message = Message(RELEASE, low.request.seq, frame=rests)
        bench.arbiter.heard(low, message, now_ms * MS + 2)
        assert is_leased(high)
        assert is_known(low)
        bench.rest(high, (now_ms + 1) * MS)
        assert is_leased(low)
        bench.job_over(low)
        bench.rest(low, (now_ms + 2) * MS)


def test_nor_is_it_when_nobody_else_waits_any_more(bench: PieceBench, low: Channel) -> None:
    bench.announce(low, 0)
    bench.pieces(low, given=2, ended=1, opened=1, closed=1)
    bench.arbiter.heard(low, Message(RELEASE, low.request.seq, frame=True), MS)
    assert is_leased(low)
    assert is_open(low)


@pytest.mark.parametrize("rests", [True, False])
def test_nor_is_one_that_was_asked_for_before_the_end_of_the_last_was_heard(
    bench: PieceBench, low: Channel, high: Channel, rests: bool
) -> None:
    """It began under its old lease, which was taken back; its message was under way."""
    bench.announce(low, 0)
    bench.pieces(low, given=1, ended=1, opened=1, closed=1)
    bench.idle(low)  # and the message is sent
    bench.write(low, "busy", 1)
    bench.pieces(low, given=2, ended=1, opened=1, closed=1)
    bench.ask(high, MS)
    bench.run_until(2 * MS)
    assert is_leased(high)
    bench.arbiter.heard(low, Message(RELEASE, low.request.seq, frame=rests), 2 * MS)
    bench.rest(high, 3 * MS)
    assert is_leased(low)


def test_who_withdraws_is_told_to_ask_again(bench: PieceBench, low: Channel, high: Channel) -> None:
    bench.begin(high, 0)
    bench.announce(low, MS)
    assert is_known(low)
    bench.rest(low, 2 * MS)
    assert not is_known(low)
    bench.announce(low, 3 * MS)
    assert is_known(low)
    bench.hear(low, WITHDRAW, low.request.seq, 4 * MS)
    assert not is_known(low)


def test_a_gate_that_was_closed_in_advance_for_nothing_is_opened_again(ticking: PieceBench) -> None:
    low, high = ticking.turner("low", 1), ticking.turner("high", 9)
    ticking.announce(low, 0)
    ticking.run_until(10 * MS)
    assert is_leased(low)
    ticking.work(low)
    ticking.ask(high, 11 * MS)
    assert not is_leased(low)
    assert not is_open(low)
    ticking.hear(high, WITHDRAW, high.request.seq, 12 * MS)
    ticking.run_until(20 * MS)
    assert is_leased(low)
    assert is_open(low)
    assert low.leased
    assert not low.revoked


def test_nobody_closes_the_gate_of_who_is_more_important_or_without_budget(
    ticking: PieceBench,
) -> None:
    poor = ticking.turner("poor", 10, reserve=ReserveSpec("pe", MS, 1000 * MS))
    high, equal, low = (ticking.turner(name, level) for name, level in LEVELS)
    ticking.announce(poor, 0)
    ticking.run_until(10 * MS)
    ticking.work(poor, used_ns=5 * MS)
    ticking.rest(poor, 15 * MS)
    ticking.announce(high, 16 * MS)
    ticking.run_until(20 * MS)
    ticking.work(high)
    for channel in (low, equal, poor):
        ticking.ask(channel, 21 * MS)
        assert is_leased(high)
        assert is_open(high)


def test_pages_that_are_closed_leave_the_gate_open(bench: PieceBench, low: Channel) -> None:
    """Nobody will open it for who is let go."""
    assert low.pages is not None
    kept = os.dup(low.pages.client_fd)
    low.pages.set_lease(False)
    low.pages.close()
    assert CLIENT_PAGE.read(os.pread(kept, PAGE, 0), "open") == 1
    os.close(kept)
    low.pages.set_lease(True)  # and nothing more is written
    low.pages.keep_lease()
    assert not low.pages.pending


# -- looking at pages ------------------------------------------------------------


def test_programs_are_told_that_they_are_looked_at(bench: PieceBench, low: Channel) -> None:
    assert not is_looked_at(low)
    bench.arbiter.set_polling(True, 0)
    late = bench.turner("late")
    assert is_looked_at(low)
    assert is_looked_at(late)
    bench.arbiter.set_polling(False, MS)
    assert not is_looked_at(low)
    assert not is_looked_at(late)


def test_an_asking_is_seen_once_and_answered_in_the_page(looking: PieceBench, low: Channel) -> None:
    assert not looking.arbiter.poll(0)
    looking.gate(low)
    assert looking.arbiter.poll(1)
    assert is_leased(low)
    assert is_open(low)
    assert not looking.arbiter.poll(2)
    assert looking.granted == []


def test_what_was_seen_is_not_heard_again(looking: PieceBench, low: Channel, high: Channel) -> None:
    """The message was sent before its sender could see that it is looked at."""
    asks = looking.gate(high)
    looking.arbiter.poll(0)
    looking.gate(low)
    looking.arbiter.poll(1)
    index = high.request.index
    message = Message(SUBMIT, high.request.seq + 1, units=asks)
    looking.arbiter.heard(high, message, 2)
    assert is_leased(high)
    assert high.request.index == index
    assert looking.granted == []
    message = Message(SUBMIT, high.request.seq + 1, units=looking.gate(high))
    looking.arbiter.heard(high, message, 3)  # one that was not seen
    assert high.request.asks == message.units
    assert high.request.index == index, "it has its turn, and goes on"
    assert is_leased(high)
    assert not looking.arbiter.poll(4), "nor is what was heard seen"


def test_a_job_that_is_over_before_it_was_seen_changes_nothing(
    looking: PieceBench, low: Channel
) -> None:
    looking.gate(low)
    looking.job_over(low)
    assert not looking.arbiter.poll(0)
    assert not is_leased(low)
    looking.gate(low)
    assert looking.arbiter.poll(1)
    assert is_leased(low)


def test_a_job_that_is_over_before_its_turn_came_waits_no_longer(
    looking: PieceBench, low: Channel, high: Channel
) -> None:
    looking.gate(high)
    looking.arbiter.poll(0)
    looking.gate(low)
    looking.arbiter.poll(1)
    assert waits(low)
    looking.job_over(low)
    assert looking.arbiter.poll(2)
    assert not waits(low)
    looking.job_over(high)
    looking.arbiter.poll(3)
    assert not is_leased(low)


def test_who_waits_for_an_answer_is_not_taken_for_done(
    looking: PieceBench, low: Channel, high: Channel
) -> None:
    """It waits on the CPU, so nothing of it is on the GPU."""
    looking.gate(high)
    looking.arbiter.poll(0)
    looking.ask(low, 1)
    assert not looking.arbiter.poll(2)
    assert waits(low)
    looking.job_over(high)
    looking.arbiter.poll(3)
    assert looking.granted == [("low", 1)]


def test_a_turn_is_over_when_its_job_is_and_somebody_waits(
    looking: PieceBench, low: Channel, high: Channel
) -> None:
    looking.gate(high)
    looking.arbiter.poll(0)
    looking.job_over(high)
    assert not looking.arbiter.poll(1), "nobody wants it"
    assert is_leased(high)
    looking.gate(high)
    looking.arbiter.poll(2)
    looking.gate(low)
    looking.arbiter.poll(3)
    assert not is_leased(low)
    looking.job_over(high)
    assert looking.arbiter.poll(4)
    assert is_leased(low)
    assert not is_leased(high)


def test_who_has_not_begun_yet_is_not_done(
    looking: PieceBench, low: Channel, high: Channel
) -> None:
    looking.ask(high, 0)
    looking.gate(low)
    looking.arbiter.poll(1)
    assert not looking.arbiter.poll(2)
    assert is_leased(high)


def test_a_turn_that_was_taken_back_is_over_with_its_job(
    looking: PieceBench, low: Channel, high: Channel
) -> None:
    looking.gate(low)
    looking.arbiter.poll(0)
    looking.pieces(low, given=1, ended=1, opened=1, closed=0)
    looking.gate(high)
    looking.arbiter.poll(1)
    assert not is_leased(high)
    looking.pieces(low, given=1, ended=1, opened=1, closed=1)
    looking.job_over(low)
    assert looking.arbiter.poll(2)
    assert is_leased(high)
    assert low.account.overdue == 0


def test_the_last_look_comes_after_it_was_said(looking: PieceBench, low: Channel) -> None:
    """Who asked just before and saw that it is looked at says nothing."""
    looking.gate(low)
    looking.arbiter.set_polling(False, 0)
    assert is_leased(low)
    looking.arbiter.set_polling(False, 1)
    looking.arbiter.set_polling(True, 2)
    assert is_looked_at(low)


def test_who_is_gone_is_not_looked_at(looking: PieceBench, low: Channel, high: Channel) -> None:
    looking.gate(low)
    looking.gate(high)
    looking.arbiter.remove(low, 0)
    assert looking.arbiter.poll(1)
    assert is_leased(high)


# -- lies ------------------------------------------------------------

LIES = st.one_of(
    st.binary(min_size=1, max_size=64).map(lambda part: (part * PAGE)[:PAGE]),
    st.sampled_from([b"\0" * PAGE, b"\xff" * PAGE]),
    st.randoms(use_true_random=False).map(lambda random: random.randbytes(PAGE)),
)
ACTIONS = st.sampled_from(("lie", "lie", "ask", "announce", "rest", "poll", "look", "pieces"))
STEPS = st.lists(st.tuples(st.integers(0, 1), ACTIONS, st.integers(0, 40), LIES), max_size=40)


def lie(bench: PieceBench, channel: Channel, action: str, now_ns: int, text: bytes) -> None:
    assert channel.pages is not None
    if action == "lie":
        os.pwrite(channel.pages.client_fd, text, 0)
    elif action == "ask":
        bench.ask(channel, now_ns)
    elif action == "announce":
        bench.announce(channel, now_ns)
    elif action == "rest":
        bench.rest(channel, now_ns)
    elif action == "look":
        bench.arbiter.set_polling(text[0] % 2 == 0, now_ns)
    elif action == "pieces":
        counts = dict(zip(("given", "ended", "opened", "closed"), text[:4], strict=True))
        bench.pieces(channel, **counts, stream=text[5] % 64)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from((5, 9)))
def test_whatever_pages_say_the_others_get_their_turns(
    steps: list[tuple[int, str, int, bytes]], level: int
) -> None:
    """The liars are as important as the one that is honest, or less; they lie on to the end."""
    with closing(PieceBench()) as bench:
        liars = [bench.turner("liar", 5), bench.turner("cheat", 3)]
        honest = bench.turner("honest", level)
        now_ns = 0
        for who, action, wait_ms, text in steps:
            now_ns += wait_ms * MS
            bench.run_until(now_ns)
            lie(bench, liars[who], action, now_ns, text)
            bench.arbiter.poll(now_ns)
            bench.run_until(now_ns)
        for _ in range(3):
            bench.announce(honest, now_ns)
            now_ns += 1000 * MS
            bench.run_until(now_ns)
            assert ("honest", honest.request.seq) in bench.granted
            bench.job_over(honest)
            bench.rest(honest, now_ns)
        for channel in (*liars, honest):
            bench.arbiter.remove(channel, now_ns)
        assert bench.checker.violations == []
