"""From the foreground window to the tasks that go first (AGPA), without processes or X servers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engine.core import Engine
from headway.engine.events import Event, Focused, Recorder
from headway.engine.model import Group
from headway.engine.priorities import Automatic, Fixed, PriorityRule
from headway.live.desktop.x11.session import XRES, Owner
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.options import TaskOptions
from headway.live.server.daemon import Daemon
from headway.live.wire.protocol import build_hello
from tests.bench.asking import ask, come, status_of

MS = 1_000_000
US, PARENT, STRANGER = os.getpid(), os.getppid(), 1


def window_of(pid: int | None) -> Owner:
    return Owner(0x200001, pid, XRES)


class Bench:
    """A daemon that is not served, and programs that are all this process."""

    def __init__(self, folder: Path, display: str | None = None) -> None:
        self.events: list[Event] = []
        self.daemon = Daemon(folder, display=display, observers=(Recorder(self.events.append),))
        self.daemon.room = 100
        self._ends: list[socket.socket] = []

    def program(self, name: str, rule: PriorityRule | None = None) -> Channel:
        token = self.daemon.registry.launches.expect(
            TaskOptions(name=name, priority=rule, uid=os.geteuid())
        )
        theirs = come(self.daemon)
        theirs.send(build_hello(name, token))
        self._ends.append(theirs)
        self.daemon._turn()
        channel = list(self.daemon.channels.values())[-1]
        assert channel.task is not None
        return channel

    def look_at(self, pid: int | None) -> None:
        """The X server says whose window is active now."""
        self.daemon.foreground._found(window_of(pid))

    def in_front(self) -> list[str]:
        entry = status_of(self.daemon)["foreground"]
        shown = [c["task"] for c in status_of(self.daemon)["channels"] if c["foreground"]]
        assert entry is None or entry["tasks"] == shown
        return [name.split(".")[0] for name in shown]

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for channel in list(self.daemon.channels.values()):
            self.daemon.clients.drop(channel)
        self.daemon.foreground.watcher.close()
        self.daemon.loop.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


# -- the engine ----------------------------------------------------------------------------------


def test_all_tasks_of_the_foreground_program_go_before_the_others() -> None:
    events: list[Event] = []
    engine = Engine(observers=[Recorder(events.append)])
    names = ("busy", "a", "b", "c")
    tasks = {name: engine.add_task(name, 0, priority=Automatic())[0] for name in names}

    def order() -> list[str]:
        engine.submit(Group(tasks["busy"], 0), 0)
        running = engine.dispatch(0)
        assert running is not None
        for name in ("a", "b", "c"):
            engine.submit(Group(tasks[name], 0), 0)
        ran = []
        while running is not None:
            ran.append(running.task.name)
            engine.complete(running, 0, 0)
            running = engine.dispatch(0)
        return ran[1:]

    assert order() == ["a", "b", "c"]
    engine.set_foreground([tasks["b"], tasks["c"]], 0)
    assert order() == ["b", "c", "a"]
    engine.set_foreground([tasks["c"]], 0)
    assert order() == ["c", "a", "b"]
    engine.set_foreground([], 0)
    assert order() == ["a", "b", "c"]
    focused = [event.task for event in events if isinstance(event, Focused)]
    assert focused == ["b", "c", "c", None]


# -- from a pid to tasks -------------------------------------------------------------------------


def test_every_channel_of_the_program_with_the_window_is_in_front(bench: Bench) -> None:
    first, second = bench.program("first", Automatic()), bench.program("second", Automatic())
    assert bench.in_front() == []
    bench.look_at(US)
    assert bench.in_front() == ["first", "second"]
    assert first.task is not None
    assert second.task is not None
    assert first.task.rank == second.task.rank == Automatic().rank(first.task, None)
    bench.look_at(STRANGER)
    assert bench.in_front() == []


def test_a_channel_that_comes_after_its_window_is_in_front_too(bench: Bench) -> None:
    bench.look_at(US)
    bench.program("late", Automatic())
    assert bench.in_front() == ["late"]


def test_nobody_is_in_front_when_the_display_is_gone_or_the_owner_unknown(bench: Bench) -> None:
    bench.program("it", Automatic())
    for end in (None, window_of(None)):
        bench.look_at(US)
        assert bench.in_front() == ["it"]
        bench.daemon.foreground._found(end)
        assert bench.in_front() == []


def test_a_fixed_priority_stays_what_it_is_in_front(bench: Bench) -> None:
    fixed = bench.program("fixed", Fixed(3))
    bench.look_at(US)
    assert fixed.task is not None
    assert fixed.task.priority == 3
    assert status_of(bench.daemon)["foreground"]["pid"] == US


def test_the_window_of_a_launcher_counts_for_what_it_started(bench: Bench) -> None:
    bench.program("child", Automatic())
    bench.program("fixed", Fixed(3))
    bench.look_at(PARENT)
    assert bench.in_front() == ["child"]
    bench.program("sibling", Automatic())
    assert bench.in_front() == ["child", "sibling"]


def test_a_program_with_a_window_of_its_own_is_not_behind_its_terminals(bench: Bench) -> None:
    bench.program("game", Automatic())
    bench.look_at(US)
    bench.look_at(PARENT)
    assert bench.in_front() == []
    bench.look_at(US)
    assert bench.in_front() == ["game"]


def test_a_priority_that_becomes_automatic_is_looked_at_again(bench: Bench) -> None:
    bench.program("child", Fixed(0))
    bench.look_at(PARENT)
    assert bench.in_front() == []
    peer = Peer(US, os.geteuid(), os.getegid())
    ask(bench.daemon, peer, do="set", task="child", priority="*")
    assert bench.in_front() == ["child"]


def test_the_focus_is_recorded_when_it_changes_and_only_then(bench: Bench) -> None:
    channel = bench.program("it", Automatic())
    for pid in (US, US, STRANGER, STRANGER, None, US):
        bench.look_at(pid)
    assert channel.task is not None
    name = channel.task.name
    focused = [event.task for event in bench.events if isinstance(event, Focused)]
    assert focused == [name, None, name]


def test_a_new_engine_hears_who_is_in_front(bench: Bench) -> None:
    bench.program("before", Automatic())
    bench.look_at(US)
    bench.daemon._start_over()
    assert bench.in_front() == []
    bench.program("after", Automatic())
    assert bench.in_front() == ["after"]


def test_a_mistake_of_our_own_costs_the_display_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(display: object) -> tuple[bytes, bytes]:
        raise KeyError("a mistake")

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    watcher = bench.daemon.foreground.watcher
    monkeypatch.setattr("headway.live.desktop.x11.watcher.cookie_for", fail)
    monkeypatch.setattr(watcher, "_connect", lambda display: ours)
    bench.program("it", Automatic())
    offer(bench, ":7")
    bench.daemon._turn()
    assert "KeyError: 'a mistake'" in capfd.readouterr().err
    assert "could not handle" in watcher.problem
    assert watcher.due_ns is not None
    assert watcher.due_ns > time.monotonic_ns(), "it is not tried again at once"
    assert [c["state"] for c in status_of(bench.daemon)["channels"]] == ["idle"]
    theirs.close()


# -- which display -------------------------------------------------------------------------------


def offer(bench: Bench, display: object, *, uid: int | None = None) -> str | None:
    """A program is started there; the display that the daemon follows then."""
    peer = Peer(US, os.geteuid() if uid is None else uid, 0)
    ask(bench.daemon, peer, do="run", display=display, authority="/x")
    name: str | None = status_of(bench.daemon)["display"]
    return name


def test_a_daemon_without_a_display_takes_that_of_the_first_program(bench: Bench) -> None:
    assert status_of(bench.daemon)["display"] is None
    assert offer(bench, None) is None
    assert offer(bench, ":7", uid=os.geteuid() + 1) is None, "of another user"
    assert offer(bench, ":7") == ":7"
    display = bench.daemon.foreground.watcher.display
    assert display is not None
    assert display.authority == "/x"
    assert offer(bench, ":8") == ":8", "nobody answers on :7"


def test_a_given_display_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ":6")
    bench.daemon.foreground.start()
    assert offer(bench, ":7") == ":6"
    bench.close()


def test_none_is_no_display_whatever_programs_say(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(tmp_path, "none")
    bench.daemon.foreground.start()
    assert offer(bench, ":7") is None
    assert bench.daemon._next_due_ns() is None
    assert capfd.readouterr().err == ""
    bench.close()


@pytest.mark.parametrize("display", ["elsewhere:0", "", 7, [":7"], "x" * 10_000, ":7\n"])
def test_a_display_that_is_none_harms_no_program(
    bench: Bench, display: object, capfd: pytest.CaptureFixture[str]
) -> None:
    assert offer(bench, display) is None
    assert len(capfd.readouterr().err.splitlines()) <= 1
