"""Programs on several GPUs: each GPU has a scheduler of its own, and each program a gate there."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.view.traces.reader import read_events
from tests.bench.softcuda import CHECKS
from tests.integration import cuda
from tests.integration.cuda import HEADWAY, Managed
from tests.integration.daemon_client import wait_until

pytestmark = pytest.mark.live
TWO = {"SOFTCUDA_DEVICES": 2}


@pytest.fixture
def managed(gpu: cuda.Gpu, tmp_path: Path) -> Iterator[Managed]:
    with cuda.managed(gpu, tmp_path / "daemon", "--window", "0.2ms") as made:
        yield made


def greedy(managed: Managed, device: int, *options: str) -> cuda.Program:
    """A program that always wants this GPU, and has it by now."""
    env = {**TWO, "DEVICE": device}
    program = managed.start("cudaapp", "lp", 500, 10, 0, 60, options=options, env=env)
    wait_until(lambda: managed.passed(program) > 0, f"a program uses GPU {device}")
    return program


def by_number(managed: Managed) -> list[dict[str, Any]]:
    status: dict[str, Any] = managed.daemon.status()
    return list(status["gpus"])


def test_a_program_on_another_gpu_is_in_nobodys_way(managed: Managed) -> None:
    first, second = greedy(managed, 0, "--priority", "9"), greedy(managed, 1)
    managed.goes_on(second)  # though the other never ends, and is more important
    managed.goes_on(first)
    assert [managed.entry(program)["gpu"] for program in (first, second)] == [0, 1]
    gpus = by_number(managed)
    assert len({gpu["uuid"] for gpu in gpus}) == len(gpus) == 2
    assert [gpu["tasks"] for gpu in gpus] == [1, 1]
    wait_until(lambda: all(g["busy"] > 0.2 for g in by_number(managed)), "both GPUs are busy")
    third = greedy(managed, 1, "--priority", "5")
    wait_until(lambda: managed.entry(second)["state"] == "waiting", "the less important one waits")
    assert managed.entry(first)["state"] == "leased"
    managed.goes_on(third)


def test_each_gpu_has_all_of_itself_to_promise(gpu: cuda.Gpu, tmp_path: Path) -> None:
    """Of one GPU 60 % and 60 % are too much; of two they are not."""
    spec = tmp_path / "spec.toml"
    spec.write_text("[admission]\nlimit = 100\n")
    with cuda.managed(gpu, tmp_path / "daemon", "--spec", str(spec)) as managed:
        half = ("--reserve", "6ms/10ms")
        on_first, on_second = greedy(managed, 0, *half), greedy(managed, 1, *half)
        assert [managed.entry(p)["note"] for p in (on_first, on_second)] == ["", ""]
        one_more = greedy(managed, 1, *half)
        assert "turned away" in managed.entry(one_more)["note"]


def test_one_program_has_a_gate_on_each_of_its_gpus(managed: Managed) -> None:
    """Its contexts' default streams are two streams: while somebody more important has the second
    GPU, its work on the first goes on."""
    checks = managed.start("checks", "devices", env={**TWO, **CHECKS["devices"]})
    assert checks.finish().returncode == 0
    both = managed.start("gpus", "60", env=TWO)
    wait_until(lambda: len(entries(managed, both)) == 2, "it has a gate on each GPU")
    assert sorted(entry["gpu"] for entry in entries(managed, both)) == [0, 1]
    rival = greedy(managed, 1, "--priority", "9")
    wait_until(lambda: state(managed, both, 1) == "waiting", "it waits for the second GPU")
    before = passed(managed, both, 0)
    wait_until(lambda: passed(managed, both, 0) > before + 100, "it goes on on the first")
    rival.kill()
    before = passed(managed, both, 1)
    wait_until(lambda: passed(managed, both, 1) > before + 20, "it goes on on the second, too")


def entries(managed: Managed, program: cuda.Program) -> list[dict[str, Any]]:
    return [c for c in managed.daemon.status()["channels"] if c["pid"] == program.pid]


def entry_on(managed: Managed, program: cuda.Program, gpu: int) -> dict[str, Any]:
    return next(c for c in entries(managed, program) if c["gpu"] == gpu)


def passed(managed: Managed, program: cuda.Program, gpu: int) -> int:
    return int(entry_on(managed, program, gpu)["passed"])


def state(managed: Managed, program: cuda.Program, gpu: int) -> str:
    return str(entry_on(managed, program, gpu)["state"])


@pytest.mark.parametrize("way", [(), ("turns",)])
def test_results_on_two_gpus_are_right_beside_others(managed: Managed, way: tuple[str]) -> None:
    greedy(managed, 1, "--priority", "9", "--reserve", "3ms/10ms")
    result = managed.run("gpus", "1.5", *way, env=TWO)
    assert result.returncode == 0, result.stderr
    launches, verdicts = zip(*map(str.split, result.stdout.splitlines()), strict=True)
    assert verdicts == ("right", "right")
    assert all(int(number) > 0 for number in launches)


def test_traces_and_explanations_are_of_each_gpu(managed: Managed, tmp_path: Path) -> None:
    greedy(managed, 0, "--reserve", "5ms/20ms")
    trace = tmp_path / "two.pftrace"
    command = [HEADWAY, "trace", "-o", str(trace)]
    environment = os.environ | {"HEADWAY_DIR": str(managed.daemon.folder)}
    with subprocess.Popen(command, env=environment) as recorder:
        try:
            wait_until(lambda: any(tmp_path.glob("two.pftrace.*")), "the recording begins")
            waits = greedy(managed, 1)
            managed.goes_on(greedy(managed, 1, "--priority", "9", "--reserve", "5ms/20ms"))
        finally:
            recorder.send_signal(signal.SIGINT)
    check = subprocess.run([HEADWAY, "check", str(trace)], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
    gpus = {event.gpu for event in read_events(trace) if hasattr(event, "gpu")} - {None}
    assert gpus == {0, 1}
    told = managed.daemon.ask(do="explain", task=waits.name)["tasks"]
    assert [case["gpu"] for case in told] == [1]
