"""Real CUDA programs on a real NVIDIA GPU: small versions of benchmarks/gpu, with wide margins.

    python -m pytest -m gpu

They run nowhere else: what is asserted is what hardware does. Exact numbers are the benchmark's.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.gpu import (
    frameworks,
    gates,
    graphics,
    kills,
    models,
    mps,
    opencl,
    overhead,
    pairs,
    shares,
    slices,
    ticks,
)
from benchmarks.gpu import stage as stages
from benchmarks.gpu.building import OPENCL
from benchmarks.gpu.stage import Failed, Stage
from tests.integration.command import headway

pytestmark = pytest.mark.gpu

SECONDS = 1.5


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    if shutil.which("nvidia-smi") is None or shutil.which("nvcc") is None:
        pytest.skip("these tests need an NVIDIA GPU and nvcc: no nvidia-smi or nvcc here")
    with stages.opened() as opened:
        yield opened


@pytest.fixture
def torch_stage(stage: Stage) -> Stage:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed here")
    return stage


# -- protection ----------------------------------------------------------------------------------


@pytest.mark.parametrize("work", ["W2", "W4"])
def test_the_important_program_waits_less_than_time_sliced(stage: Stage, work: str) -> None:
    with stages.TIME_SLICED.on(stage) as at:
        sliced = pairs.pair(at, work, stages.TIME_SLICED, SECONDS)
    with stages.OVERLAP.on(stage) as at:
        ours = pairs.pair(at, work, stages.OVERLAP, SECONDS)
    print(f"\n{work}: {sliced.p90_us:.0f} us time-sliced, {ours.p90_us:.0f} us under Headway")
    assert ours.p90_us < sliced.p90_us
    assert ours.share > sliced.share / 2, "the other one goes on nevertheless"


# -- overhead ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1], ids=["W4", "launches"])
def test_a_program_alone_is_not_slowed_down_much(stage: Stage, number: int) -> None:
    case = overhead.cases(quick=True)[number]
    cost = overhead.compare(stage, case)
    print(f"\n{case.title}: {cost.found.rounds}, goal {case.goal}")
    assert case.goal is not None
    assert cost.found.median < 5 * case.goal


def test_pytorch_computes_the_same_under_headway(torch_stage: Stage) -> None:
    commands = {"eager": models.inference(50, graph=False, period_ms=0)}
    commands["graph"] = models.inference(50, graph=True, period_ms=0)
    commands["training"] = models.training(2.0)
    with stages.daemon(torch_stage) as managed:
        for title, command in commands.items():
            (plain,) = torch_stage.together(command, seconds=60, start_s=0)
            (ours,) = managed.together([*stages.run_as("torch"), *command], seconds=60, start_s=0)
            assert ours["hash"] == plain["hash"] != "too few", title


def test_a_gate_takes_less_of_the_gpu_than_the_kernel_behind_it(stage: Stage) -> None:
    found = gates.measure(stage, quick=True).data
    print(f"\n{found['gpu_us']}, {found['opening_us']}")
    assert 0 < found["gpu_us"][gates.ALL][1]["median"] < found["kernel_us"]


# -- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", list(shares.KERNELS))
def test_reserves_divide_the_gpu(stage: Stage, kernels: str) -> None:
    with stages.daemon(stage) as at:
        small, large = shares.split(at, (30, 70), kernels, 2 * SECONDS)
    print(f"\n{kernels}: {small:.1f} % and {large:.1f} %")
    assert 20 < 100 * small / (small + large) < 40


# -- decisions and deaths ------------------------------------------------------------------------


def test_events_beat_ticks_where_jobs_are_short(stage: Stage) -> None:
    programs, job = ticks.CASES["two programs, jobs of 0.1 ms"]
    with stages.daemon(stage) as at:
        events = ticks.throughput(at, programs, job, SECONDS)
    with stages.daemon(stage, "--tick", "1ms") as at:
        ticking = ticks.throughput(at, programs, job, SECONDS)
    assert events > ticking


@pytest.mark.parametrize("title", list(kills.DEATHS))
def test_nobody_hangs_and_results_stay_right(stage: Stage, title: str) -> None:
    fate = kills.DEATHS[title]
    if fate.mps and shutil.which(mps.CONTROL) is None:
        pytest.skip(f"{mps.CONTROL} is not here")
    found = kills.happen(stage, fate)
    print(f"\n{title}: {found}")
    assert found["wrong"] == 0
    assert found["recovery_s"] < 5


def test_the_status_shows_a_cuda_program(stage: Stage) -> None:
    with stages.daemon(stage) as at:
        command = [*stages.run_as("shown", "--priority", "7"), *stage.app("lp", 20, 500, 0, 3)]
        with at.start(command) as process:
            channels: list[dict[str, Any]] = []
            while not channels and process.poll() is None:
                channels = at.status()["channels"]
            out, err = process.communicate(timeout=60)
    assert [c["effective"] for c in channels] == [7], err
    assert json.loads(out)["jobs"] > 0


def test_a_program_without_a_daemon_runs_all_the_same(stage: Stage) -> None:
    with stages.daemon(stage) as at:
        pass
    command = stages.headway("run", "--no-daemon", "--", *stage.app("lp", 20, 50, 0, 0.5))
    done = subprocess.run(
        command, env=at.environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["jobs"] > 0
    assert "unmanaged" in done.stderr


# -- frameworks and other APIs -------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(stage: Stage) -> dict[str, frameworks.Found]:
    return frameworks.play(stage, frameworks.PROGRAMS, 50)


@pytest.mark.parametrize("title", list(frameworks.PROGRAMS))
def test_a_frameworks_program_computes_the_same_and_passes_the_gate(
    played: dict[str, frameworks.Found], title: str
) -> None:
    found = played[title]
    if found.problem.startswith("not installed"):
        pytest.skip(f"{title} is {found.problem}")
    if found.problem.startswith("failed (as it is)"):
        pytest.skip(f"{title} does not work here without Headway either: {found.problem}")
    print(f"\n{title}: {found}")
    assert found.problem == ""
    assert len({row["hash"] for row in found.rows.values()}) == 1
    assert found.passed > 0
    ours, sliced = found.rows[frameworks.OURS], found.rows[frameworks.SLICED]
    assert ours["p50_us"] < 2 * sliced["p50_us"]


@pytest.fixture(scope="module")
def gl_stage(stage: Stage) -> Stage:
    try:
        return graphics.calibrated(stage)[0]
    except Failed as error:
        pytest.skip(f"OpenGL ES cannot be had here: {error}")


def test_frames_beside_cuda_keep_their_time_and_their_pictures(gl_stage: Stage) -> None:
    sliced = graphics.frames(gl_stage, stages.TIME_SLICED, SECONDS)
    ours = graphics.frames(gl_stage, stages.OVERLAP, SECONDS)
    print(f"\n{sliced} time-sliced, {ours} under Headway")
    assert ours["hash"] == sliced["hash"] != "too few"
    assert ours["passed"] > ours["frames"] / 2, "as it was last seen"
    assert ours["p90_us"] < 1.5 * sliced["p90_us"]


def test_reserves_divide_the_gpu_between_two_apis(gl_stage: Stage) -> None:
    found = graphics.reserves(gl_stage, 2 * SECONDS)
    print(f"\n{found}")
    for shares_of in found.values():
        assert 20 < 100 * shares_of["gl"] / sum(shares_of.values()) < 40


@pytest.fixture(scope="module")
def cl_stage(stage: Stage) -> Stage:
    if OPENCL in stage.missing:
        pytest.skip(f"the interposer was built without OpenCL: {stage.missing[OPENCL]}")
    try:
        return opencl.calibrated(stage)[0]
    except Failed as error:
        if "however often they loop" in str(error):
            raise
        pytest.skip(f"OpenCL cannot be had here: {error}")


@pytest.mark.parametrize("route", list(opencl.ROUTES))
def test_opencl_computes_the_same_by_every_route(cl_stage: Stage, route: str) -> None:
    plain, ours = opencl.alone(cl_stage, SECONDS), opencl.alone(cl_stage, SECONDS, route)
    us, kernels = opencl.JOB
    assert plain["p50_us"] > 0.8 * us * kernels, "kernels do what is measured"
    assert ours["checksum"] == plain["checksum"]
    assert ours["passed"] > 0


@pytest.mark.parametrize("rival", list(opencl.RIVALS))
def test_an_important_opencl_program_waits_less(cl_stage: Stage, rival: str) -> None:
    sliced = opencl.beside(cl_stage, stages.TIME_SLICED, rival, SECONDS)
    ours = opencl.beside(cl_stage, stages.OVERLAP, rival, SECONDS)
    print(f"\n{sliced} time-sliced, {ours} under Headway")
    assert ours["checksum"] == sliced["checksum"]
    assert ours["p90_us"] < 1.5 * sliced["p90_us"]


def test_programs_are_clients_of_the_daemons_mps_which_ends_with_it(stage: Stage) -> None:
    if shutil.which(mps.CONTROL) is None:
        pytest.skip(f"{mps.CONTROL} is not here")
    found = mps.pair(stage, SECONDS)
    print(f"\n{found}")
    assert found["clients"] == 2
    assert found["gone_after_s"] is not None


# -- prediction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", ["fig9", "fig10", "fig12"])
def test_figures_of_libetp_are_measured_and_ours_is_nearer(gl_stage: Stage, figure: str) -> None:
    words = ("papers", "run", f"libetp/{figure}", "--live", "--seconds", str(2 * SECONDS), "--json")
    done = headway(*words)
    assert done.returncode == 0, done.stderr
    rows = {row[1]: row for row in json.loads(done.stdout)["rows"]}
    errors = {model: float(row[4].removesuffix(" %")) for model, row in rows.items()}
    assert errors["adaptive"] < max(errors["libetp"], 9.0)


# -- slices --------------------------------------------------------------------------------------


def test_tasks_stay_on_their_slices_and_an_overrun_hurts_nobody_else(torch_stage: Stage) -> None:
    outcome = slices.measure(torch_stage, quick=True)
    print(f"\n{outcome.markdown()}")
    at_home, told, unhurt = outcome.goals
    assert at_home.found < 1
    assert told.found < 10 * told.limit
    assert unhurt.found < 2 * unhurt.limit
