"""Ordinary CUDA programs in the default setting, on the software driver: jobs that wait for the GPU
again and again, jobs that come at any time, jobs that are bound by their CPU. Each program has a
software GPU of its own, so what its gate lets through begins at once, and the log tells when."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration import cuda
from tests.integration.daemon_client import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

LOW, HIGH = ("--priority", "1"), ("--priority", "9")
UNDISTURBED_NS = 700_000
"""A busy machine makes pauses longer, and those are given away."""
KNOWN = 10
"""Jobs after which a program is known."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").touch()
    return tmp_path / "log"


def kernels(log: Path, program: cuda.Program) -> list[tuple[int, int]]:
    """From when until when its kernels were on the GPU."""
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 4]
    return [
        (int(start), int(end))
        for pid, _, kind, start, end in lines
        if (int(pid), kind) == (program.pid, "spin_us")
    ]


def beside(
    managed: cuda.Managed, log: Path, *job: object, more: cuda.Env, mps: Path | None = None
) -> tuple[list[tuple[int, int]], list[int], cuda.Program]:
    """An important program's kernels beside a greedy one, and when the greedy one's began."""
    env: dict[str, object] = {"SOFTCUDA_LOG": log, "SOFTCUDA_GPU": "", "LINGER": 1}
    env["CUDA_MPS_PIPE_DIRECTORY"] = mps or log.parent / "none"
    low = managed.start("cudaapp", "lp", 500, 10, 0, 60, options=LOW, env=env)
    wait_until(lambda: managed.passed(low) > 0, "the greedy program has the GPU")
    high = managed.start("cudaapp", *job, options=HIGH, env=env | dict(more))
    answer = json.loads(high.heard(60))
    assert answer["jobs"] > 0
    return kernels(log, high), sorted(start for start, _ in kernels(log, low)), high


def jobs_of(found: list[tuple[int, int]], each: int) -> list[tuple[int, int]]:
    """From when until when each job had kernels on the GPU, but those of the first ones."""
    jobs = [found[i : i + each] for i in range(0, len(found), each)][KNOWN:]
    return [(job[0][0], job[-1][1]) for job in jobs if len(job) == each]


def within(times: list[int], spans: list[tuple[int, int]], after_ns: int) -> list[int]:
    """How many of these times are in each span, but for its begin."""
    return [sum(since + after_ns < at < until for at in times) for since, until in spans]


def test_a_job_that_waits_for_the_gpu_again_and_again_keeps_its_turn(
    managed: cuda.Managed, log: Path
) -> None:
    """Without it the greedy program would have a kernel or two in each of its pauses."""
    each = 12
    found, others, _ = beside(
        managed, log, "hp", 300, each, 60, 4, more={"SYNC": 1, "THINK_US": 300}
    )
    pauses = [
        (done, begun)
        for job in range(KNOWN * each, len(found) - each, each)
        for (_, done), (begun, _) in pairwise(found[job : job + each])
        if begun - done < UNDISTURBED_NS
    ]
    counts = within(others, pauses, 100_000)
    assert len(counts) > 100
    assert sum(count > 0 for count in counts) <= len(counts) // 10, counts
    assert len(others) > 200, "and between jobs the others go on"


def test_jobs_that_come_at_any_time_have_the_gpu_for_themselves(
    managed: cuda.Managed, log: Path
) -> None:
    """Also where one begins as the one before ends: then the daemon has yet to hear of that."""
    found, others, _ = beside(managed, log, "hp", 5000, 1, 8, 3, more={"RANDOM": 1})
    counts = within(others, jobs_of(found, 1), 2_000_000)
    assert len(counts) > 100
    assert sum(count > 0 for count in counts) <= len(counts) // 20, counts


@pytest.mark.parametrize("side_by_side", [True, False])
def test_others_stay_beside_a_job_that_is_bound_by_its_cpu_under_mps(
    managed: cuda.Managed, log: Path, tmp_path: Path, side_by_side: bool
) -> None:
    """In time slices it has the GPU for itself."""
    pipes = tmp_path / "mps"
    if side_by_side:
        pipes.mkdir()
        (pipes / "control").touch()
    each = 20
    found, others, high = beside(
        managed, log, "hp", 50, each, 60, 4, more={"THINK_US": 1000}, mps=pipes
    )
    counts = within(others, jobs_of(found, each), 1_500_000)
    middle = sorted(counts)[len(counts) // 2]
    assert (middle > 15) == side_by_side, counts
    assert middle <= 2 or side_by_side, counts
    entry = managed.entry(high)
    assert (entry["corun"] > 0) == side_by_side
    # In time slices there may have been no job yet during which nobody else was let onto the GPU.
    known = side_by_side or entry["gpu_in_jobs"] is not None
    assert not known or entry["gpu_in_jobs"] < 0.5


@pytest.mark.parametrize("side_by_side", [True, False])
def test_equals_are_on_the_gpu_together_under_mps_and_take_turns_else(
    managed: cuda.Managed, log: Path, tmp_path: Path, side_by_side: bool
) -> None:
    pipes = tmp_path / "mps"
    if side_by_side:
        pipes.mkdir()
        (pipes / "control").touch()
    env = {"SOFTCUDA_LOG": log, "SOFTCUDA_GPU": "", "CUDA_MPS_PIPE_DIRECTORY": pipes}
    equals = [managed.start("cudaapp", "lp", 500, 10, 0, 60, options=LOW, env=env) for _ in "ab"]
    wait_until(lambda: min(map(managed.passed, equals)) > 400, "both have had the GPU for a while")
    one, other = (kernels(log, program) for program in equals)
    times = sorted([(at, 0) for span in one for at in span] + [(at, 1) for at, _ in other])
    inside, began = False, []
    for _, whose in times:
        if whose:
            began.append(inside)
        else:
            inside = not inside
    late = began[len(began) // 4 :]
    assert (sum(late) > len(late) / 2) == side_by_side, f"{sum(late)} of {len(late)}"
