"""Recording real daemons: from the middle, with a reader that stops, on a disk that is full."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.engine.events import (
    Began,
    Completed,
    Ended,
    Event,
    Found,
    Passed,
    TakenUp,
    TaskAdded,
)
from headway.view.traces import read_events
from tests.bench.perfetto import ask_perfetto
from tests.integration import gl
from tests.integration.command import HEADWAY, headway
from tests.integration.daemon_client import (
    PATIENCE_S,
    DaemonProcess,
    Gone,
    running_daemon,
    wait_until,
)
from tests.integration.gl import Stage

pytestmark = pytest.mark.live

TOLERANCE = ("--tolerance", "50ms")
"""Timers of a busy machine are late."""


@contextlib.contextmanager
def load(daemon: DaemonProcess, **chosen: dict[str, object]) -> Iterator[None]:
    """Clients that send group after group."""
    stop = threading.Event()

    def work(token: str) -> None:
        with contextlib.suppress(Gone, OSError), daemon.client(token=token) as client:
            while not stop.is_set():
                client.one_group()

    tokens = [daemon.ask(do="run", name=name, **chosen)["token"] for name, chosen in chosen.items()]
    threads = [threading.Thread(target=work, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(daemon.names()) == len(chosen), "all clients are there")
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)


@contextlib.contextmanager
def tracing(
    daemon: DaemonProcess, trace: Path, *options: str, limit: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """`headway trace`, up and recording."""
    command = [str(HEADWAY), "trace", "-o", str(trace), *options]
    if limit:
        command = ["bash", "-c", f'{limit}; exec "$0" "$@"', *command]
    process = subprocess.Popen(
        command,
        env={**os.environ, "HEADWAY_DIR": str(daemon.folder)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: bool(list(trace.parent.glob(f"{trace.name}.*part"))), "it records")
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def finish(process: subprocess.Popen[str], number: int = signal.SIGINT) -> str:
    """Press Ctrl-C; what it said."""
    process.send_signal(number)
    _, text = process.communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, text
    return text


def grants(daemon: DaemonProcess) -> int:
    return int(daemon.status()["grants"])


def some_more(daemon: DaemonProcess, count: int) -> None:
    wanted = grants(daemon) + count
    wait_until(lambda: grants(daemon) >= wanted, f"{count} more grants", 60)


def test_a_trace_from_the_middle_stands_for_itself(tmp_path: Path) -> None:
    trace = tmp_path / "middle.pftrace"
    with (
        running_daemon(tmp_path / "run") as daemon,
        load(daemon, a={"priority": 3}, b={"policy": "ht"}, c={"reserve": "5ms/50ms"}),
    ):
        some_more(daemon, 100)
        with tracing(daemon, trace) as process:
            some_more(daemon, 300)
            said = finish(process)
        some_more(daemon, 10)  # it goes on without
    events = list(read_events(trace))
    assert f"{len(events) - 1} events" in said
    assert [type(event) for event in events[:2]] == [Began, TakenUp]
    told = events[: next(i for i, e in enumerate(events) if isinstance(e, Found))]
    assert {e.task.split(".")[0] for e in told if isinstance(e, TaskAdded)} == {"a", "b", "c"}
    assert sum(isinstance(event, Completed) for event in events) >= 200
    assert events[-1] == Ended(events[-1].ns, True)
    checked = headway("check", *TOLERANCE, trace)
    assert checked.returncode == 0, checked.stdout
    assert "dropped" not in checked.stdout


def test_a_reader_that_stops_costs_records_and_nobody_waits_for_it(tmp_path: Path) -> None:
    trace = tmp_path / "stopped.pftrace"
    with (
        running_daemon(tmp_path / "run") as daemon,
        load(daemon, a={}, b={}, c={}),
        tracing(daemon, trace) as process,
    ):
        some_more(daemon, 50)
        memory_kb = daemon.memory_kb()
        process.send_signal(signal.SIGSTOP)
        some_more(daemon, 14_000)
        assert daemon.memory_kb() - memory_kb < 16 * 1024
        process.send_signal(signal.SIGCONT)
        some_more(daemon, 500)
        said = finish(process)
    assert "were dropped on the way" in said
    dropped = [e.dropped for e in read_events(trace) if isinstance(e, TakenUp)]
    assert dropped[0] == 0
    assert sum(dropped) > 0
    checked = headway("check", *TOLERANCE, trace)
    assert checked.returncode == 0, checked.stdout
    assert f"{sum(dropped)} events were dropped at {len(dropped) - 1} places" in checked.stdout


def test_a_full_disk_drops_and_counts(tmp_path: Path) -> None:
    trace = tmp_path / "full.pftrace"
    with (
        running_daemon(tmp_path / "run") as daemon,
        load(daemon, a={}, b={}),
        tracing(daemon, trace, limit="ulimit -f 8") as process,
    ):
        some_more(daemon, 2_000)
        said = finish(process)
    assert "were dropped, the disk is full" in said
    assert trace.stat().st_size <= 8 * 1024
    events = list(read_events(trace))
    gap = events[-2]
    assert isinstance(gap, TakenUp)
    assert gap.dropped > 0
    assert f"; {gap.dropped} were dropped" in said
    checked = headway("check", *TOLERANCE, trace)
    assert checked.returncode == 0, checked.stdout
    assert f"{gap.dropped} events were dropped at 1 places" in checked.stdout


def test_the_daemon_writes_its_own_trace_in_another_process(tmp_path: Path) -> None:
    trace = tmp_path / "own.pftrace"
    with running_daemon(tmp_path / "run", "--trace", str(trace)) as daemon:
        children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
        (writer,) = map(int, children)
        assert os.sched_getscheduler(writer) == os.SCHED_OTHER
        with load(daemon, a={}, b={}):
            some_more(daemon, 100)
            os.kill(writer, signal.SIGSTOP)
            some_more(daemon, 100)
            os.kill(writer, signal.SIGCONT)
        daemon.kill()  # as hard as can be
        wait_until(trace.exists, "the trace of a daemon that was killed")
    *_, last = read_events(trace)
    assert last == Ended(last.ns, False)


def test_a_daemon_whose_trace_cannot_be_written_says_so(tmp_path: Path) -> None:
    env = {**os.environ, "HEADWAY_DIR": str(tmp_path)}
    result = headway("daemon", "--trace", tmp_path / "no" / "t.pftrace", env=env)
    assert result.returncode == 2
    assert "cannot be written (No such file or directory)" in result.stderr


def test_mistakes_are_told_in_one_line(tmp_path: Path) -> None:
    env = {**os.environ, "HEADWAY_DIR": str(tmp_path)}
    for options, expected in (
        (("-o", tmp_path / "t"), "no daemon answers"),
        (("-o", tmp_path / "t", "--duration", "5"), "found '5', expected a duration"),
        (("-o", tmp_path / "t", "--priority", "5"), "expected -- PROGRAM"),
    ):
        result = headway("trace", *options, env=env)
        assert result.returncode in (1, 2)
        assert expected in result.stderr
        assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("t*"))


def frames_in(events: list[Event], name: str) -> int:
    passed = sum(e.frames for e in events if isinstance(e, Passed) and e.task.startswith(name))
    done = [e for e in events if isinstance(e, Completed) and e.task.startswith(name)]
    return passed + sum(e.frame for e in done)


def test_a_program_is_recorded_drawn_and_replayed(bare_stage: Stage, tmp_path: Path) -> None:
    trace = tmp_path / "gears.pftrace"
    bare_stage.daemon("--software-gpu")
    bomb = str(bare_stage.built / "bomb")
    for number in range(2):
        low = ("--name", f"bomb{number}", "--priority", "1")
        bare_stage.start(bomb, "60", options=low)
    gl.wait_until(lambda: all(map(bare_stage.is_managed, ("bomb0", "bomb1"))), "bombs")
    counter = tmp_path / "frames"
    process = subprocess.Popen(
        [HEADWAY, "trace", "-o", trace, "--name", "gears", "--priority", "9", "--", gl.GEARS],
        env={
            **bare_stage.environment(LD_PRELOAD=str(bare_stage.built / "count.so")),
            "FRAME_COUNT": str(counter),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    program = gl.Program(process, counter)  # type: ignore[arg-type]
    try:
        gl.wait_until(lambda: program.frames() > 300, "frames beside two bombs")
        time.sleep(0.2)  # what is counted under a lease is told ten times a second
        frames = program.frames()
        process.terminate()
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
        bare_stage.stop_programs()
    events = list(read_events(trace))
    assert frames_in(events, "gears") == pytest.approx(frames, rel=0.25)
    checked = headway("check", *TOLERANCE, trace)
    assert checked.returncode == 0, checked.stdout

    problems, tracks, states, rates = ask_perfetto(
        trace,
        "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'",
        "SELECT DISTINCT name FROM track",
        """SELECT DISTINCT slice.name FROM slice JOIN track ON track.id = slice.track_id
           WHERE track.name GLOB 'gears.*'""",
        """SELECT MAX(value) AS most FROM counter JOIN track ON track.id = counter.track_id
           WHERE track.name GLOB 'gears.* frames/s'""",
    )
    assert problems == []
    names = [str(row["name"]).split(".")[0] for row in tracks]
    assert {"GPU 0", "decisions", "Tasks", "Frame rates", "gears", "bomb0", "bomb1"} <= set(names)
    assert {"waiting", "running", "leased"} <= {row["name"] for row in states}
    assert rates[0]["most"] > 10

    replayed = headway("replay", trace, "--policy", "fifo", "--json")
    assert replayed.returncode == 0, replayed.stderr
    runs = json.loads(replayed.stdout)["runs"]
    shares = {
        name: {task: entry["share of the GPU, %"] for task, entry in run.items()}
        for name, run in runs.items()
    }
    # The simulation under the same policy comes close; without a manager the bombs get more.
    assert shares["simulated"]["gears"] == pytest.approx(shares["recorded"]["gears"], abs=15)
    for bombs in ("bomb0", "bomb1"):
        assert shares["fifo"][bombs] > shares["simulated"][bombs]
