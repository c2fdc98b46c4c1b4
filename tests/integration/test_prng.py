"""CudaMon's task in OpenCL, on PoCL: right results, its words on stderr, and a real partition."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.daemon_client import ROOT

pytestmark = pytest.mark.timeout(120)
SMALL = ("--seeds", "256", "--iterations", "20000", "--period-ms", "1")


@pytest.fixture(scope="module")
def prng(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = tmp_path_factory.mktemp("prng") / "prng_cl"
    source = ROOT / "examples" / "prng" / "prng_cl.c"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(source)]
    subprocess.run([*command, "-lOpenCL"], check=True)
    return str(program)


def run(prng: str, *options: str) -> tuple[list[float], list[str]]:
    """The time of each job, and what it said of its deadline; it checks its results itself."""
    done = subprocess.run([prng, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()], done.stderr.split()


def test_the_jump_is_so_many_steps_of_the_generator(tmp_path: Path) -> None:
    source = tmp_path / "steps.c"
    source.write_text(
        '#include "lcg.h"\n#include <stdio.h>\nint main(void) {\n'
        "    for (long n = 0; n < 3000; n += 7)\n"
        "        if (lcg_jump(lcg_seed(n), n) != lcg_sequential(lcg_seed(n), n)) return 1;\n"
        '    printf("%u\\n", lcg_jump(42, 1000));\n    return 0;\n}\n'
    )
    folder = ROOT / "examples" / "prng"
    subprocess.run(["gcc", "-I", folder, "-o", tmp_path / "steps", source], check=True)
    said = subprocess.run([tmp_path / "steps"], capture_output=True, text=True, check=True)
    word = 42
    for _ in range(1000):
        word = (word * 1664525 + 1013904223) % 2**32
    assert int(said.stdout) == word


def test_every_job_says_whether_it_was_in_time(prng: str) -> None:
    times, words = run(prng, *SMALL, "--jobs", "4", "--deadline-ms", "60000")
    assert (len(times), words) == (4, ["pass"] * 4)
    times, words = run(prng, *SMALL, "--jobs", "4", "--deadline-ms", "0.0001")
    assert (len(times), words) == (4, ["missed"] * 4)


def test_sigint_ends_it_between_two_kernels(prng: str) -> None:
    process = subprocess.Popen(
        [prng, *SMALL], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert float(process.stdout.readline()) > 0
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU cannot be partitioned")
def test_a_sub_device_has_a_part_of_the_device(prng: str) -> None:
    """One of the CPUs that PoCL calls units: it cannot use more CPU time than passes."""
    work = ("--seeds", "512", "--iterations", "60000", "--period-ms", "0", "--jobs", "10")
    process = subprocess.Popen(
        [prng, *work, "--units", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()  # it is compiled, with all CPUs, and has begun
    began, before = time.monotonic(), cpu_s(process.pid)
    for _ in range(7):
        process.stdout.readline()
    used, passed = cpu_s(process.pid) - before, time.monotonic() - began
    process.communicate(timeout=30)
    assert used < 1.3 * passed + 0.03  # clock ticks of 10 ms


def cpu_s(pid: int) -> float:
    """CPU time of all threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
