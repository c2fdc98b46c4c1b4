"""headway.gpu: real processes and threads ask a real daemon for tokens and units."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import gpu
from headway.live.api import gpu_line
from tests.integration.command import headway
from tests.integration.daemon_client import DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

ONE = '[machine]\ncpus = 2\ngpus = 1\n[gpusync]\nrho = 1\nallocator = "r2dglp-wc"\n'
TWO = '[machine]\ncpus = 4\ngpus = 2\n[gpusync]\nrho = 2\nunits = "priority"\n'
HOLDER = """
import sys
from headway import gpu
with gpu.token("holder", priority=int(sys.argv[1])) as device:
    if len(sys.argv) > 2:
        with device.unit(sys.argv[2]):
            print(device.index, flush=True)
            sys.stdin.readline()
    else:
        print(device.index, flush=True)
        sys.stdin.readline()
"""


@pytest.fixture(params=[ONE], ids=["one"])
def daemon(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DaemonProcess]:
    file = tmp_path / "locks.toml"
    file.write_text(request.param)
    monkeypatch.setattr(gpu_line, "_said", set())
    with running_daemon(tmp_path / "run", "--locks", str(file)) as daemon:
        monkeypatch.setenv("HEADWAY_DIR", str(daemon.folder))
        yield daemon


two = pytest.mark.parametrize("daemon", [TWO], indirect=True, ids=["two"])


def look(daemon: DaemonProcess) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask(do="lock", act="look")["clusters"][0]
    return found


def holder(*arguments: str) -> subprocess.Popen[str]:
    """A process that holds a token, and perhaps a unit, until it is told to end."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ends(process: subprocess.Popen[str]) -> None:
    process.communicate("\n", timeout=20)


@two
def test_a_token_is_a_place_on_a_gpu_and_units_are_owned_one_at_a_time(
    daemon: DaemonProcess,
) -> None:
    with gpu.token("a") as device:
        assert device.index in (0, 1)
        assert not device.moved
        with device.unit("compute"):
            assert look(daemon)["units"] == {f"ee of device {device.index}": f"a.{os.getpid()}"}
            with pytest.raises(gpu.LockMisuse, match="one at a time"), device.unit("h2d"):
                pass
        with device.unit("d2h"):
            assert list(look(daemon)["units"]) == [f"ce1 of device {device.index}"]
    assert look(daemon)["queues"] == [[], [], [], []]
    assert daemon.ask(do="lock", act="look")["sections"] == 1


def test_a_second_job_waits_and_the_strongest_waiter_is_next(daemon: DaemonProcess) -> None:
    first = holder("1")
    assert says(first) == "0"
    weak, strong = holder("2"), None
    wait_until(lambda: len(look(daemon)["queues"][0]) == 2, "the weak one waits")
    strong = holder("9")
    wait_until(lambda: len(look(daemon)["waiting"]) == 1, "the strong one donates")
    ends(first)
    assert says(weak) == "0"  # FIFO, with the strong one's priority
    ends(weak)
    assert says(strong) == "0"
    ends(strong)
    wait_until(lambda: look(daemon)["queues"] == [[]], "all is given back")


@pytest.mark.parametrize("unit", [(), ("compute",)], ids=["token", "unit"])
def test_what_a_killed_job_held_is_free(daemon: DaemonProcess, unit: tuple[str, ...]) -> None:
    dead = holder("1", *unit)
    assert says(dead) == "0"
    waiting = holder("2", *unit)
    wait_until(lambda: len(look(daemon)["queues"][0]) == 2, "the other one waits")
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    assert says(waiting) == "0"
    ends(waiting)
    dead.communicate()


def test_a_killed_waiter_and_a_killed_donor_are_withdrawn(daemon: DaemonProcess) -> None:
    first = holder("1")
    assert says(first) == "0"
    waiter = holder("2")
    wait_until(lambda: len(look(daemon)["queues"][0]) == 2, "one waits")
    donor = holder("9")
    wait_until(lambda: len(look(daemon)["waiting"]) == 1, "one donates")
    for process in (donor, waiter):
        process.kill()
        process.communicate()
    wait_until(
        lambda: look(daemon)["waiting"] == [] and len(look(daemon)["queues"][0]) == 1,
        "both are withdrawn",
    )
    ends(first)


@two
def test_a_waiter_that_gives_up_holds_nothing(daemon: DaemonProcess) -> None:
    processes = [holder("1") for _ in range(4)]
    for process in processes:
        says(process)
    with pytest.raises(gpu.TokenTimeout), gpu.token("late", timeout=0.05):
        pass
    wait_until(lambda: look(daemon)["waiting"] == [], "the request is withdrawn")
    for process in processes:
        ends(process)
    with gpu.token("late", timeout=10):
        pass


@two
def test_a_unit_that_does_not_come_leaves_the_token(daemon: DaemonProcess) -> None:
    # Four places on two GPUs; each GPU's engine is owned by somebody.
    owners = [holder("1", "compute") for _ in range(2)]
    assert sorted(map(says, owners)) == ["0", "1"]
    with gpu.token("a", priority=5) as device:
        with pytest.raises(gpu.TokenTimeout), device.unit("compute", timeout=0.05):
            pass
        with device.unit("h2d", timeout=10):
            pass
    for process in owners:
        ends(process)


def test_misuse_is_an_error_at_the_call_and_changes_nothing(daemon: DaemonProcess) -> None:
    with gpu.token("a") as device:
        with pytest.raises(gpu.LockMisuse, match="holds a token already"), gpu.token("b"):
            pass
        with pytest.raises(gpu.LockMisuse, match="expected compute, h2d, d2h"), device.unit("ce0"):
            pass
        caught: list[BaseException] = []

        def other() -> None:
            try:
                with device.unit("compute"):
                    pass
            except gpu.LockMisuse as error:
                caught.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert "another thread" in str(caught[0])
        assert look(daemon)["queues"] == [[f"a.{os.getpid()}"]]
    with pytest.raises(gpu.LockMisuse, match="was released"), device.unit("compute"):
        pass
    with pytest.raises(gpu.LockMisuse, match="cluster: found 3"), gpu.token(cluster=3):
        pass


def test_a_budget_is_told_once_outside_of_the_unit(daemon: DaemonProcess) -> None:
    told: list[gpu.BudgetExceeded] = []

    def overrun(device: gpu.Device) -> None:
        with device.unit("compute"):
            threading.Event().wait(0.002)

    with gpu.token("a", budget="1us") as device:
        try:
            overrun(device)
        except gpu.BudgetExceeded as error:
            told.append(error)
            assert look(daemon)["units"] == {}
            overrun(device)  # cleaning up may use the GPU, and is not told again
    assert "the budget is 1000 ns" in str(told[0])
    with pytest.raises(gpu.BudgetExceeded), gpu.token("a", budget="1us") as device:
        overrun(device)
    assert look(daemon)["queues"] == [[]]


@two
def test_state_moves_with_a_copy_engine_of_both_gpus(daemon: DaemonProcess) -> None:
    with gpu.token("mover") as device:
        home = device.index
    blockers = [holder("1") for _ in range(4)]  # all places of both GPUs
    at = [says(process) for process in blockers]
    ends(blockers.pop(at.index(str(1 - home))))  # the one that is free is not at home
    wait_until(lambda: [] in look(daemon)["queues"], "its place is free")
    moves: list[tuple[int, int]] = []

    def move(source: int, target: int) -> None:
        moves.append((source, target))
        units = look(daemon)["units"]
        assert sorted(name[:3] for name in units) == ["ce0", "ce1"]
        assert {name[-1] for name in units} == {str(source), str(target)}

    with gpu.token("mover", timeout=20) as device:
        assert (device.home, device.index) == (home, 1 - home)
        assert device.migrate(move)
        assert not device.migrate(move)
    assert moves == [(home, 1 - home)]
    for process in blockers:
        ends(process)


def test_a_copy_asks_for_its_unit_chunk_by_chunk(daemon: DaemonProcess) -> None:
    parts = []
    with gpu.token("a") as device:
        device.copy_parts(
            "h2d", 5 * 1024, lambda offset, length: parts.append((offset, length)), chunk="2KiB"
        )
    assert parts == [(0, 2048), (2048, 2048), (4096, 1024)]


def test_without_a_lock_server_programs_go_on_and_say_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_line, "_said", set())
    monkeypatch.setenv("HEADWAY_DIR", str(tmp_path / "nowhere"))
    for _ in range(2):
        with gpu.token("a") as device, device.unit("compute"):
            assert device.index == 0
    assert capsys.readouterr().err.count("GPUs are used without tokens") == 1
    with running_daemon(tmp_path / "run") as daemon:
        monkeypatch.setenv("HEADWAY_DIR", str(daemon.folder))
        with gpu.token("a") as device:
            assert device.index == 0


def test_a_daemon_that_dies_lets_everybody_go_on(
    daemon: DaemonProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with gpu.token("a") as device:
        daemon.process.kill()
        daemon.process.wait()
        with device.unit("compute"):
            pass
    assert "GPUs are used without tokens" in capsys.readouterr().err


def test_a_bad_file_of_locks_is_refused_before_the_daemon_serves(tmp_path: Path) -> None:
    file = tmp_path / "locks.toml"
    file.write_text("[machine]\ngpus = 4\ngpus_each = 3\n")
    result = headway("daemon", "--locks", file)
    assert result.returncode == 2
    assert result.stderr == (
        f"{file}:3: machine.gpus_each: found 3, expected a divisor of 4, the number of devices\n"
    )
