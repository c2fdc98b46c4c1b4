"""The foreground window goes first: real X servers, a real window manager and real programs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import x_server
from tests.integration import gl
from tests.integration.command import headway
from tests.integration.daemon_client import Actor, DaemonProcess, running_daemon, wait_until
from tests.integration.gl import Program, Stage
from tests.integration.x_client import CARDINAL, XClient

pytestmark = pytest.mark.live

FOLLOWS_S = 0.5
"""So soon the frame rates have followed the focus."""
SECONDS = 1.0
TOLERANCE_NS = 20_000_000
"""Timers of a busy machine are late."""
ATTEMPTS = 3
"""Somebody else's load can spoil a measurement, but not make rates follow that do not."""


# -- a real X server, and this process as window manager and program -----------------------------


def launch(daemon: DaemonProcess, name: str, **more: str) -> str:
    """What `headway run --priority '*'` says beforehand; the token of the program."""
    return str(daemon.ask(do="run", name=name, priority="*", **more)["token"])


def in_front(daemon: DaemonProcess) -> list[str]:
    status = daemon.status()
    shown = [c["task"] for c in status["channels"] if c["foreground"]]
    assert shown == (status["foreground"] or {"tasks": []})["tasks"]
    return [name.split(".")[0] for name in shown]


def follows(daemon: DaemonProcess) -> bool:
    status = daemon.status()
    return status["display"] is not None and status["display_problem"] == ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@contextlib.contextmanager
def followed(folder: Path) -> Iterator[tuple[DaemonProcess, XClient]]:
    """A display, and a daemon that follows it."""
    with (
        gl.xvfb() as display,
        running_daemon(folder, "--display", display) as daemon,
        XClient(display) as x,
    ):
        wait_until(lambda: follows(daemon), "the display")
        yield daemon, x


@pytest.fixture(params=["XRes", "_NET_WM_PID"])
def pid_source(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A display, and the only way there from a window to a pid."""
    options = ["-extension", "X-Resource"] if request.param == "_NET_WM_PID" else []
    with gl.xvfb(*options) as display:
        yield display, request.param


def test_the_owner_of_the_active_window_goes_first(
    folder: Path, pid_source: tuple[str, str]
) -> None:
    display, by = pid_source
    with running_daemon(folder, "--display", display) as daemon, XClient(display) as x:
        token = launch(daemon, "ours")
        with daemon.client("ours", token), Actor(daemon, "other") as other:
            other.do("connect")
            mine, theirs = x.window(), x.window()
            if by == "_NET_WM_PID":
                x.set_number(mine, by, CARDINAL, os.getpid())
                x.set_number(theirs, by, CARDINAL, 1)
                x.set_text(theirs, "WM_CLIENT_MACHINE", socket.gethostname().encode())
            assert in_front(daemon) == []
            x.activate(mine)
            wait_until(lambda: in_front(daemon) == ["ours"], "the program in front")
            entry = daemon.status()["foreground"]
            assert (entry["window"], entry["pid"], entry["by"]) == (mine, os.getpid(), by)
            x.activate(0)
            x.activate(x.root + 0x1FFFFFF)  # there is no such window
            if by == "_NET_WM_PID":
                x.activate(theirs)
                wait_until(lambda: in_front(daemon) == [], "somebody else in front")
                assert daemon.status()["foreground"]["pid"] == 1
                x.set_text(mine, "WM_CLIENT_MACHINE", b"another.machine")
                x.activate(mine)
                wait_until(lambda: daemon.status()["foreground"]["window"] == mine, "its window")
                assert daemon.status()["foreground"]["pid"] is None
                assert in_front(daemon) == []
            else:
                x.activate(theirs)  # the next thing that means anything
                wait_until(lambda: daemon.status()["foreground"]["window"] == theirs, "a change")
                assert in_front(daemon) == ["ours"]
        assert daemon.log.read_text() == ""


def test_window_0_changes_nothing(folder: Path) -> None:
    with followed(folder) as (daemon, x), daemon.client("ours", launch(daemon, "ours")):
        x.activate(x.window())
        wait_until(lambda: in_front(daemon) == ["ours"], "the program in front")
        for _ in range(20):
            x.activate(0)
            assert in_front(daemon) == ["ours"]


def test_a_window_counts_for_what_its_process_started(folder: Path) -> None:
    with followed(folder) as (daemon, x), Actor(daemon, "child") as child:
        child.do("connect")
        daemon.ask(do="set", task="child", priority="*")
        x.activate(x.window())
        wait_until(lambda: in_front(daemon) == ["child"], "the child in front")


def test_a_daemon_that_follows_a_display_sleeps(folder: Path) -> None:
    def wakes() -> int:
        text = Path(f"/proc/{daemon.pid}/status").read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if "ctxt_switches" in line)

    with followed(folder) as (daemon, x):
        x.activate(x.window())
        wait_until(lambda: daemon.status()["foreground"] is not None, "a window")
        before = wakes()
        time.sleep(1)  # it is the time in which nothing happens
        assert wakes() - before <= 5, "it was asked a last time before, and then nothing"


def authority(path: Path, cookie: bytes) -> Path:
    """A file that opens any display of this machine."""
    fields = (socket.gethostname().encode(), b"", b"MIT-MAGIC-COOKIE-1", cookie)
    parts = (struct.pack(">H", len(part)) + part for part in fields)
    path.write_bytes(struct.pack(">H", 256) + b"".join(parts))
    return path


def test_the_cookie_is_needed_where_the_server_asks_for_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = authority(tmp_path / "right", b"0123456789abcdef")
    wrong = authority(tmp_path / "wrong", b"fedcba9876543210")
    monkeypatch.setenv("XAUTHORITY", str(wrong))
    with (
        gl.xvfb("-auth", str(right)) as display,
        running_daemon(folder, "--display", display) as daemon,
    ):
        wait_until(lambda: "refused" in daemon.status()["display_problem"], "a refusal")
        assert len(daemon.log.read_text().splitlines()) == 1
        shutil.copy(right, wrong)
        wait_until(lambda: follows(daemon), "the display, with the right cookie")


def test_a_program_brings_its_display_to_a_daemon_without_one(folder: Path) -> None:
    with gl.xvfb() as display, running_daemon(folder) as daemon:
        assert daemon.status()["display"] is None
        env = {**os.environ, "HEADWAY_DIR": str(folder), "DISPLAY": display}
        assert headway("run", "--", "true", env=env).returncode == 0
        wait_until(lambda: follows(daemon), "the display")
        assert daemon.status()["display"] == display


def test_a_wrong_display_is_one_line_and_not_an_end(folder: Path) -> None:
    for number, wrong in enumerate(("far.away:0", ":65000", "nonsense")):
        with running_daemon(folder.with_name(f"run{number}"), "--display", wrong) as daemon:
            with daemon.client("it") as client:
                client.submit()
                client.wait_grant()
            time.sleep(1)  # time for a second attempt
            assert len(daemon.log.read_text().splitlines()) == 1
            told = headway("status", env={**os.environ, "HEADWAY_DIR": str(daemon.folder)})
            assert "is not followed" in told.stdout


@contextlib.contextmanager
def impostor(data: bytes) -> Iterator[str]:
    """Something on a display that says this again and again, as fast as it is read."""

    def talk(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data:
                connection.sendall(data)
            while connection.recv(4096):  # silent until it is left
                pass

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                talk(listener.accept()[0])

    number = 50_000 + os.getpid() % 10_000
    path = Path(f"/tmp/.X11-unix/X{number}")
    path.parent.mkdir(mode=0o1777, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f":{number}"
    finally:
        path.unlink()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(20)


@pytest.mark.parametrize(
    "data",
    [b"", bytes(4096), b"\1" * 4096, x_server.welcome([7]) + 4096 * bytes([12, *bytes(31)])],
    ids=["silent", "zeros", "an endless set-up", "a flood of events"],
)
def test_no_impostor_slows_the_daemon_or_fills_it(folder: Path, data: bytes) -> None:
    with impostor(data) as display, running_daemon(folder, "--display", display) as daemon:
        with daemon.client("it") as client:
            before = daemon.memory_kb()
            for _ in range(300):
                client.submit()
                client.wait_grant()
                client.complete()
                time.sleep(0.002)
            assert daemon.memory_kb() - before < 4096
        assert len(daemon.log.read_text().splitlines()) <= 2
        status = daemon.status()
        assert status["foreground"] is None
        assert status["display_problem"] != ""


# -- a window manager and gears ------------------------------------------------------------------


@contextlib.contextmanager
def openbox(stage: Stage) -> Iterator[None]:
    assert shutil.which("openbox"), "openbox is missing; scripts/install-packages has it"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    manager = subprocess.Popen(["openbox"], env=stage.environment(), **quiet)
    try:
        gl.wait_until(lambda: xdotool(stage, "get_desktop") == "0", "a window manager")
        yield
    finally:
        manager.kill()
        manager.wait()


def xdotool(stage: Stage, *arguments: str) -> str:
    """What it prints; empty if it failed."""
    result = subprocess.run(
        ["xdotool", *arguments],
        env=stage.environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return result.stdout.strip() if result.returncode == 0 else ""


def foreground(stage: Stage) -> dict[str, Any]:
    status = stage.status() or {}
    return status.get("foreground") or {"window": 0, "pid": 0, "by": "", "tasks": []}


def two_gears(stage: Stage) -> dict[str, tuple[Program, str]]:
    """Two of them, each with its window. Started one after the other: neither window says whose
    it is, but the newest one is active."""
    started = {}
    for name in ("left", "right"):
        program = stage.start(gl.GEARS, options=["--name", name, "--priority", "*"])
        pid = program.process.pid
        gl.wait_until(lambda pid=pid: foreground(stage)["pid"] == pid, f"the window of {name}")  # type: ignore[misc]
        assert foreground(stage)["by"] == "XRes"
        started[name] = program, str(foreground(stage)["window"])
    return started


def rates_with(stage: Stage, gears: dict[str, tuple[Program, str]], front: str) -> dict[str, float]:
    """Frames per second of both, from half a second after the focus went to one of them."""
    xdotool(stage, "windowactivate", gears[front][1])
    time.sleep(FOLLOWS_S)
    before = {name: program.frames() for name, (program, _) in gears.items()}
    start = time.monotonic()
    time.sleep(SECONDS)
    took = time.monotonic() - start
    return {name: (p.frames() - before[name]) / took for name, (p, _) in gears.items()}


def assert_rates_follow(stage: Stage, gears: dict[str, tuple[Program, str]]) -> list[str]:
    """Every time the focus moves from one to the other; at the beginning it is on the right."""
    for _attempt in range(ATTEMPTS):
        told, followed = [], True
        for front, back in 2 * (("left", "right"), ("right", "left")):
            rates = rates_with(stage, gears, front)
            followed &= rates[front] > 1.5 * rates[back]
            shown = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
            told.append(f"{front:>5} in front: {shown}")
            assert [name.split(".")[0] for name in foreground(stage)["tasks"]] == [front]
        if followed:
            break
    assert followed, told
    return told


def test_the_focus_moves_and_the_frame_rates_follow(
    bare_stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage, trace = bare_stage, tmp_path / "focus.pftrace"
    with gl.xvfb() as display:
        stage.display = display
        daemon = stage.daemon("--trace", str(trace))
        with openbox(stage):
            gears = two_gears(stage)
            told = assert_rates_follow(stage, gears)
            # Nothing has the focus: the active window is 0, and the last one counts still.
            for name in ("right", "left"):
                xdotool(stage, "windowminimize", gears[name][1])
            gl.wait_until(lambda: xdotool(stage, "getactivewindow") == "", "no active window")
            assert foreground(stage)["tasks"] != []
    with capsys.disabled():
        print("\ntwo es2gears at priority *, frames per second", *told, sep="\n")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(20) == 0
    check = headway("check", trace, "--tolerance", f"{TOLERANCE_NS}ns")
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_daemon_survives_its_x_server_and_follows_the_next(
    bare_stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = bare_stage
    display = f":{2000 + os.getpid() % 30_000}"  # nobody takes it while it is free
    with gl.xvfb(display):
        stage.display = display
        daemon = stage.daemon()
        with openbox(stage):
            two_gears(stage)
    gl.wait_until(lambda: foreground(stage)["tasks"] == [], "nobody in front")
    status = stage.status()
    assert status is not None
    assert status["foreground"] is None
    assert status["display_problem"] != ""
    stage.stop_programs()  # a program without its X server may or may not end by itself
    with gl.xvfb(display), openbox(stage):
        told = assert_rates_follow(stage, two_gears(stage))
    with capsys.disabled():
        print("\nthe same after the X server was started again", *told, sep="\n")
    assert daemon.poll() is None
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(20) == 0
