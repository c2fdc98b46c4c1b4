"""`headway run --gpu auto --units`: an unmodified program's kernels and copies own units."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway import gpu as tokens
from headway.live.api import place
from headway.live.identity import launcher
from tests.bench.softcuda import CHECKS, expected_checksum
from tests.integration import cuda
from tests.integration.daemon_client import DaemonProcess, running_daemon, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

LOCKS = '[machine]\ncpus = 2\ngpus = 1\n[gpusync]\nrho = 2\ncopies = { chunk = "256KiB" }\n'
KERNELS, JOBS, WARM_UP = 6, 12, 3


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonProcess]:
    file = tmp_path / "locks.toml"
    file.write_text(LOCKS)
    with running_daemon(tmp_path / "run", "--locks", str(file)) as daemon:
        monkeypatch.setenv("HEADWAY_DIR", str(daemon.folder))
        yield daemon


@pytest.fixture
def placed(daemon: DaemonProcess) -> dict[str, str]:
    """What `headway run` gives a program whose place this process has."""
    found = place.wait("placed", {}, units=True, waits=lambda: None)
    given = launcher.environment(daemon.folder, "0" * 32, software_gpu=None)
    found |= {k: v for k, v in given.items() if k.startswith(("HEADWAY_", "LD_PRELOAD"))}
    return {k: v for k, v in found.items() if k != "CUDA_VISIBLE_DEVICES"}


def start(
    gpu: cuda.Gpu, daemon: DaemonProcess, name: str, *arguments: object, env: cuda.Env
) -> subprocess.Popen[str]:
    """A program by `headway run`."""
    prefix = [cuda.HEADWAY, "run", "--no-daemon", "--gpu", "auto", "--units", "--name", name, "--"]
    return subprocess.Popen(
        [*prefix, *gpu.command("cudaapp", *arguments)],
        env=gpu.environment(env) | {"HEADWAY_DIR": str(daemon.folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def owners(log: Path) -> list[str]:
    """Whose operations ran, one after the other."""
    lines = sorted((line.split() for line in log.read_text().splitlines()), key=lambda x: int(x[3]))
    return [line[0] for line in lines]


def test_two_programs_take_turns_kernel_by_kernel_and_compute_the_same(
    gpu: cuda.Gpu, daemon: DaemonProcess, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    env = {"SOFTCUDA_LOG": log, "START_AT": time.time() + 2}
    programs = [
        start(gpu, daemon, name, "fix", 300, KERNELS, 0, JOBS, env=env) for name in ("a", "b")
    ]
    for program in programs:
        said = cuda.answer(cuda.finish(program))
        assert said["checksum"] == expected_checksum(WARM_UP + JOBS, KERNELS)
    runs = [len(list(group)) for _, group in itertools.groupby(owners(log))]
    together = runs[len(runs) // 4 : -len(runs) // 4]
    assert len(together) > JOBS * KERNELS / 4, "they ran one after the other: nothing was shown"
    assert sorted(together)[int(0.9 * len(together))] == 1
    assert daemon.ask(do="lock", act="look")["clusters"][0]["units"] == {}


def test_a_program_sees_what_it_sees_without_units(gpu: cuda.Gpu, placed: dict[str, str]) -> None:
    """But for work that is not done when its launch returns. Some of the checks have streams that
    wait for what comes later: their launches return all the same."""
    for check in set(CHECKS) - {"devices"}:
        result = gpu.run("checks-linked", check, env={**placed, **CHECKS[check]})
        assert result.returncode == 0, (check, result.stdout, result.stderr)


def test_large_copies_own_their_unit_chunk_by_chunk(
    gpu: cuda.Gpu, placed: dict[str, str], tmp_path: Path
) -> None:
    copies = {}
    for name, env in (("alone", {}), ("placed", placed)):
        log = tmp_path / name
        assert gpu.run("checks", "large", env={**env, "SOFTCUDA_LOG": log}).returncode == 0
        copies[name] = log.read_text().count(" copy ")
    assert copies["placed"] > 10 * copies["alone"] > 0


def test_who_dies_with_a_unit_leaves_it_to_the_others(gpu: cuda.Gpu, daemon: DaemonProcess) -> None:
    first = start(gpu, daemon, "first", "lp", 20_000, 4, 0, 60, env={})
    try:
        with tokens.token("second") as device:

            def is_owned() -> bool:
                return bool(daemon.ask(do="lock", act="look")["clusters"][0]["units"])

            wait_until(is_owned, "the first one owns the execution engine")
            first.kill()
            with device.unit("compute", timeout=20):
                pass
    finally:
        first.kill()
        first.communicate()


def test_a_daemon_that_dies_lets_the_program_go_on_and_one_line_says_so(
    gpu: cuda.Gpu, daemon: DaemonProcess
) -> None:
    program = start(gpu, daemon, "a", "fix", 2000, KERNELS, 0, 60, env={})
    wait_until(lambda: any(daemon.ask(do="lock", act="look")["clusters"][0]["units"]), "it runs")
    daemon.process.kill()
    daemon.process.wait()
    result = cuda.finish(program)
    assert cuda.answer(result)["checksum"] == expected_checksum(WARM_UP + 60, KERNELS)
    assert result.stderr.count("pass no units any more: the daemon") == 1


def test_a_unit_that_does_not_come_keeps_nobody_for_ever(
    gpu: cuda.Gpu, daemon: DaemonProcess
) -> None:
    """Its owner was stopped, say: the program goes on after ten seconds."""
    with tokens.token("owner") as device, device.unit("compute"):
        program = start(gpu, daemon, "a", "fix", 100, KERNELS, 0, 2, env={})
        result = cuda.finish(program)
    assert cuda.answer(result)["checksum"] == expected_checksum(WARM_UP + 2, KERNELS)
    assert "a unit did not come within 10 s" in result.stderr


def test_each_slice_of_a_gpu_has_a_stream_of_its_own(gpu: cuda.Gpu) -> None:
    asks = (
        "from headway.live.api.gpu_slices import slice_stream as s; "
        "print(len({s(0, n, 4) for n in range(4)} - {0}), s(0, 1, 4) == s(0, 1, 4)); s(0, 0, 99)"
    )

    def run(**env: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", asks], env=gpu.environment(env), capture_output=True, text=True
        )

    result = run()
    assert result.stdout == "4 True\n"
    assert "GPU 0: found 99 slices, expected at most 16 of 8 SMs" in result.stderr
    older = run(SOFTCUDA_NO_GREEN=1)
    assert "GPU 0 cannot be sliced: cuDeviceGetDevResource: error 801" in older.stderr


def test_a_second_process_of_a_program_goes_without_units(
    gpu: cuda.Gpu, placed: dict[str, str]
) -> None:
    first = gpu.start("cudaapp", "lp", 1000, 4, 0, 60, env=placed)
    try:

        def second() -> bool:
            result = gpu.run("cudaapp", "fix", 100, KERNELS, 0, 1, env=placed)
            assert cuda.answer(result)["checksum"] == expected_checksum(WARM_UP + 1, KERNELS)
            return "serves another process" in result.stderr

        wait_until(second, "the second one is told")
    finally:
        first.kill()
        first.communicate()
