"""The software CUDA driver keeps a CUDA driver's promises, and breaks them only when told to."""

from __future__ import annotations

import fcntl
import itertools
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.softcuda import (
    CHECKS,
    CHECKSUM,
    JOBS,
    KERNELS,
    STREAMS,
    WARM_UP,
    expected_checksum,
)
from tests.integration import cuda, gl

WAYS: list[tuple[str, dict[str, object]]] = [
    ("checks-linked", {}),
    ("checks", {"VIA": "dlsym"}),
    ("checks", {"VIA": "proc"}),
    ("checks", {"VIA": "proc2"}),
]
LAUNCHES = ("kernel", "ex", "cooperative", "extra", "graph")


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test starts and that must not outlive it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def test_every_check_is_run(gpu: cuda.Gpu) -> None:
    assert set(gpu.run("checks").stdout.split()) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_promises_hold_however_the_driver_is_reached(gpu: cuda.Gpu, check: str) -> None:
    for (program, way), per_thread in itertools.product(WAYS, (0, 1)):
        result = gpu.run(program, check, env={**way, **CHECKS[check], "PER_THREAD": per_thread})
        assert result.returncode == 0, (program, way, per_thread, result.stdout, result.stderr)


def test_a_broken_promise_is_seen(gpu: cuda.Gpu) -> None:
    result = gpu.run("checks", "order", env={"SOFTCUDA_NO_MEMOPS": 1})
    assert result.returncode != 0
    assert gpu.run("checks", "no_values").returncode == 1


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("program", ["cudaapp", "cudaapp-linked"])
def test_results_are_the_same_on_every_stream(gpu: cuda.Gpu, program: str, stream: str) -> None:
    for per_thread in (0, 1):
        way = {"STREAM": stream, "PER_THREAD": per_thread}
        answer = gpu.app("fix", 50, KERNELS, 0, JOBS, program=program, env=way)
        assert (answer["jobs"], answer["checksum"]) == (JOBS, CHECKSUM)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_results_are_the_same_for_every_kind_of_launch(gpu: cuda.Gpu, launch: str) -> None:
    assert gpu.app("fix", 50, KERNELS, 0, JOBS, env={"LAUNCH": launch})["checksum"] == CHECKSUM


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_delays_change_no_result(gpu: cuda.Gpu, seed: int) -> None:
    delays = {"SOFTCUDA_JITTER_US": 2000, "SOFTCUDA_SEED": seed, "SOFTCUDA_LATE_US": 500}
    for check in ("order", "legacy", "threads", "graphs", "callbacks", "values"):
        result = gpu.run("checks", check, env=delays)
        assert result.returncode == 0, (check, result.stdout, result.stderr)


@pytest.mark.parametrize(
    ("fault", "at_least_us"), [("SOFTCUDA_LATE_US", 20_000), ("SOFTCUDA_LAUNCH_US", 120_000)]
)
def test_slow_launches_and_late_completions_take_time_and_change_nothing(
    gpu: cuda.Gpu, fault: str, at_least_us: int
) -> None:
    answer = gpu.app("fix", 50, KERNELS, 0, JOBS, env={fault: 20_000})
    assert answer["checksum"] == CHECKSUM
    assert answer["p50_us"] >= at_least_us


def test_an_entry_point_can_be_missing(gpu: cuda.Gpu) -> None:
    hidden = {"SOFTCUDA_HIDE": "cuNothing,cuLaunchKernelEx", "VIA": "proc2"}
    result = gpu.run("cudaapp", "fix", 50, 1, 0, 1, env=hidden)
    assert result.returncode == 4
    assert result.stderr == "cuLaunchKernelEx: 0, status 1\nno cuLaunchKernelEx\n"


def test_a_driver_newer_than_known_has_entry_points_nobody_knows(gpu: cuda.Gpu) -> None:
    newer = {"SOFTCUDA_VERSION": 14000}
    for way in ({"VIA": "proc"}, {"VIA": "proc2"}):
        assert gpu.run("checks", "lookup", env={**newer, **way}).returncode == 0
        unknown = {**newer, **way, "LAUNCH": "future"}
        assert gpu.app("fix", 50, KERNELS, 0, JOBS, env=unknown)["checksum"] == CHECKSUM


def test_devices_are_those_that_the_environment_shows(gpu: cuda.Gpu, tmp_path: Path) -> None:
    """By their numbers or identifiers; an identifier stays whatever its device is called."""
    two = {"SOFTCUDA_DEVICES": 2, "SOFTCUDA_LOG": tmp_path / "log"}
    second = "GPU-736f6674-7761-7265-2d63-7564612d3031"
    for shown, device in (("1", 0), (second, 0), ("1,0", 0), ("0,1", 1)):
        env = {**two, "CUDA_VISIBLE_DEVICES": shown, "DEVICE": device}
        assert gpu.app("fix", 50, 1, 0, 1, env=env)["jobs"] == 1
    assert gpu.run(
        "cudaapp", "fix", 50, 1, 0, 1, env={**two, "CUDA_VISIBLE_DEVICES": ""}
    ).returncode
    lines = (tmp_path / "log").read_text().splitlines()
    assert {line.split()[2].partition("%")[2] for line in lines} == {"1"}


def test_memory_ends_where_it_is_told(gpu: cuda.Gpu) -> None:
    result = gpu.run("cudaapp", "fix", 50, 1, 0, 1, env={"SOFTCUDA_MEMORY": 255})
    assert result.returncode == 3
    assert "cu.MemAlloc(&memory, WORDS * 4): error 2" in result.stderr


def test_the_log_has_every_operation_in_order(gpu: cuda.Gpu, tmp_path: Path) -> None:
    log = tmp_path / "log"
    gpu.app("fix", 50, KERNELS, 0, JOBS, env={"SOFTCUDA_LOG": log})
    lines = [line.split() for line in log.read_text().splitlines()]
    kinds = [kind for _, _, kind, _, _ in lines]
    assert kinds == ["set"] + ["spin_us"] * (WARM_UP + JOBS) * KERNELS + ["copy"]
    times = [int(t) for line in lines for t in line[3:]]
    assert times == sorted(times)


def test_a_gpu_that_cannot_be_opened_is_not_left_out_silently(gpu: cuda.Gpu) -> None:
    result = gpu.run("cudaapp", "cal", env={"SOFTCUDA_GPU": "/nowhere/gpu"})
    assert result.returncode == 2
    assert result.stderr == "softcuda: SOFTCUDA_GPU=/nowhere/gpu cannot be opened\n"


def test_a_number_that_is_none_is_refused(gpu: cuda.Gpu) -> None:
    result = gpu.run("cudaapp", "cal", env={"SOFTCUDA_SLICE_US": "2ms"})
    assert result.returncode == 2
    assert result.stderr == "softcuda: SOFTCUDA_SLICE_US=2ms is no number\n"


def is_held(file: Path) -> bool:
    """Somebody runs on the GPU: the lock on its first byte is taken."""
    if not file.exists():
        return False
    with file.open("r+b") as gpu:
        try:
            fcntl.lockf(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except BlockingIOError:
            return True
        return False


@pytest.mark.live
def test_processes_share_the_gpu_and_no_more_than_all_of_it(
    gpu: cuda.Gpu, started: list[subprocess.Popen[str]]
) -> None:
    together = {"START_AT": time.time() + 0.5}
    started.extend(gpu.start("cudaapp", "lp", 500, 10, 0, 2, env=together) for _ in range(2))
    shares = [cuda.answer(cuda.finish(process))["busy"] for process in started]
    assert sum(shares) <= 1.02  # the two periods of time do not end at the same moment
    assert max(shares) < 3 * min(shares)


@pytest.mark.live
@pytest.mark.parametrize("switch_us", [0, 2000])
def test_processes_are_never_on_the_gpu_together_and_a_change_takes_its_time(
    gpu: cuda.Gpu, started: list[subprocess.Popen[str]], tmp_path: Path, switch_us: int
) -> None:
    log = tmp_path / "log"
    env = {"SOFTCUDA_SLICE_US": 0, "SOFTCUDA_SWITCH_US": switch_us, "SOFTCUDA_LOG": log}
    env |= {"START_AT": time.time() + 0.5}
    started.extend(gpu.start("cudaapp", "fix", 200, KERNELS, 0, 20, env=env) for _ in range(3))
    for process in started:
        assert cuda.answer(cuda.finish(process))["checksum"] == expected_checksum(23, KERNELS)
    lines = sorted((line.split() for line in log.read_text().splitlines()), key=lambda x: int(x[3]))
    owners = [pid for pid, _ in itertools.groupby(line[0] for line in lines)]
    assert len(owners) > 3, "they ran one after the other: nothing was shown"
    for before, after in itertools.pairwise(lines):
        lost_ns = 0 if before[0] == after[0] else switch_us * 1000
        assert int(before[4]) + lost_ns <= int(after[3]), (before, after)


@pytest.mark.live
def test_a_long_kernel_is_sliced_unless_it_may_run_to_completion(
    gpu: cuda.Gpu, started: list[subprocess.Popen[str]]
) -> None:
    waits = {}
    for slice_us in (2000, 0):
        setting = {"SOFTCUDA_SLICE_US": slice_us}
        long = gpu.start("cudaapp", "lp", 100_000, 2, 0, 60, env=setting)
        started.append(long)
        gl.wait_until(lambda: is_held(gpu.file), "a kernel on the GPU")
        # Apart from each other: the long one is kept from its CPU at times, and jobs go by then.
        short = gpu.app("fix", 500, 1, 20, 15, env=setting)
        assert short["checksum"] == expected_checksum(WARM_UP + 15, 1)
        waits[slice_us] = short["p90_us"]
        long.kill()
        long.wait()
    assert waits[2000] < waits[0] / 2, waits


@pytest.mark.live
@pytest.mark.parametrize("victim", ["who runs", "who waits"])
def test_the_gpu_outlives_the_killed(
    gpu: cuda.Gpu, started: list[subprocess.Popen[str]], victim: str
) -> None:
    forever = ("cudaapp", "lp", 3_600_000_000, 1, 0, 1)
    to_completion = {"SOFTCUDA_SLICE_US": 0}
    holder = gpu.start(*forever, env=to_completion)
    started.append(holder)
    gl.wait_until(lambda: is_held(gpu.file), "a kernel on the GPU")
    waiting = [gpu.start("cudaapp", "fix", 50, KERNELS, 0, JOBS) for _ in range(3)]
    started.extend(waiting)
    gl.wait_until(lambda: all(waits_for_a_lock(p.pid) for p in waiting), "three who wait")
    if victim == "who waits":
        killed = waiting.pop(0)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert all(process.poll() is None for process in waiting)
    holder.send_signal(signal.SIGKILL)  # not waited for: a zombie must not hold it either
    sums = [cuda.answer(cuda.finish(process))["checksum"] for process in waiting]
    assert sums == [CHECKSUM] * len(waiting)


def waits_for_a_lock(pid: int) -> bool:
    """The kernel lists who waits for a file's lock with an arrow."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {pid} " in line for line in lines)
