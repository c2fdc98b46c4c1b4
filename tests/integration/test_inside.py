"""What a program may say of itself: headway.task(), headway.job() and headway.current()."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headway
from headway.live.api import tasks
from tests.integration.daemon_client import Actor, DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path / "run") as daemon:
        monkeypatch.setenv("HEADWAY_DIR", str(daemon.folder))
        monkeypatch.delenv("HEADWAY_SOCKET", raising=False)
        yield daemon


def test_without_a_daemon_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_DIR", str(tmp_path / "nowhere"))
    monkeypatch.delenv("HEADWAY_SOCKET", raising=False)
    with headway.task("detector", priority=9, reserve="5ms/20ms"), headway.job(deadline="5ms"):
        assert headway.current() is None


def test_a_wrong_value_is_told_with_or_without_a_daemon(daemon: DaemonProcess) -> None:
    with pytest.raises(ValueError, match="a reserve such as"), headway.task("x", reserve="lots"):
        pass
    with pytest.raises(ValueError, match="priority"), headway.task("x", priority="first"):
        pass
    with pytest.raises(ValueError), headway.job(deadline="soon"):  # noqa: PT011 - any one says it
        pass


def test_a_program_on_its_own_asks_for_turns(daemon: DaemonProcess) -> None:
    with headway.task("detector", priority=9, policy="prt", reserve="5ms/20ms"):
        entry = daemon.one("detector")
        assert (entry["priority"], entry["capacity_ns"], entry["state"]) == ("9", 5_000_000, "idle")
        with headway.job():
            assert daemon.one("detector")["state"] == "leased"
        seen = headway.current()
        assert seen is not None
        assert (seen.task.split(".")[0], seen.jobs, seen.interposed) == ("detector", 1, False)
    wait_until(lambda: daemon.names() == [], "the task is over with its block")


def test_a_job_waits_for_its_turn_and_keeps_it(daemon: DaemonProcess) -> None:
    with headway.task("important", priority=9), Actor(daemon, "other") as other:
        other.do("connect", "submit", "wait_grant")
        other.tell("complete")
        with headway.job():
            assert daemon.one("important")["state"] == "leased"
            other.heard()
            other.do("submit")
            other.tell("wait_grant")
            assert daemon.one("other")["state"] == "waiting"
        assert other.heard() == "wait_grant"


def test_jobs_within_jobs_are_one_and_late_ones_are_counted(daemon: DaemonProcess) -> None:
    with headway.task("worker", priority=1):
        with headway.job(deadline="1ns"), headway.job():
            pass
        with headway.job(deadline="1000s"):
            pass
        entry = daemon.one("worker")
        assert (entry["jobs"], entry["misses"]) == (2, 1)


def test_a_daemon_that_dies_is_not_waited_for(daemon: DaemonProcess) -> None:
    done = []
    with headway.task("worker", priority=1):
        with headway.job():
            daemon.kill()
        with headway.job():
            done.append("the next job, though nobody grants it")
    assert done
    assert headway.current() is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_task_goes_on_under_the_next_daemon(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    monkeypatch.setattr(tasks, "AGAIN_S", 0.0)
    monkeypatch.setattr(tasks, "AGAIN_AT_MOST_S", 0.01)
    with headway.task("worker", priority=7, reserve="5ms/20ms"):
        daemon.kill(how)
        with headway.job():
            pass
        assert headway.current() is None
        with running_daemon(daemon.folder) as second:

            def is_served() -> bool:
                with headway.job():
                    return second.names() == ["worker"]

            wait_until(is_served, "the task is known to the next daemon")
            entry = second.one("worker")
            assert (entry["priority"], entry["capacity_ns"]) == ("7", 5_000_000)


def test_a_daemon_that_is_stopped_is_looked_for_but_seldom(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    with headway.task("worker", priority=1):
        daemon.kill(signal.SIGSTOP)
        with headway.job():
            pass  # and here it is found out
        monkeypatch.setattr(tasks, "_ask", lambda request, *_: asked.append(request))
        for _ in range(1000):
            with headway.job():
                pass
        daemon.kill(signal.SIGCONT)
    assert len(asked) <= 3


def test_what_a_managed_program_said_of_itself_outlives_the_daemon(daemon: DaemonProcess) -> None:
    """It runs on without its channel, and comes back."""
    daemon.ask(do="become", name="outer", priority=3)
    daemon.ask(do="become", name="inner", priority=7, reserve="2ms/10ms")
    daemon.kill()
    with running_daemon(daemon.folder) as second, second.client("program"):
        assert second.one("inner")["priority"] == "7"
        assert second.one("inner")["capacity_ns"] == 2_000_000
        second.ask(do="unbecome")
        assert second.one("inner")["priority"] == "3"
        second.ask(do="unbecome")
        assert second.one("inner")["priority"] == "0"
        assert list((daemon.folder / "claims").iterdir()) == []


def test_a_managed_program_changes_what_it_is(daemon: DaemonProcess) -> None:
    """The interposer is played by a claim on a channel that this process has."""
    with daemon.client("program") as client:
        daemon.ask(do="become", name="outer", priority=3, policy="ht")
        assert (daemon.one("program")["priority"], daemon.one("program")["policy"]) == ("3", "ht")
        daemon.ask(do="become", name="inner", priority=7, reserve="2ms/10ms")
        assert daemon.one("program")["priority"] == "7"
        assert daemon.one("program")["capacity_ns"] == 2_000_000
        with daemon.client("late"):
            assert daemon.one("inner")["priority"] == "7", "a channel that comes later is the same"
        daemon.ask(do="unbecome")
        assert daemon.one("program")["priority"] == "3"
        daemon.ask(do="unbecome")
        assert (daemon.one("program")["priority"], daemon.one("program")["policy"]) == ("0", "prt")
        assert daemon.one("program")["reserve"] is None
        client.one_group()


def test_importing_it_costs_little() -> None:
    code = "import sys, headway; print(len([m for m in sys.modules if m.startswith('headway')]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert int(done.stdout) == 1
