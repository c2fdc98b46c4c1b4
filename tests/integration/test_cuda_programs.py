"""Unmodified CUDA programs under Headway on the software driver: hooked however they reach the
driver, with the same results and the same errors, and in order of importance."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from tests.bench.cuda_programs import SETS_AND_COPIES, WAYS
from tests.bench.softcuda import CHECKS, CHECKSUM, JOBS, KERNELS, STREAMS, WARM_UP
from tests.integration import cuda
from tests.integration.daemon_client import wait_until

pytestmark = pytest.mark.timeout(120)

LAUNCHES = ("ex", "cooperative", "extra", "graph")


# -- every way to the driver -----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_the_driver_passes_the_gate_with_the_same_results(
    managed: cuda.Managed, way: str
) -> None:
    """All at once, so each has competitors."""
    suffix, env = WAYS[way]
    kinds = [("STREAM", s) for s in STREAMS] + [("LAUNCH", launch) for launch in LAUNCHES]
    settings = [{k: v, "PER_THREAD": p} for (k, v), p in itertools.product(kinds, (0, 1))]
    started = [
        managed.start_directly(
            f"cudaapp{suffix}", "fix", 50, KERNELS, 0, JOBS, env={**env, **chosen, "LINGER": 1}
        )
        for chosen in settings
    ]
    for chosen, program in zip(settings, started, strict=True):
        answer = program.heard(60)
        assert f'"checksum": {CHECKSUM}' in answer, (chosen, answer)
        entry = managed.entry(program)
        launches = (WARM_UP + JOBS) * (1 if chosen.get("LAUNCH") == "graph" else KERNELS)
        assert entry["passed"] == launches + SETS_AND_COPIES, chosen
        # Without a pause between them, what it waits for one by one may be one job.
        assert (entry["free"], entry["jobs"] > 0) == (0, True), chosen


def test_an_entry_point_nobody_knows_passes_untouched_and_is_counted(
    managed: cuda.Managed, tmp_path: Path
) -> None:
    log = tmp_path / "lookups"
    env = {"SOFTCUDA_VERSION": 14000, "VIA": "proc2", "LAUNCH": "future", "HEADWAY_LOOKUPS": log}
    program = managed.start("cudaapp", "fix", 50, KERNELS, 0, JOBS, env={**env, "LINGER": 1})
    assert f'"checksum": {CHECKSUM}' in program.heard()
    assert managed.entry(program)["passed"] == SETS_AND_COPIES
    assert managed.entry(program)["unknown"] == 1
    lines = [line.partition(" ")[2] for line in log.read_text().splitlines()]
    assert lines.count("passed cuGetProcAddress_v2 cuLaunchKernel 14000") == 1
    assert lines.count("hooked cuGetProcAddress_v2 cuLaunchKernel") == 1
    assert "hooked cuGetProcAddress_v2 cuMemcpyDtoH_v2" in lines


@pytest.mark.parametrize("way", WAYS)
def test_promises_hold_under_headway_and_every_error_is_the_same(
    managed: cuda.Managed, way: str
) -> None:
    """Beside a more important program, so that gates close all the time. The checks say what each
    call returned if it was not what the driver promises."""
    suffix, env = WAYS[way]
    busy = managed.start("cudaapp", "hp", 300, 2, 2, 60, options=("--priority", "9"))
    wait_until(lambda: managed.passed(busy) > 0, "the busy program has come")
    started = []
    for check, per_thread in itertools.product(CHECKS, (0, 1)):
        settings = {**env, **CHECKS[check], "PER_THREAD": per_thread}
        program = managed.start_directly(f"checks{suffix}", check, env=settings)
        started.append((check, per_thread, program))
        if len(started) % 4 == 0:  # some at a time
            started[-4][2].process.wait(60)
    for check, per_thread, program in started:
        result = program.finish()
        assert (result.returncode, result.stdout) == (0, ""), (check, per_thread, result.stderr)
    assert busy.is_alive()


def test_what_is_wrong_is_as_wrong_under_headway(managed: cuda.Managed) -> None:
    cases: list[tuple[tuple[object, ...], dict[str, object]]] = [
        (("checks", "order"), {"SOFTCUDA_NO_MEMOPS": 1}),
        (("checks", "no_values"), {}),
        (("cudaapp", "fix", 50, 1, 0, 1), {"SOFTCUDA_MEMORY": 255}),
        (
            ("cudaapp", "fix", 50, 1, 0, 1),
            {"SOFTCUDA_HIDE": "cuNothing,cuLaunchKernelEx", "VIA": "proc2"},
        ),
    ]
    managed.greedy("--priority", "1")
    for (program, *arguments), env in cases:
        plain = managed.gpu.run(str(program), *arguments, env=env)
        under = managed.run(str(program), *arguments, options=("--priority", "9"), env=env)
        assert plain.returncode != 0
        assert outcome(under) == outcome(plain)


def outcome(result: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return result.returncode, result.stdout, result.stderr


# -- captures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_closed_gate_neither_blocks_nor_spoils_a_capture_and_graphs_are_gated(
    managed: cuda.Managed, tmp_path: Path, mode: int
) -> None:
    log = tmp_path / "log"
    log.touch()
    env = {"SOFTCUDA_LOG": log}
    program = managed.start("fates", options=("--priority", "1"), env=env)
    program.heard()
    with managed.daemon.client("rival") as rival:
        managed.daemon.ask(do="set", task=managed.daemon.one("rival")["task"], priority=9)
        rival.submit()
        rival.wait_grant()
        assert program.do(f"capture {mode}") == ["capturing 0"]
        assert program.do("launches 50 30") == ["launched 0"]
        assert program.do("end") == ["captured 1"]  # it was active to the end
        before = managed.entry(program)["passed"]
        assert program.do("graph") == ["graph 0"]  # which waits on the GPU
        wait_until(lambda: managed.entry(program)["state"] == "waiting", "the graph is at the gate")
        assert "spin_us" not in log.read_text()
        rival.complete()
        assert program.do("sync") == ["synced 0"]
    assert log.read_text().count("spin_us") == 30
    assert managed.entry(program)["passed"] == before + 1


def test_wrong_ends_of_captures_do_not_gate_what_is_still_captured(managed: cuda.Managed) -> None:
    """While a window is in force, so that a mark would be recorded with the work."""
    managed.greedy()
    program = managed.start("fates")
    program.heard()
    program.do("launches 50 3", "sync")
    before = managed.entry(program)["passed"]
    assert program.do("capture 0", "end_wrongly", "launches 50 9") == [
        "capturing 0",
        "ended 0",
        "launched 0",
    ]
    assert managed.entry(program)["passed"] == before
    assert program.do("end") == ["captured 1"]


def test_work_beside_a_capture_is_gated_and_does_not_spoil_it(managed: cuda.Managed) -> None:
    """Its first mark needs the driver to do what threads may not do while another captures."""
    program = managed.start("fates")
    program.heard()
    managed.greedy()
    assert program.do("capture 0", "launch 50", "beside 500", "beside 500", "beside 500") == [
        "capturing 0",
        "launched 0",
        *["beside 0"] * 3,
    ]
    assert program.do("end", "graph", "sync") == ["captured 1", "graph 0", "synced 0"]
