"""Programs that keep the GPU, against a real daemon: others wait for moments.

Each hostile client is a process of its own, and does what a program could do to its connection and
its page. How much others get is compared with what they got alone, in the same run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.live.api.client import Refused
from headway.live.wire.protocol import TURNS, Message, build_message
from tests.integration.daemon_client import (
    Actor,
    Client,
    DaemonProcess,
    running_daemon,
    wait_until,
)

pytestmark = pytest.mark.live

HOLD_S = 0.06
"""What a daemon waits for a program that has done nothing wrong yet."""
PAUSE_S = 0.004
"""Longer than the hold-off, so the GPU goes to somebody else between two groups."""

ATTEMPTS = 3
"""Somebody else's load can spoil a measurement, but not make a missing defence appear."""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path / "run") as daemon:
        yield daemon
        assert daemon.is_alive()
        assert daemon.status()["restarts"] == 0


# -- hostile clients -------------------------------------------------------------------------------


def never_answers(client: Client) -> None:
    """Has a group granted, and the next, and never says that one is done."""
    client.submit()
    client.wait_grant()
    time.sleep(1.1 * HOLD_S)


def answers_late(client: Client) -> None:
    """As slow as is possible without being silent."""
    never_answers(client)
    client.complete()


def is_busy_for_ever(client: Client) -> None:
    """Its page says under every lease that it uses the GPU."""
    client.set_busy(True)
    never_answers(client)


def takes_turns_for_ever(client: Client) -> None:
    """As a CUDA program whose work never ends."""
    if client.seq == 0:
        client.socket.send(build_message(Message(TURNS, 0)))
        client.set_unmarked(True)
    is_busy_for_ever(client)


def pretends_to_get_on(client: Client) -> None:
    """The same, and its page says each time that something was done."""
    client.count_passed(client.seq)
    takes_turns_for_ever(client)


WAYS = (never_answers, answers_late, is_busy_for_ever, takes_turns_for_ever, pretends_to_get_on)


def misbehave(path: Path, way: Callable[[Client], None]) -> None:
    """Again and again; a process that is turned away comes back."""
    while True:
        try:
            with Client(path, "liar") as client:
                while True:
                    way(client)
        except OSError:
            time.sleep(0.05)


# -- what others get -------------------------------------------------------------------------------


def groups_in(client: Client, seconds: float) -> float:
    """Groups a second of a program that pauses after each, as one with a frame rate does."""
    done, since = 0, time.monotonic()
    while time.monotonic() < since + seconds:
        client.one_group()
        done += 1
        time.sleep(PAUSE_S)
    return done / (time.monotonic() - since)


@contextlib.contextmanager
def liars(
    daemon: DaemonProcess, way: Callable[[Client], None], number: int = 1
) -> Iterator[list[multiprocessing.process.BaseProcess]]:
    """So many processes that misbehave in this way until the block ends."""
    context = multiprocessing.get_context("fork")
    made = [context.Process(target=misbehave, args=(daemon.socket, way)) for _ in range(number)]
    for process in made:
        process.start()
    try:
        yield list(made)
    finally:
        for process in made:
            process.kill()
            process.join()


@pytest.mark.parametrize(
    ("way", "priority"), [*((way, 9) for way in WAYS), (never_answers, 0), (answers_late, 0)]
)
def test_a_liar_takes_little_from_others(
    daemon: DaemonProcess, way: Callable[[Client], None], priority: int
) -> None:
    """One that may keep the GPU for the whole hold again and again leaves an eighth of what there
    is alone, whatever the priorities are."""
    token = daemon.ask(do="run", name="important", priority=priority)["token"]
    with daemon.client("important", token) as important:
        alone = groups_in(important, 0.4)
        with liars(daemon, way):
            for _ in range(ATTEMPTS):
                beside = groups_in(important, 0.5)
                if beside > 0.6 * alone:
                    return
    raise AssertionError(f"{beside:.0f} groups a second beside it, {alone:.0f} alone")


def test_many_connections_that_never_answer_cost_no_more_than_a_few(daemon: DaemonProcess) -> None:
    """A hold for each would be 2.4 s."""
    many = 40
    with contextlib.ExitStack() as stack:
        hostages = [stack.enter_context(daemon.client(f"hostage{i}")) for i in range(many)]
        with other_process(daemon) as rival:
            for hostage in hostages:
                hostage.submit()
            since = time.monotonic()
            for _ in range(many):
                rival.do("submit", "wait_grant", "complete")
            assert time.monotonic() - since < many * HOLD_S / 4
            assert daemon.one("hostage0")["standing"] > 0


def test_a_program_with_long_groups_is_not_taken_for_a_liar(daemon: DaemonProcess) -> None:
    """Others wait for it less and less; it keeps its priority and its turn."""
    token = daemon.ask(do="run", name="slow", priority=3)["token"]
    other = daemon.ask(do="run", name="equal", priority=3)["token"]
    with daemon.client("slow", token) as slow, Actor(daemon, "equal", other) as equal:
        equal.do("connect")
        for _ in range(8):
            slow.submit()
            slow.wait_grant()
            equal.do("submit", "wait_grant", "complete")
            time.sleep(2 * HOLD_S)
            slow.complete()
        entry = daemon.one("slow")
        assert entry["overdue"] >= 6
        assert (entry["standing"], entry["effective"]) == (0, 3)
        assert "it kept the GPU too long" in entry["note"]
        (facts,) = daemon.ask(do="explain", task="slow")["tasks"]
        assert facts["note"] == entry["note"]
        slow.one_group()


def test_what_becomes_of_a_liar_is_told(daemon: DaemonProcess) -> None:
    with daemon.client("honest") as honest, liars(daemon, never_answers) as (liar,):
        end = time.monotonic() + 15
        while not daemon.status()["away"] and time.monotonic() < end:
            groups_in(honest, 0.2)
        (away,) = daemon.status()["away"]
        assert away["pid"] == liar.pid
        assert 0 < away["left_ns"] <= 10_000_000_000
        assert daemon.names() == ["honest"]
        assert daemon.status()["demotions"] == 3
        with pytest.raises(Refused, match=f"{liar.pid} is unmanaged for .* s"):
            daemon.ask(do="explain", task=str(liar.pid))
        refused = daemon.status()["refused"]
        wait_until(lambda: daemon.status()["refused"] > refused, "it is turned away")
    lines = daemon.log.read_text().splitlines()
    ends = ["served after its equals now", "served after everybody else now", "for 10 s"]
    assert len(lines) == len(ends)
    for line, end_of_line in zip(lines, ends, strict=True):
        assert f"liar (pid {liar.pid}, user {os.geteuid()})" in line
        assert line.endswith(end_of_line)


def test_a_liar_that_starts_anew_takes_little_either(daemon: DaemonProcess) -> None:
    """A process for each: the newcomers of its user are suspected, and nobody else is."""
    with daemon.client("honest") as honest:
        alone = groups_in(honest, 0.4)
        with liars(daemon, never_answers, 6):
            for _ in range(2 * ATTEMPTS):
                beside = groups_in(honest, 0.5)
                if beside > 0.6 * alone:
                    return
    raise AssertionError(f"{beside:.0f} groups a second beside them, {alone:.0f} alone")


@contextlib.contextmanager
def other_process(daemon: DaemonProcess) -> Iterator[Actor]:
    with Actor(daemon, "rival") as actor:
        actor.do("connect")
        yield actor


# -- fairness --------------------------------------------------------------------------------------


def hoard(path: Path, number: int) -> None:
    """A process whose connections all want the GPU all the time, for two milliseconds each."""
    clients = {client.socket: client for client in (Client(path, "hoard") for _ in range(number))}
    for client in clients.values():
        client.submit()
    while True:
        for found in select.select(list(clients), [], [])[0]:
            client = clients[found]
            client.wait_grant()
            time.sleep(GROUP_S)
            client.complete()
            client.submit()


GROUP_S = 0.002


def test_a_process_with_many_connections_gets_no_more_than_its_equals(
    daemon: DaemonProcess,
) -> None:
    """By connections it would be one part in 21."""
    context = multiprocessing.get_context("fork")
    process = context.Process(target=hoard, args=(daemon.socket, 20))
    with daemon.client("single") as single:
        process.start()
        try:
            wait_until(lambda: daemon.names().count("hoard") == 20, "all are there")
            before, done, end = groups_of(daemon, "hoard"), 0, time.monotonic() + 0.8
            while time.monotonic() < end:
                single.submit()
                single.wait_grant()
                time.sleep(GROUP_S)
                single.complete()
                done += 1
            others = groups_of(daemon, "hoard") - before
        finally:
            process.kill()
            process.join()
    assert done > 10
    assert 0.3 < done / (done + others) < 0.7


def groups_of(daemon: DaemonProcess, name: str) -> int:
    """Groups of all programs of this name."""
    entries = daemon.status()["channels"]
    return sum(entry["groups"] for entry in entries if entry["task"].startswith(f"{name}."))
