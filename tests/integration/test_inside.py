"""What a program may say of itself: headway.task(), headway.job() and headway.current()."""

from __future__ import annotations

import ast
import asyncio
import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.live.api import asking, own_turns
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


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("name", "", "printable text"),
        ("name", 3, "printable text"),
        ("name", "a\nb", "printable text"),
        ("priority", "first", "an integer from"),
        ("priority", 1.5, "an integer from"),
        ("priority", [1], "an integer from"),
        ("reserve", "lots", "a reserve such as"),
        ("reserve", "5ms/4ms", "a capacity above zero and at most the period"),
        ("reserve", 5, "text such as"),
        ("policy", "fastest", "prt"),
        ("policy", 3, "text; headway policies lists them"),
        ("period", "soon", "a duration"),
        ("period", "0ms", "a duration above zero"),
        ("deadline", 5, "a duration"),
        ("slowdown", "10", "%"),
    ],
)
def test_a_wrong_value_is_told_by_its_argument(
    argument: str, value: object, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was found and what was expected, before the block begins; nobody is asked."""
    monkeypatch.setenv("HEADWAY_DIR", str(tmp_path / "nobody"))
    given: dict[str, Any] = {"name": "x", argument: value}
    with pytest.raises(ValueError, match=rf"headway\.task: {argument}: ") as caught:
        headway.task(**given)
    assert repr(value)[:20] in str(caught.value)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"headway\.job: deadline: found 'soon', expected"):
        headway.job(deadline="soon")


def test_coroutines_each_have_their_task(daemon: DaemonProcess) -> None:
    """However their blocks overlap; and async functions can be decorated."""
    seen = []

    async def one(name: str, mine: asyncio.Event, others: asyncio.Event) -> None:
        async with headway.task(name, priority=1):
            mine.set()
            await others.wait()
            async with headway.job():
                seen.append((name, daemon.one(name)["state"]))

    @headway.task("decorated")
    async def decorated() -> None:
        await asyncio.sleep(0)
        seen.append(("decorated", daemon.one("decorated")["state"]))

    async def all_of_them() -> None:
        a, b = asyncio.Event(), asyncio.Event()
        await asyncio.gather(one("first", a, b), one("second", b, a))
        await decorated()

    asyncio.run(all_of_them())
    assert sorted(seen) == [("decorated", "idle"), ("first", "leased"), ("second", "leased")]
    wait_until(lambda: daemon.names() == [], "all are over")


def test_a_function_can_be_decorated_and_recurse(daemon: DaemonProcess) -> None:
    @headway.task("deep")
    @headway.job(deadline="10s")
    def deep(levels: int) -> int:
        return levels and deep(levels - 1) + 1

    assert deep(3) == 3
    assert deep.__name__ == "deep"
    wait_until(lambda: daemon.names() == [], "it is over")


CELLS = (
    "import asyncio, headway\nmine = headway.task('cells', priority=9)",
    "with mine, headway.job():\n    seen.append(daemon.one('cells')['priority'])",
    "async with headway.task('awaits', priority=3), headway.job():\n"
    "    await asyncio.sleep(0)\n"
    "    seen.append(daemon.one('awaits')['priority'])",
)


def test_cells_of_a_notebook_use_it_as_programs_do(daemon: DaemonProcess) -> None:
    """A cell is code of its own, in a loop that runs, and may await at its top."""
    names: dict[str, Any] = {"seen": [], "daemon": daemon}

    async def kernel() -> None:
        for cell in CELLS:
            code = compile(cell, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            ran = eval(code, names)
            if inspect.isawaitable(ran):
                await ran

    asyncio.run(kernel())
    assert names["seen"] == ["9", "3"]
    wait_until(lambda: daemon.names() == [], "all are over")


def works(told: Any) -> None:
    """In a process of its own."""
    with headway.task("worker", priority=4), headway.job():
        told.put(getattr(headway.current(), "priority", None))


def test_a_spawned_worker_has_tasks_of_its_own(daemon: DaemonProcess) -> None:
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    with headway.task("loader", priority=2), headway.job():
        worker = context.Process(target=works, args=(told,))
        worker.start()
    assert told.get(timeout=60) == "4"
    worker.join(60)
    assert worker.exitcode == 0


def test_a_forked_worker_has_a_connection_of_its_own(daemon: DaemonProcess) -> None:
    """As multiprocessing and a DataLoader make them; its parent's turn is not touched."""
    with headway.task("loader", priority=2), headway.job():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                with headway.job():  # within the parent's job, which is not this process's
                    pass
                with headway.task("worker"), headway.job():
                    os.write(writer, b"done")
                    time.sleep(0)
            finally:
                os._exit(0)
        os.close(writer)
        assert daemon.one("loader")["pid"] == os.getpid()
    with os.fdopen(reader, "rb") as told:
        assert told.read() == b"done"
    assert os.waitpid(child, 0)[1] == 0
    with headway.task("again"), headway.job():
        assert daemon.one("again")["state"] == "leased"


def test_what_there_is_to_call_is_listed() -> None:
    """For people who press Tab in a notebook."""
    names = {name for name in dir(headway) if not name.startswith("_")}
    assert names == {*headway.__all__}
    for name in names:
        assert getattr(headway, name).__doc__, name


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
    monkeypatch.setattr(own_turns, "AGAIN_S", 0.0)
    monkeypatch.setattr(own_turns, "AGAIN_AT_MOST_S", 0.01)
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
        monkeypatch.setattr(asking, "ask", lambda request, *_: asked.append(request))
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
