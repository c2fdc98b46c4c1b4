"""The arbiter, the registry and the daemon's own mistakes, without processes and with our clock."""

from __future__ import annotations

import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engine.model import Group
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.live.gate.arbiter import Bounds
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.options import TaskOptions
from headway.live.identity.registry import Registry
from headway.live.server.daemon import Daemon
from headway.live.server.errands import Errands
from headway.live.server.listener import Listener
from headway.live.server.loop import Loop
from headway.live.wire.protocol import (
    COMPLETE,
    RELEASE,
    SUBMIT,
    WITHDRAW,
    Message,
    ProtocolError,
    build_hello,
    build_message,
    parse_hello,
)
from tests.bench.asking import come, status_of
from tests.bench.gate import MS, GateBench


@pytest.fixture
def bench() -> Iterator[GateBench]:
    bench = GateBench()
    yield bench
    bench.close()


def test_a_long_group_keeps_the_gpu_for_its_bound_after_somebody_came(bench: GateBench) -> None:
    long, other = bench.channel("long"), bench.channel("other")
    bench.hear(long, SUBMIT, 1, 0)
    bench.hear(other, SUBMIT, 1, 500 * MS)
    assert bench.arbiter.next_timer_ns() == 560 * MS
    bench.arbiter.tick(559 * MS)
    assert bench.granted == [("long", 1)]
    bench.arbiter.tick(560 * MS)
    assert bench.granted == [("long", 1), ("other", 1)]
    assert long.account.overdue == 1
    assert long.task is not None
    assert long.task.gpu_ns == 560 * MS


def test_groups_that_are_on_the_gpu_together_are_charged_once(bench: GateBench) -> None:
    """LibETP §IV-F: a group runs from max(submit, previous finish) to its finish."""
    first, second = bench.channel("first", policy="fifo"), bench.channel("second", policy="fifo")
    bench.hear(first, SUBMIT, 1, 0)
    bench.hear(second, SUBMIT, 1, 2 * MS)
    assert bench.granted == [("first", 1), ("second", 1)]
    bench.hear(first, COMPLETE, 1, 5 * MS)
    bench.hear(second, COMPLETE, 1, 9 * MS)
    assert first.task is not None
    assert second.task is not None
    assert (first.task.gpu_ns, second.task.gpu_ns) == (5 * MS, 4 * MS)


def test_words_about_a_group_that_is_over_change_nothing(bench: GateBench) -> None:
    late, other = bench.channel("late"), bench.channel("other")
    bench.hear(late, SUBMIT, 1, 0)
    bench.hear(other, SUBMIT, 7, 0)
    bench.arbiter.tick(60 * MS)
    for kind in (COMPLETE, RELEASE, WITHDRAW, COMPLETE):
        bench.hear(late, kind, 1, 61 * MS)
    bench.hear(other, COMPLETE, 6, 62 * MS)
    bench.hear(late, SUBMIT, 2, 63 * MS)
    assert bench.granted == [("late", 1), ("other", 7)]
    bench.hear(late, WITHDRAW, 1, 64 * MS)  # of the group before
    bench.hear(other, COMPLETE, 7, 65 * MS)
    assert bench.granted[-1] == ("late", 2)


def test_a_busy_lease_is_not_overdue_before_it_was_taken_back(bench: GateBench) -> None:
    holder, other = bench.channel("holder"), bench.channel("other")
    bench.hear(holder, SUBMIT, 1, 0)
    bench.hear(holder, COMPLETE, 1, MS)
    assert holder.leased
    bench.say_busy(holder)
    bench.arbiter.tick(1000 * MS)
    assert holder.leased
    bench.hear(other, SUBMIT, 1, 2000 * MS)
    assert holder.revoked
    bench.arbiter.tick(2059 * MS)
    assert bench.granted == [("holder", 1)]
    bench.hear(holder, RELEASE, 1, 2059 * MS)
    assert bench.granted[-1] == ("other", 1)
    assert holder.task is not None
    assert holder.task.gpu_ns == (1 + 59) * MS  # its group, and what the other waited for it


@pytest.mark.parametrize("used_ns", [0, 2**64 - 1])
def test_what_a_lease_was_used_for_is_believed_within_what_is_possible(
    bench: GateBench, used_ns: int
) -> None:
    holder = bench.channel("holder")
    bench.hear(holder, SUBMIT, 1, 0)
    bench.hear(holder, COMPLETE, 1, MS)
    bench.say_busy(holder, used_ns)
    bench.hear(holder, SUBMIT, 2, 11 * MS)
    assert holder.task is not None
    assert holder.task.gpu_ns == (1 + (10 if used_ns else 0)) * MS


def test_several_groups_online_at_once_end_each_by_itself(bench: GateBench) -> None:
    one, two = bench.channel("one", policy="fifo"), bench.channel("two", policy="fifo")
    three = bench.channel("three")
    for channel in (one, two, three):
        bench.hear(channel, SUBMIT, 1, 0)
    assert bench.granted == [("one", 1), ("two", 1)]
    bench.arbiter.remove(one, MS)
    assert bench.granted[2:] == []
    bench.hear(two, COMPLETE, 1, 2 * MS)
    assert bench.granted[2:] == [("three", 1)]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_words_keeps_the_rules_of_the_engine(seed: int) -> None:
    pick = random.Random(seed)
    bench = GateBench()
    now_ns, made = 0, 0
    channels: list[Channel] = []
    for _ in range(3000):
        now_ns += pick.choice((0, 1, 1000, MS, 30 * MS))
        while (due_ns := bench.arbiter.next_timer_ns()) is not None and due_ns <= now_ns:
            bench.arbiter.tick(due_ns)
        if len(channels) < 5:
            made += 1
            policy = pick.choice(("prt", "ht"))
            channel = bench.channel(
                f"c{made}", policy=policy, level=pick.randrange(3), at_ns=now_ns
            )
            channels.append(channel)
            if pick.random() < 0.5:
                reserve = ReserveSpec("pe", 5 * MS, 20 * MS, pick.choice((None, "pool")))
                assert channel.task is not None
                bench.engine.set_reserve(channel.task, reserve, now_ns)
        channel = pick.choice(channels)
        if pick.random() < 0.03:
            bench.arbiter.remove(channel, now_ns)
            channels.remove(channel)
            continue
        if pick.random() < 0.3:
            bench.say_busy(channel, pick.choice((0, MS, 2**64 - 1)))
        seq = pick.choice((channel.request.seq, channel.request.seq, channel.request.seq + 1))
        bench.hear(channel, pick.choice((SUBMIT, SUBMIT, COMPLETE, RELEASE, WITHDRAW)), seq, now_ns)
        bench.stats.update(now_ns)
        assert sum(bench.stats.share(t, now_ns) for t in bench.stats.tasks) <= 1 + 1e-9
    assert bench.checker.violations == []
    assert len(bench.granted) > 300
    bench.close()


def test_an_unknown_message_is_an_error_of_its_sender(bench: GateBench) -> None:
    with pytest.raises(ProtocolError, match="unknown type 99"):
        bench.hear(bench.channel("odd"), 99, 0, 0)


# -- who may -------------------------------------------------------------------------------------


def test_the_token_of_another_user_counts_for_nothing() -> None:
    bench = GateBench()
    registry = Registry(
        lambda _: bench.engine, lambda: [bench.engine], Daemon(Path("unused")).spec_file.spec
    )
    token = registry.launches.expect(TaskOptions(name="vip", priority=Fixed(9), uid=4711))
    channel = bench.channel("thief")
    task = registry.enrol(channel, parse_hello(build_hello("thief", token)), 0)
    assert task.priority == 0
    bench.close()


# -- the daemon's own mistakes -------------------------------------------------------------------


def test_a_failing_engine_is_replaced_and_everybody_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    daemon = Daemon(tmp_path)
    daemon.room = 10
    ends = []
    for _ in range(2):
        theirs = come(daemon)
        theirs.send(build_hello("client"))
        ends.append(theirs)
    for _ in range(2):  # on a slow machine one of them takes all the time that a turn has
        daemon._turn()
    assert [c["state"] for c in status_of(daemon)["channels"]] == ["idle", "idle"]

    def fail(group: Group, now_ns: int) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(daemon.schedulers.first.engine, "submit", fail)
    ends[0].send(build_message(Message(SUBMIT, 1)))
    daemon._turn()
    assert status_of(daemon)["channels"] == []
    assert status_of(daemon)["restarts"] == 1
    assert "the engine starts over: KeyError: 'a mistake'" in capfd.readouterr().err
    for end in ends:
        end.settimeout(5)
        while end.recv(1000):  # the welcome, then the end
            pass
        end.close()
    theirs = come(daemon)
    theirs.send(build_hello("again"))
    theirs.send(build_message(Message(SUBMIT, 1)))
    daemon._turn()
    daemon._turn()
    assert [c["state"] for c in status_of(daemon)["channels"]] == ["running"]
    theirs.close()
    daemon._turn()
    daemon.loop.close()


def test_time_for_which_the_daemon_was_stopped_is_not_charged_to_errands() -> None:
    """Else a second of it would keep everybody waiting for eight."""
    errands = Errands(8, MS, MS)

    def stopped() -> bool:
        time.sleep(0.1)
        return False

    errands.add(Peer(1, 0, 0), stopped)
    errands.run(time.monotonic_ns())
    errands.add(Peer(1, 0, 0), stopped)
    due_ns = errands.due_ns()
    assert due_ns is not None
    assert due_ns - time.monotonic_ns() < 400 * MS


def test_a_listener_without_descriptors_pauses_and_opens_again(tmp_path: Path) -> None:
    loop = Loop()
    came: list[socket.socket] = []
    errands = Errands(1, MS, MS)
    listener = Listener(loop, tmp_path / "door", socket.SOCK_STREAM, came.append, errands)

    def turn(timeout_s: float) -> None:
        loop.turn(timeout_s)
        errands.run(time.monotonic_ns())

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.connect(str(tmp_path / "door"))
        next_fd = os.dup(0)
        os.close(next_fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_fd, hard))
        try:
            turn(5)
            turn(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        until_ns = listener.paused_until_ns
        assert until_ns is not None
        assert came == []
        listener.resume(until_ns - 1)
        turn(0)
        assert came == []
        listener.resume(until_ns)
        turn(5)
        assert len(came) == 1
        came[0].close()
    listener.close()
    loop.close()


# -- ticks ---------------------------------------------------------------------------------------


@pytest.fixture
def ticking() -> Iterator[GateBench]:
    bench = GateBench(Bounds(60 * MS, tick_ns=MS))
    yield bench
    bench.close()


def test_messages_are_booked_at_once_and_decided_on_at_the_next_tick(ticking: GateBench) -> None:
    bench = ticking
    one, two = bench.channel("one"), bench.channel("two", level=5)
    bench.hear(one, SUBMIT, 1, 5 * MS)
    assert bench.granted == []
    assert bench.arbiter.next_timer_ns() == 6 * MS, "the next, and not the one that is now"
    bench.hear(two, SUBMIT, 1, 5 * MS + 900_000)
    bench.arbiter.tick(6 * MS)
    assert bench.granted == [("two", 1)], "whoever is more important by the tick goes first"
    bench.hear(two, COMPLETE, 1, 6 * MS + 100_000)
    assert two.task is not None
    assert two.task.gpu_ns == 100_000, "work is charged for as long as it took"
    assert bench.granted == [("two", 1)], "the GPU idles until the tick"
    assert bench.arbiter.next_timer_ns() == 7 * MS
    bench.arbiter.tick(7 * MS)
    assert bench.granted == [("two", 1), ("one", 1)]


def test_nobody_gets_a_lease_between_two_ticks(ticking: GateBench) -> None:
    bench = ticking
    one = bench.channel("one")
    for number in range(1, 4):
        bench.hear(one, SUBMIT, number, 2 * number * MS + 1)
        bench.arbiter.tick((2 * number + 1) * MS)
        bench.hear(one, COMPLETE, number, (2 * number + 1) * MS + 1)
        assert not one.leased
    assert bench.granted == [("one", 1), ("one", 2), ("one", 3)]
