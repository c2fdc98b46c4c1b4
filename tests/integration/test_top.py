"""`headway top` in a real terminal, with a real daemon and clients that really wait for the GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import HEADWAY, headway
from tests.integration.daemon_client import Client, DaemonProcess, Gone, running_daemon, wait_until
from tests.integration.tmux import Terminal, terminal

pytestmark = pytest.mark.live

COLOUR = re.compile(r"\x1b\[[\d;]*?(?<!\d)(?:3[0-7]|4[0-7]|9[0-7]|10[0-7]|[34]8)(?!\d)[\d;]*m")
TASKS = {
    "editor": {"priority": "9", "reserve": "5ms/20ms"},
    "bomb": {"priority": "1", "reserve": "2ms/25ms"},
    "video": {"priority": "rm"},
    "[bold red]x": {"priority": "3"},
}


class Worker(threading.Thread):
    """A client with 2 ms of work at a time."""

    def __init__(self, daemon: DaemonProcess, name: str, **chosen: str) -> None:
        super().__init__(daemon=True)
        token = daemon.ask(do="run", name=name, **chosen)["token"]
        self.client: Client = daemon.client(name, token)
        self.ends = threading.Event()

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                self.client.submit()
                self.client.wait_grant()
                time.sleep(0.002)
                self.client.complete()
                self.ends.wait(0.005)
        except (Gone, OSError):  # the test took the daemon away
            pass


class Bench:
    """A daemon with clients, and terminals beside it."""

    def __init__(self, folder: Path, daemon: DaemonProcess) -> None:
        self.folder = folder
        self.daemon = daemon

    def env(self, **more: str) -> dict[str, str]:
        keep = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TMUX")}
        base = {"HEADWAY_DIR": str(self.folder), "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
        return {**keep, **base, **more}

    def top(self, *options: str, **more: str) -> list[str | Path]:
        """Under env: tmux gives programs its own TERM."""
        more = {"TERM": "screen-256color", **more}
        settings = [f"{key}={value}" for key, value in more.items()]
        return ["env", *settings, HEADWAY, "top", "--interval", "200ms", *options]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    assert shutil.which("tmux"), "missing: tmux; scripts/install-packages has it"
    folder = tmp_path / "run"
    spec = tmp_path / "limit.toml"
    spec.write_text("[admission]\nlimit = 90\n")
    with running_daemon(folder, "--spec", str(spec)) as daemon:
        workers = [Worker(daemon, name, **chosen) for name, chosen in TASKS.items()]
        for worker in workers:
            worker.start()
        try:
            yield Bench(folder, daemon)
        finally:
            for worker in workers:
                worker.ends.set()
            daemon.end()
            for worker in workers:
                worker.join(30)
                worker.client.close()


def row_of(screen: Terminal, name: str) -> str:
    found = [line for line in screen.lines() if line.startswith(name)]
    return found[0] if found else ""


def ended(screen: Terminal) -> str:
    """What is on the screen after it, which is what was there before it."""
    text = screen.wait_for("CODE=", "ENDED")
    assert text.startswith("BEFORE\nCODE="), text
    assert re.search(r"(?<!-)\bicanon\b", text), text
    assert re.search(r"(?<!-)\becho\b", text), text
    assert "GPU [" not in text
    return text.partition("CODE=")[2].split()[0]


@pytest.mark.parametrize("size", [(80, 24), (200, 50)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_top_shows_tasks_changes_them_and_leaves_the_terminal_as_it_was(
    bench: Bench, size: tuple[int, int]
) -> None:
    with terminal(size, bench.top(), bench.env()) as screen:
        screen.wait_for("editor", "bomb", "video", "[bold red]x", "F10Quit")
        screen.wait_for(f"Daemon {bench.daemon.pid}", "Tasks 4", "4 prt")
        shown = screen.lines()
        assert len(shown) == size[1]
        assert re.match(r"GPU \[\|* *\d+(\.\d)?%?\]  Queue \d+  Tasks 4", shown[0]), shown[0]
        titles = ["TASK", "POL", "PRIO", "BUDGET", "FPS", "GPU%", "P50", "P99", "MISS", "STATE"]
        more = ["PID", "USER", "RESERVE", "Q", "GROUPS", "TREND"] if size[0] == 200 else ["TREND"]
        for title in titles + more:
            assert title in shown[2], title
        names = [line.split()[0] for line in shown[3:7]]
        assert names == ["editor", "[bold", "bomb", "video"]  # by priority
        assert re.search(r"\[\|* *-?\d+\.\d/5ms\]", shown[3])
        # Numbers come, and move: these are live tasks.
        wait_until(lambda: re.search(r"\d(us|ms)", row_of(screen, "bomb")[20:]) is not None, "p99")
        wait_until(lambda: "▇" in row_of(screen, "editor"), "a sparkline")
        screen.press("F8")
        screen.wait_for("changed: editor")
        assert bench.daemon.one("editor")["priority"] == "10"
        wait_until(lambda: re.search(r" 10 ", row_of(screen, "editor")) is not None, "10 shown")
        screen.press("F7")
        wait_until(lambda: bench.daemon.one("editor")["priority"] == "9", "a priority lowered")
        screen.press("q")
        assert ended(screen) == "0"


def test_a_reserve_is_typed_and_the_daemon_may_refuse_it(bench: Bench) -> None:
    with terminal((80, 24), bench.top(), bench.env()) as screen:
        screen.wait_for("editor", "video", "F10Quit")
        screen.press("r")
        screen.wait_for("Reserve of editor")
        screen.type("9ms")
        screen.press("Enter")
        screen.wait_for("expected a reserve such as")
        screen.press("BSpace", "BSpace", "BSpace")
        screen.type("6ms/30ms:ae")
        screen.press("Enter")
        screen.wait_for("changed: editor")
        assert bench.daemon.one("editor")["capacity_ns"] == 6_000_000
        wait_until(lambda: "/6ms]" in row_of(screen, "editor"), "the new budget")
        screen.press("r")
        screen.type("99ms/100ms")
        screen.press("Enter")
        refused = refusal(bench.daemon, "editor", "99ms/100ms")
        screen.wait_for(refused[:60])
        assert bench.daemon.one("editor")["capacity_ns"] == 6_000_000


def refusal(daemon: DaemonProcess, name: str, reserve: str) -> str:
    """The daemon's words, from the daemon."""
    with pytest.raises(ValueError, match="limit is 90") as caught:
        daemon.ask(do="set", task=daemon.one(name)["task"], reserve=reserve)
    return str(caught.value)


def test_a_terminal_changes_its_size_while_top_runs(bench: Bench) -> None:
    with terminal((80, 24), bench.top(), bench.env()) as screen:
        screen.wait_for("editor", "video")
        assert "GROUPS" not in screen.text()
        screen.resize(200, 50)
        screen.wait_for("GROUPS", "F10Quit")
        screen.resize(30, 8)
        wait_until(lambda: screen.text().count("\n") == 8, "a small screen")
        wait_until(lambda: "TASK" in "".join(screen.lines()[2:3]), "the titles on it")
        screen.resize(80, 24)
        screen.wait_for("STATE", "F10Quit")


@pytest.mark.parametrize(
    ("options", "more"),
    [((), {"NO_COLOR": "1"}), (("--no-color",), {}), (("--no-color",), {"TERM": "linux"})],
    ids=["NO_COLOR", "--no-color", "linux"],
)
def test_without_colour_there_is_none(
    bench: Bench, options: tuple[str, ...], more: dict[str, str]
) -> None:
    with terminal((80, 24), bench.top(*options, **more), bench.env()) as screen:
        screen.wait_for("editor", "video", "F10Quit")
        for key, expected in (("F1", "this help"), ("Escape", "F10Quit"), ("F6", "Sort by")):
            screen.press(key)
            screen.wait_for(expected)
            assert not COLOUR.search(screen.escapes()), screen.escapes()
            assert more.get("TERM") != "linux" or screen.text().isascii()
        if more.get("TERM") == "linux":
            wait_until(lambda: "#" in row_of(screen, "editor"), "a sparkline of the console's own")


def test_with_colour_there_is_some(bench: Bench) -> None:
    with terminal((80, 24), bench.top(), bench.env()) as screen:
        screen.wait_for("editor", "video", "F10Quit")
        assert COLOUR.search(screen.escapes())


def test_a_daemon_that_ends_is_missed_and_the_next_one_is_found(bench: Bench) -> None:
    with terminal((80, 24), bench.top(), bench.env()) as screen:
        screen.wait_for("editor", "video", f"Daemon {bench.daemon.pid}")
        bench.daemon.kill()
        screen.wait_for("no daemon answers in", "waiting for a daemon")
        with running_daemon(bench.folder) as second:
            screen.wait_for(f"Daemon {second.pid}", "no task yet")
            second.client("latecomer").close()
            with second.client("latecomer"):
                screen.wait_for("latecomer")
        screen.wait_for("waiting for a daemon")
        screen.press("F10")
        assert ended(screen) == "0"


def test_sigterm_leaves_the_terminal_as_it_was(bench: Bench) -> None:
    with terminal((80, 24), bench.top(), bench.env()) as screen:
        screen.wait_for("editor", "video")
        find = ["pgrep", "-f", f"{HEADWAY} top --interval 200ms"]
        pids = subprocess.run(find, capture_output=True, text=True, check=True).stdout.split()
        ours = [pid for pid in map(int, pids) if _folder_of(pid) == str(bench.folder)]
        for pid in ours:
            if Path(f"/proc/{pid}/comm").read_text().startswith("headway"):
                os.kill(pid, 15)
        assert ended(screen) == "143"


def _folder_of(pid: int) -> str:
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)[b"HEADWAY_DIR"].decode()


# -- without a screen ----------------------------------------------------------------------------


def test_once_prints_one_table_with_tops_columns(bench: Bench) -> None:
    wait_until(lambda: len(bench.daemon.names()) == 4, "four tasks")
    result = headway("top", "--once", env=bench.env(COLUMNS="80"))
    assert result.returncode == 0, result.stderr
    shown = result.stdout.splitlines()
    assert "TREND" in shown[2]
    assert [line.split()[0] for line in shown[3:]] == ["editor", "[bold", "bomb", "video"]
    assert max(map(len, shown)) <= 80
    assert "\x1b" not in result.stdout
    wide = headway("top", "--once", env=bench.env())
    assert "GROUPS" in wide.stdout


def test_json_is_one_object_a_line_once_or_at_every_refresh(bench: Bench) -> None:
    wait_until(lambda: len(bench.daemon.names()) == 4, "four tasks")
    once = headway("top", "--once", "--json", env=bench.env())
    assert once.returncode == 0, once.stderr
    check_json(bench, json.loads(once.stdout))
    stream = subprocess.Popen(
        [HEADWAY, "top", "--json", "--interval", "100ms"],
        env=bench.env(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stream.stdout is not None
    with stream, stream.stdout:
        objects = [json.loads(stream.stdout.readline()) for _ in range(3)]
        stream.terminate()
    for entry in objects:
        check_json(bench, entry)
    assert objects[0]["uptime_s"] < objects[1]["uptime_s"] < objects[2]["uptime_s"]


def check_json(bench: Bench, entry: dict[str, Any]) -> None:
    assert entry["pid"] == bench.daemon.pid
    tasks = {task["task"].rsplit(".", 1)[0]: task for task in entry["tasks"]}
    assert tasks.keys() == TASKS.keys()
    assert tasks["editor"]["priority"] == "9"
    assert tasks["bomb"]["capacity_ns"] == 2_000_000


def test_a_dumb_terminal_gets_tables_one_after_the_other(bench: Bench) -> None:
    with terminal((80, 50), bench.top(TERM="dumb"), bench.env()) as screen:
        wait_until(lambda: screen.text().count("TASK") >= 3, "three tables")
        assert screen.text().isascii()
        screen.press("C-c")
        screen.wait_for("CODE=130")


@pytest.mark.parametrize("options", [(), ("--once",), ("--json",)], ids=str)
def test_without_a_daemon_there_is_one_clear_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    env = {**os.environ, "HEADWAY_DIR": str(tmp_path / "nowhere")}
    result = headway("top", *options, env=env)
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "no daemon answers" in line
    assert "headway daemon starts one" in line


@pytest.mark.parametrize("interval", ["fast", "1", "0s", "-1s", "1ns"])
def test_a_wrong_interval_is_one_clear_line(bench: Bench, interval: str) -> None:
    result = headway("top", "--once", f"--interval={interval}", env=bench.env())
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"--interval: found '{interval}', expected")
