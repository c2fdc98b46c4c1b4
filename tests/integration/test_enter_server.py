"""`headway.enter_server` and `leave_server` inside a program, and without anybody to tell."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headway
from headway.live.api import inside
from tests.integration.daemon_client import Actor, DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    """This process is a program of that daemon's, of priority 9."""
    with running_daemon(tmp_path / "run") as daemon:
        token = daemon.ask(do="run", name="client", priority=9)["token"]
        monkeypatch.setenv("HEADWAY_SOCKET", str(daemon.socket))
        monkeypatch.setenv("HEADWAY_TOKEN", token)
        monkeypatch.setattr(inside, "_connection", inside._Connection())
        yield daemon
        inside._connection._forget()


@pytest.fixture
def server(daemon: DaemonProcess) -> Iterator[Actor]:
    with Actor(daemon, "painter") as actor:
        actor.do("connect")
        yield actor


def level(daemon: DaemonProcess) -> int:
    return int(daemon.one("painter")["effective"])


def test_a_server_is_entered_by_pid_or_by_name(daemon: DaemonProcess, server: Actor) -> None:
    task = daemon.one("painter")["task"]
    for name in (server.pid, "painter", task):
        headway.enter_server(name)
        wait_until(lambda: level(daemon) == 9, f"the server {name} inherits")
        headway.leave_server()
        wait_until(lambda: level(daemon) == 0, f"the server {name} is itself again")


def test_a_server_that_is_not_there_is_nobody(daemon: DaemonProcess, server: Actor) -> None:
    for name in ("nobody", "paint", "", -1, 0, 999_999_999, None):
        headway.enter_server(name)
        headway.leave_server()
    headway.enter_server("painter")
    wait_until(lambda: level(daemon) == 9, "the next one is heard")
    assert daemon.status()["restarts"] == 0


def test_each_thread_has_a_request_of_its_own(daemon: DaemonProcess, server: Actor) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def ask() -> None:
        headway.enter_server(server.pid)
        asked.set()
        go_on.wait(20)
        headway.leave_server()
        inside._connection._forget()

    thread = threading.Thread(target=ask)
    thread.start()
    headway.enter_server(server.pid)
    assert asked.wait(20)
    wait_until(lambda: daemon.one("painter")["serving"] == 2, "both wait")
    go_on.set()
    thread.join()
    wait_until(lambda: daemon.one("painter")["serving"] == 1, "one was answered")
    headway.leave_server()
    wait_until(lambda: daemon.one("painter")["serving"] == 0, "both were answered")


def test_a_forked_child_does_not_speak_for_its_parent(daemon: DaemonProcess, server: Actor) -> None:
    headway.enter_server(server.pid)
    wait_until(lambda: daemon.one("painter")["serving"] == 1, "the parent waits")
    child = os.fork()
    if child == 0:
        headway.leave_server()
        os._exit(0)
    os.waitpid(child, 0)
    assert daemon.one("painter")["serving"] == 1
    headway.leave_server()
    wait_until(lambda: daemon.one("painter")["serving"] == 0, "the parent was answered")


def test_a_daemon_that_dies_is_not_missed_and_the_next_one_is_found(
    daemon: DaemonProcess, server: Actor
) -> None:
    headway.enter_server(server.pid)
    daemon.kill()
    since = time.monotonic()
    for _ in range(100):
        headway.enter_server(server.pid)
        headway.enter_server("painter")
        headway.leave_server()
    assert time.monotonic() - since < 5
    with running_daemon(daemon.folder) as second:
        server.do("connect")

        def is_heard() -> bool:
            headway.enter_server(server.pid)
            return bool(second.one("painter")["serving"])

        wait_until(is_heard, "the program is heard again")


def test_outside_of_headway_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_SOCKET", raising=False)
    headway.enter_server()
    headway.enter_server("compositor")
    headway.leave_server()
    with pytest.raises(AttributeError, match="no attribute 'enter_servers'"):
        _ = headway.enter_servers  # type: ignore[attr-defined]
