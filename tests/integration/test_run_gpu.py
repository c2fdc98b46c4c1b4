"""`headway run --gpu auto`: programs keep a place on a GPU from their start to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import headway
from tests.integration.cuda import HEADWAY
from tests.integration.daemon_client import DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

TWO = '[machine]\ncpus = 2\ngpus = 2\n[gpusync]\nrho = 1\nallocator = "r2dglp-wc"\n'
SLICED = "[machine]\ncpus = 2\ngpus = 4\ngpus_each = 4\nslices = 2\n[gpusync]\nrho = 1\n"
PERCENT = "os.environ.get('CUDA_MPS_ACTIVE_THREAD_PERCENTAGE', '')"
SHOWS = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); input()"


@pytest.fixture(params=[TWO], ids=["two"])
def daemon(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DaemonProcess]:
    file = tmp_path / "locks.toml"
    file.write_text(request.param)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with running_daemon(tmp_path / "run", "--locks", str(file)) as daemon:
        monkeypatch.setenv("HEADWAY_DIR", str(daemon.folder))
        yield daemon


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def start(
    started: list[subprocess.Popen[str]], name: str, *options: str, shows: str = SHOWS
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [
            *(HEADWAY, "run", "--no-daemon", "--gpu", "auto", "--name", name, *options, "--"),
            *(sys.executable, "-c", shows),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )
    started.append(process)
    return process


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def look(daemon: DaemonProcess) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask(do="lock", act="look")["clusters"][0]
    return found


def queues(daemon: DaemonProcess) -> list[list[str]]:
    return [[name.split(".")[0] for name in queue] for queue in look(daemon)["queues"]]


def test_programs_are_placed_by_the_allocator_and_the_next_one_waits_for_a_place(
    daemon: DaemonProcess, started: list[subprocess.Popen[str]]
) -> None:
    first, second = start(started, "first"), start(started, "second")
    place = says(first)
    assert sorted([place, says(second)]) == ["0", "1"]
    third = start(started, "third")
    assert third.stderr is not None
    assert "every place on the GPUs is taken" in third.stderr.readline()
    first.send_signal(signal.SIGKILL)
    assert says(third) == place
    assert queues(daemon)[int(place)] == ["third"]


@pytest.mark.parametrize("daemon", [SLICED], indirect=True, ids=["sliced"])
def test_programs_on_slices_of_a_gpu_have_a_part_of_it_under_mps(
    daemon: DaemonProcess, started: list[subprocess.Popen[str]]
) -> None:
    shows = SHOWS.replace("print(", f"print({PERCENT}, ")
    programs = [start(started, f"p{n}", shows=shows) for n in range(4)]
    assert sorted(map(says, programs)) == ["50 0", "50 0", "50 1", "50 1"]


def test_a_place_lasts_as_long_as_the_program_whatever_becomes_of_its_descriptors(
    daemon: DaemonProcess, started: list[subprocess.Popen[str]]
) -> None:
    program = start(started, "kept")
    assert says(program) == "0"
    assert queues(daemon) == [["kept"], []]
    program.communicate("\n", timeout=20)
    wait_until(lambda: queues(daemon) == [[], []], "its place is free")


def test_a_launcher_that_gives_up_has_asked_for_nothing(
    daemon: DaemonProcess, started: list[subprocess.Popen[str]]
) -> None:
    for name in ("first", "second"):
        says(start(started, name))
    third = start(started, "third")
    wait_until(lambda: bool(look(daemon)["waiting"]), "the third one waits")
    third.send_signal(signal.SIGINT)
    third.wait(20)
    wait_until(lambda: not look(daemon)["waiting"], "its request is withdrawn")


def test_the_summary_s_child_keeps_the_place(
    daemon: DaemonProcess, started: list[subprocess.Popen[str]]
) -> None:
    program = start(started, "told", "--summary")
    assert says(program) == "0"
    assert queues(daemon) == [["told"], []]
    program.communicate("\n", timeout=20)
    wait_until(lambda: queues(daemon) == [[], []], "its place is free")


def test_without_tokens_the_program_runs_unless_it_is_required(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    with running_daemon(tmp_path / "run") as daemon:
        env["HEADWAY_DIR"] = str(daemon.folder)
        result = headway("run", "--gpu", "auto", "--", "/bin/echo", "ran", env=env)
        assert (result.returncode, result.stdout) == (0, "ran\n")
        assert "headway: no GPU was chosen: this daemon serves no tokens" in result.stderr
        result = headway("run", "--require", "--gpu", "auto", "--", "/bin/echo", "ran", env=env)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.startswith("headway run: --gpu auto: this daemon serves no tokens")


@pytest.mark.parametrize(
    ("options", "shown", "line"),
    [
        (["--gpu", "auto"], "2,3", "--gpu auto: found CUDA_VISIBLE_DEVICES='2,3', expected none"),
        (["--units"], None, "--units needs --gpu: expected --gpu auto --units"),
        (["--gpu", "7"], None, "--gpu"),
    ],
)
def test_wrong_words_are_one_line(options: list[str], shown: str | None, line: str) -> None:
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    env |= {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    result = headway("run", *options, "--", "/bin/true", env=env)
    assert result.returncode == 2
    assert line in result.stderr
    assert "Traceback" not in result.stderr
