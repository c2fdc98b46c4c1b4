"""Several users of one daemon: real processes of theirs, a real daemon of root's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.owners import ANN, BOB, SPEC, asks, daemon, folder, start
from tests.integration.daemon_client import (
    Actor,
    Client,
    DaemonProcess,
    as_user,
    become,
    running_daemon,
    wait_until,
)

__all__ = ["daemon", "folder"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")


# -- the daemon's files ----------------------------------------------------------------------------


def flock(path: Path) -> str:
    """What any program can try with a file that it may read."""
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "locked"


def test_nobody_else_can_keep_a_daemon_from_starting(folder: Path) -> None:
    """Whoever may open the lock may hold it, and no daemon starts any more."""
    run = folder / "lock"
    run.mkdir(0o711)
    (run / "daemon.lock").touch(0o644)  # an older daemon's
    with running_daemon(run, "--spec", str(folder / "spec.toml")) as daemon:
        assert stat.S_IMODE((run / "daemon.lock").stat().st_mode) == 0o600
        assert as_user(ANN, lambda: flock(run / "daemon.lock")).startswith("PermissionError")
        daemon.kill()
        assert as_user(ANN, lambda: flock(run / "daemon.lock")).startswith("PermissionError")
    with running_daemon(run):
        pass


def test_a_lock_that_leads_elsewhere_is_not_followed(folder: Path) -> None:
    run = folder / "link"
    run.mkdir(0o700)
    (folder / "victim").write_text("untouched")
    (run / "daemon.lock").symlink_to(folder / "victim")
    done = subprocess.run(
        [sys.executable, "-m", "headway", "daemon"],
        env={**os.environ, "HEADWAY_DIR": str(run)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode
    assert done.stderr.count("\n") == 1
    assert "daemon.lock" in done.stderr
    assert (folder / "victim").read_text() == "untouched"


def test_what_programs_said_is_for_the_daemon_alone(daemon: DaemonProcess) -> None:
    """Tokens are file names there."""
    with start(daemon, ANN, "tool", priority=1):
        for name in ("launches", "claims", "daemon.lock"):
            path = daemon.folder / name
            if path.exists():
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077
        found = as_user(BOB, lambda: list((daemon.folder / "launches").iterdir()))
        assert found.startswith("PermissionError")


# -- what others may want --------------------------------------------------------------------------


def test_a_user_wants_no_more_than_the_spec_allows(daemon: DaemonProcess) -> None:
    assert "above priority 5" in asks(daemon, ANN, do="run", name="x", priority=6)
    assert "may not use the policy fifo" in asks(daemon, ANN, do="run", name="x", policy="fifo")
    assert "may not use the policy overlap" in asks(daemon, ANN, do="become", policy="overlap")
    with start(daemon, ANN, "tool", priority=5):
        pid = daemon.one("tool")["pid"]
        for more in ({"priority": 6}, {"policy": "fifo"}):
            assert asks(daemon, ANN, do="set", task=str(pid), **more).startswith("Refused")
        assert (daemon.one("tool")["effective"], daemon.one("tool")["policy"]) == (5, "prt")
        daemon.ask(do="set", task=str(pid), priority=9, policy="fifo")  # the owner may
        assert (daemon.one("tool")["effective"], daemon.one("tool")["policy"]) == (9, "fifo")


@pytest.mark.parametrize("request_", ["stop", "reload", "trace"])
def test_the_daemon_obeys_its_own_user(daemon: DaemonProcess, request_: str) -> None:
    assert "only the user of the daemon may" in asks(daemon, ANN, do=request_)
    assert daemon.is_alive()


def test_nobody_joins_or_shrinks_the_pool_of_another(daemon: DaemonProcess) -> None:
    with (
        start(daemon, 0, "player"),
        start(daemon, ANN, "thief", reserve="0.1ms/20ms", shared="video") as thief,
    ):
        own, other = daemon.one("player"), daemon.one("thief")
        assert (own["reserve"], own["capacity_ns"]) == ("@video", 5_000_000)
        assert other["reserve"] == f"@{ANN}/video"
        for name in ("video", f"player.{own['pid']}"):
            asks(daemon, ANN, do="set", task="thief", reserve="0.2ms/20ms", shared=name)
            assert daemon.one("thief")["reserve"] == f"@{ANN}/{name}"
        answer = asks(daemon, ANN, do="set", task="player", reserve="0.1ms/20ms", shared="video")
        assert "belongs to another user" in answer
        thief.do("submit", "wait_grant", "complete")
        assert daemon.one("player")["capacity_ns"] == 5_000_000
        assert daemon.one("player")["budget_ns"] == 5_000_000


def test_a_name_that_another_user_took_as_well_is_still_ones_own(daemon: DaemonProcess) -> None:
    with start(daemon, ANN, "editor"), start(daemon, BOB, "editor"):
        (task,) = asks(daemon, ANN, do="set", task="editor", priority=3)["tasks"]
        levels = {c["uid"]: c["effective"] for c in daemon.status()["channels"]}
        assert task.startswith("editor.")
        assert levels == {ANN: 3, BOB: 0}


def test_a_listener_on_a_display_gets_no_rank_of_another_users_programs(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The abstract address of a display that has no server is there for anybody."""
    display = f":{os.getpid() % 20_000 + 20_000}"
    squatter = Actor(daemon, "squatter", uid=BOB)
    squatter.do("connect", f"listen {display}")
    monkeypatch.setenv("DISPLAY", display)

    def serves_its_own_user(own: Actor) -> bool:
        own.do("enter 0")  # the daemon learns a program's display beside its loop: ask until then
        return bool(daemon.one("squatter")["serving"] == 1)

    with (
        squatter,
        start(daemon, ANN, "important", priority=5) as important,
        start(daemon, BOB, "neighbour", priority=2) as own,
    ):
        wait_until(lambda: serves_its_own_user(own), "it serves")
        (server,) = daemon.status()["servers"]
        assert server["display"] == display
        for _ in range(20):
            important.do("enter 0")
            own.do("enter 0")
            assert daemon.one("squatter")["effective"] == 2
            assert daemon.one("squatter")["serving"] == 1


# -- how much --------------------------------------------------------------------------------------


def connections(path: Path, number: int) -> int:
    """How many of so many the daemon lets in, all at a time."""
    opened = []
    for _ in range(number):
        with contextlib.suppress(ConnectionError):
            opened.append(Client(path, "many"))
    return len(opened)


def test_a_user_has_so_many_connections_and_the_others_theirs(daemon: DaemonProcess) -> None:
    assert as_user(ANN, lambda: connections(daemon.socket, 40)) == 20
    with daemon.client("own") as own, start(daemon, BOB, "bob") as bob:
        own.one_group()
        bob.do("submit", "wait_grant", "complete")


def test_users_that_the_spec_names_later_are_served_from_then_on(folder: Path) -> None:
    spec = folder / "later.toml"
    spec.write_text("")
    with running_daemon(folder / "later", "--spec", str(spec)) as daemon:
        assert isinstance(asks(daemon, ANN, do="status"), str), "why not"
        spec.write_text(SPEC)
        daemon.ask(do="reload")
        assert asks(daemon, ANN, do="status")["status"]["pid"] == daemon.pid
        spec.write_text("")
        daemon.ask(do="reload")
        assert isinstance(asks(daemon, ANN, do="status"), str), "why not"


def ask_and_stay(folder: Path) -> None:
    """A connection to the control socket that says nothing more."""
    if os.fork() == 0:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(folder / "control.sock"))
        time.sleep(20)
        os._exit(0)


def test_commands_of_one_user_make_no_room_among_those_of_others(folder: Path) -> None:
    """Each of so many processes has one connection, and so has the owner."""
    options = ("--spec", str(folder / "spec.toml"))
    with (
        running_daemon(folder / "room", *options, descriptors=128) as daemon,
        socket.socket(socket.AF_UNIX) as own,
    ):
        own.settimeout(20)
        own.connect(str(daemon.folder / "control.sock"))
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            become(ANN)
            for _ in range(60):
                ask_and_stay(daemon.folder)
            os.write(writer, b"!")
            time.sleep(20)
            os._exit(0)
        os.close(writer)
        try:
            os.read(reader, 1)
            wait_until(lambda: "status" in asks(daemon, BOB, do="status"), "there is room")
            own.sendall(b'{"do":"status"}\n')
            assert own.recv(100).startswith(b'{"ok":true')
        finally:
            os.close(reader)
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
