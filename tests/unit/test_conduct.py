"""Programs that keep the GPU too long: patience, standing and forgiveness, with our clock."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from headway.engine.model import level_of
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.turns.conduct import (
    AFTER_EQUALS,
    AWAY_NS,
    FORGIVEN_NS,
    LAST,
    SHOWN,
    SUSPECT_NS,
    UNMANAGED,
    Conduct,
    Record,
    Standing,
)
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel, Peer
from headway.live.gate.conduct import note
from headway.live.wire.protocol import COMPLETE, RELEASE, SUBMIT
from tests.bench.gate import MS, GateBench

HOLD = 60 * MS
HONEST, LIAR, ANOTHER = Peer(1, 1000, 1000), Peer(2, 1000, 1000), Peer(3, 2000, 2000)


class Court(GateBench):
    """A bench where processes can become unmanaged, and that has a clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 0
        self.conduct = Conduct(HOLD, sends_away=True)
        self.arbiter = Arbiter(
            self.engine, lambda c: self.granted.append((c.name, 0)), Bounds(HOLD), self.conduct
        )
        self.expelled: list[str] = []
        self.conduct.tell = self._stands
        self.honest = self.join("honest", HONEST)

    def _stands(self, record: Record, now_ns: int) -> None:
        self.arbiter.stands(record, now_ns)
        if record.standing == Standing.UNMANAGED:
            self.expelled += [
                client.name for client in record.clients if isinstance(client, Channel)
            ]

    def join(self, name: str, peer: Peer = ANOTHER, level: int = 0) -> Channel:
        """A program that comes now."""
        return self.channel(name, level=level, peer=peer, at_ns=self.now_ns)

    def ask(self, channel: Channel) -> None:
        self.hear(channel, SUBMIT, channel.request.seq + 1, self.now_ns)

    def done(self, channel: Channel) -> None:
        self.hear(channel, COMPLETE, channel.request.seq, self.now_ns)
        self.take(channel)

    def take(self, channel: Channel) -> None:
        """Nobody has a lease: every group is asked for."""
        self.arbiter.take_back(channel, self.now_ns)

    def go(self, by_ns: int) -> None:
        """Time passes, and the timers with it."""
        end_ns = self.now_ns + by_ns
        while (due_ns := self.arbiter.next_timer_ns()) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.arbiter.tick(self.now_ns)
        self.now_ns = end_ns

    def waits_ns(self, holder: Channel, waiter: Channel | None = None) -> int:
        """How long somebody waits for a holder that has just got the GPU and does not give it
        back."""
        waiter, since_ns = waiter or self.honest, self.now_ns
        self.ask(holder)
        assert holder in self.arbiter.online.clients
        self.ask(waiter)
        while waiter not in self.arbiter.online.clients:
            self.go(MS // 2)
            assert self.now_ns - since_ns <= HOLD, "nobody waits for longer"
        waited_ns = self.now_ns - since_ns
        self.done(waiter)
        return waited_ns

    def standing(self, channel: Channel) -> Standing:
        assert channel.record is not None
        return channel.record.standing


@pytest.fixture
def court() -> Iterator[Court]:
    court = Court()
    yield court
    assert court.checker.violations == []
    court.close()


# -- patience --------------------------------------------------------------------------------------


def test_others_wait_less_and_less_for_who_does_not_give_the_gpu_back(court: Court) -> None:
    liar = court.join("liar", peer=LIAR)
    waits = [court.waits_ns(liar) // MS for _ in range(6)]
    assert waits == [60, 60, 15, 15, 2, 2]


def test_the_connections_of_a_process_share_its_patience(court: Court) -> None:
    liars = [court.join(f"liar{i}", peer=LIAR) for i in range(6)]
    other = court.join("other", peer=ANOTHER)
    assert [court.waits_ns(liar) // MS for liar in liars[:5]] == [60, 60, 15, 15, 2]
    assert court.waits_ns(other) // MS == 60, "another process has its own"


def test_who_answers_within_the_hold_has_done_nothing_wrong(court: Court) -> None:
    slow = court.join("slow", peer=LIAR)
    for _ in range(4):
        court.waits_ns(slow)
        court.go(HOLD + 1)
        court.done(slow)  # late, each time
    assert court.waits_ns(slow) // MS == 2
    court.go(20 * MS)
    court.done(slow)
    record = slow.record
    assert record is not None
    assert (record.late, record.silent, record.owed) == (4, 0, {})


def test_less_important_ones_wait_for_the_whole_hold_and_it_counts_for_nothing(
    court: Court,
) -> None:
    important = court.join("important", level=5, peer=LIAR)
    assert [court.waits_ns(important) // MS for _ in range(10)] == [60] * 10
    assert important.record is not None
    assert important.record.is_clean
    assert important.account.overdue == 10


def test_who_always_answers_late_keeps_its_priority(court: Court) -> None:
    """Long groups are no lie: a process with some is waited for less, and served as before."""
    slow = court.join("slow", level=3, peer=LIAR)
    rival = court.join("rival", level=3, peer=ANOTHER)
    for _ in range(30):
        court.waits_ns(slow, rival)
        court.go(100 * MS)
        court.done(slow)
    assert court.standing(slow) == Standing.GOOD
    assert slow.task is not None
    assert slow.task.priority == 3


@pytest.mark.parametrize(("held_ms", "paid_ms"), [(1, 1), (40, 40), (100, 60)])
def test_patience_shortens_what_others_wait_and_not_what_is_paid_for(
    court: Court, held_ms: int, paid_ms: int
) -> None:
    liar = court.join("liar", LIAR)
    for _ in range(4):
        court.waits_ns(liar)
    court.ask(liar)  # it never answered for the last one
    court.done(liar)
    assert liar.task is not None
    court.engine.set_reserve(liar.task, ReserveSpec("pe", 200 * MS, 900 * MS, "pool"), court.now_ns)
    assert liar.task.reserve is not None
    before_ns, since_ns = liar.task.reserve.budget_ns, court.now_ns
    court.ask(liar)
    court.ask(court.honest)
    court.go(held_ms * MS)
    assert (court.honest in court.arbiter.online.clients) == (held_ms >= 2)
    court.done(liar)
    assert court.now_ns == since_ns + held_ms * MS
    assert before_ns - liar.task.reserve.budget_ns == paid_ms * MS


# -- standing --------------------------------------------------------------------------------------


def offend(court: Court, liar: Channel, times: int) -> None:
    """Keep the GPU for ever, again and again."""
    for _ in range(times):
        court.waits_ns(liar)
    court.ask(liar)  # without having answered for the last one
    court.hear(liar, RELEASE, liar.request.seq, court.now_ns)
    court.arbiter.withdrew(liar, liar.request.seq, court.now_ns)


def test_who_goes_on_without_an_answer_is_put_behind_its_equals_and_then_behind_all(
    court: Court,
) -> None:
    liar = court.join("liar", peer=LIAR)
    offend(court, liar, AFTER_EQUALS)
    assert court.standing(liar) == Standing.AFTER_EQUALS
    holder, low = court.join("holder", peer=ANOTHER), court.join("low", level=-1)
    court.ask(holder)
    for waiting in (low, liar, court.honest):
        court.ask(waiting)
    order = []
    for _ in range(3):
        (now,) = court.arbiter.online.clients
        assert isinstance(now, Channel)
        court.done(now)
        (then,) = court.arbiter.online.clients
        assert isinstance(then, Channel)
        order.append(then.name)
    assert order == ["honest", "liar", "low"]
    court.done(low)
    offend(court, liar, LAST - AFTER_EQUALS)
    assert court.standing(liar) == Standing.LAST
    assert liar.task is not None
    assert liar.task.rank > max(c.task.rank for c in court.channels if c.task and c is not liar)


def test_priorities_that_are_given_later_do_not_end_it_and_inheritance_does(court: Court) -> None:
    liar = court.join("liar", peer=LIAR)
    offend(court, liar, LAST)
    assert liar.task is not None
    assert court.honest.task is not None
    court.engine.set_priority(liar.task, Fixed(9), court.now_ns)
    assert liar.task.rank > court.honest.task.rank
    request = court.engine.enter(court.honest.task, liar.task, court.now_ns)
    assert liar.task.rank == court.honest.task.rank, "who waits for it must not wait for ever"
    court.engine.leave(request, court.now_ns)
    assert liar.task.rank > court.honest.task.rank


def test_a_new_connection_of_such_a_process_is_no_better(court: Court) -> None:
    liar = court.join("liar", peer=LIAR)
    offend(court, liar, LAST)
    again = court.join("again", level=5, peer=LIAR)
    assert again.task is not None
    assert court.honest.task is not None
    assert again.task.rank > court.honest.task.rank


def test_in_the_end_it_is_unmanaged_for_a_time_and_longer_the_next_time(court: Court) -> None:
    liar, second = court.join("liar", peer=LIAR), court.join("second", peer=LIAR)
    offend(court, liar, UNMANAGED)
    assert court.standing(liar) == Standing.UNMANAGED
    assert court.expelled == ["liar", "second"]
    for channel in (liar, second):
        court.arbiter.remove(channel, court.now_ns)
    away_ns = AWAY_NS
    for number in range(3):
        (record,) = court.conduct.away(court.now_ns)
        assert record.away_until_ns == court.now_ns + away_ns
        court.go(away_ns - 1)
        assert not court.conduct.admits(liar.identity, court.now_ns)
        court.go(1)
        assert court.conduct.admits(liar.identity, court.now_ns)
        liar = court.join(f"liar{number}", peer=LIAR)
        assert court.standing(liar) == Standing.LAST
        offend(court, liar, UNMANAGED - LAST)
        assert court.standing(liar) == Standing.UNMANAGED
        court.arbiter.remove(liar, court.now_ns)
        away_ns *= 2


def test_everything_is_forgiven_with_time(court: Court) -> None:
    liar = court.join("liar", peer=LIAR)
    offend(court, liar, LAST)
    standings = []
    for _ in range(LAST):
        court.go(FORGIVEN_NS)
        court.ask(liar)
        court.done(liar)
        standings.append(court.standing(liar))
    assert standings == [Standing.AFTER_EQUALS] * 2 + [Standing.GOOD] * 4
    assert liar.record is not None
    assert liar.record.is_clean
    assert court.waits_ns(liar) == HOLD
    assert level_of(liar.task.rank) == 0 if liar.task else False


def test_who_closes_the_connection_instead_of_an_answer_has_not_answered(court: Court) -> None:
    for number in range(LAST):
        liar = court.join(f"liar{number}", peer=LIAR)
        court.waits_ns(liar)
        court.arbiter.remove(liar, court.now_ns)
    again = court.join("again", peer=LIAR)
    assert court.standing(again) == Standing.LAST


def test_a_lease_that_is_not_given_back_costs_patience_and_progress_is_an_answer(
    court: Court,
) -> None:
    """A program that has drawn and waits for its user may keep the mark of a lease for long."""
    idle = court.join("idle", peer=LIAR)
    for number in range(20):
        court.ask(idle)
        court.hear(idle, COMPLETE, idle.request.seq, court.now_ns)
        assert idle.leased
        court.say_busy(idle, used_ns=number + 1)
        court.ask(court.honest)
        court.go(HOLD)
        assert court.honest in court.arbiter.online.clients
        court.done(court.honest)
        court.go(HOLD)
        court.say_busy(idle, used_ns=number + 2)
    assert court.standing(idle) == Standing.GOOD
    assert idle.record is not None
    assert idle.record.late > 4
    court.ask(idle)
    court.hear(idle, COMPLETE, idle.request.seq, court.now_ns)
    for _ in range(UNMANAGED + 1):  # and now its page says the same for ever
        court.ask(court.honest)
        court.go(HOLD)
        court.done(court.honest)
        court.ask(idle)
    assert court.standing(idle) == Standing.UNMANAGED


# -- users -----------------------------------------------------------------------------------------


def test_newcomers_of_a_liars_user_have_to_show_that_they_give_the_gpu_back(court: Court) -> None:
    offend(court, liar := court.join("liar", peer=LIAR), UNMANAGED)
    court.arbiter.remove(liar, court.now_ns)
    newcomer = court.join("newcomer", peer=Peer(7, LIAR.uid, LIAR.uid))
    assert court.waits_ns(newcomer) // MS == 2
    court.done(newcomer)
    other = court.join("other", peer=ANOTHER)
    assert court.waits_ns(other) == HOLD, "another user's is not suspected"
    assert court.waits_ns(court.honest, other) == HOLD, "nor who was there before"
    court.done(court.honest)
    for _ in range(SHOWN):
        court.ask(newcomer)
        court.done(newcomer)
    assert court.waits_ns(newcomer) == HOLD
    court.done(newcomer)
    court.go(SUSPECT_NS)
    late = court.join("late", peer=Peer(8, LIAR.uid, LIAR.uid))
    assert court.waits_ns(late) == HOLD


# -- what is remembered, and told ------------------------------------------------------------------


def test_processes_without_troubles_are_forgotten_and_the_others_are_bounded(court: Court) -> None:
    for pid in range(2000):
        peer = Peer(100 + pid, 3000, 3000)
        channel = court.join(f"c{pid}", peer=peer)
        if pid % 2:
            court.conduct.overdue(channel, court.now_ns, court.now_ns)
        court.arbiter.remove(channel, court.now_ns)
        channel.close()
    records = court.conduct._records
    assert len(records) == 1000 + 1
    assert court.honest.identity in records


def test_a_note_says_what_is_the_matter(court: Court) -> None:
    liar = court.join("liar", peer=LIAR)
    assert note(liar) == ""
    court.waits_ns(liar)
    assert note(liar) == "it kept the GPU too long once while others waited"
    offend(court, liar, AFTER_EQUALS)
    assert note(liar) == (
        "it kept the GPU too long 5 times while others waited, 5 of them without an answer, and is"
        " served after its equals"
    )


def test_the_identity_of_a_process_is_not_its_number_alone() -> None:
    import socket

    ours, theirs = socket.socketpair()
    channel = Channel(1, ours, Peer(os.getpid(), 5, 5), 0)
    uid, (pid, born) = channel.identity
    assert (uid, pid) == (5, os.getpid())
    assert born > 0
    channel.close()
    theirs.close()
