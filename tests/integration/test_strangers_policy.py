"""A stranger's day: a policy written from its tutorial alone, simulated, loaded into a daemon, and
seen in `headway top`; the programs' shares are what their weights say."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration import cuda
from tests.integration.daemon_client import wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "write-a-policy.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
MEASURED_S = 3
WINDOWS = 4
"""A crowded machine keeps a program from its CPU, and so from its share, for seconds: then it is
measured again. In turns of equal length it would be 50 % each time."""


def block(kind: str) -> str:
    """The first block of this kind on the page."""
    return next(str(body) for found, body in BLOCKS if found == kind)


def headway(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [cuda.HEADWAY, *words],
        cwd=folder,
        env={**os.environ, "HEADWAY_DIR": str(folder / "run")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def kernel_ns(log: Path, program: cuda.Program, from_ns: int, to_ns: int) -> int:
    """What its kernels had of the GPU in between."""
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 4]
    return sum(
        min(int(end), to_ns) - max(int(start), from_ns)
        for pid, _, kind, start, end in lines
        if int(pid) == program.pid and int(end) > from_ns and int(start) < to_ns
    )


def test_a_strangers_policy_is_simulated_loaded_and_seen(gpu: cuda.Gpu, tmp_path: Path) -> None:
    (tmp_path / "wfq.py").write_text(block("python"))
    (tmp_path / "wfq.toml").write_text(block("toml"))
    for line in re.findall(r"^\$ headway (sim|check)(.*)$", block("console"), re.MULTILINE):
        done = headway(tmp_path, line[0], *line[1].split())
        assert done.returncode == 0, done.stderr
        if line[0] == "sim":
            assert re.search(r"heavy +wfq:weight=3 .* 75\.\d", done.stdout), done.stdout
    log = tmp_path / "log"
    log.touch()
    load = ("--load", str(tmp_path / "wfq.py"))
    with cuda.managed(gpu, tmp_path / "run", *load) as managed:
        env = {"SOFTCUDA_LOG": log}
        heavy, light = (
            managed.start("cudaapp", "lp", 500, 10, 0, 60, options=("--policy", policy), env=env)
            for policy in ("wfq:weight=3", "wfq")
        )
        programs = (heavy, light)
        wait_until(lambda: min(map(managed.passed, programs)) > 50, "both have had the GPU")
        shown = headway(tmp_path, "top", "--once").stdout
        assert "wfq" in shown, shown
        shares: list[float] = []
        while not shares or abs(shares[-1] - 75) > 2:
            assert len(shares) < WINDOWS, shares
            from_ns = time.monotonic_ns()
            time.sleep(MEASURED_S)
            had = [kernel_ns(log, p, from_ns, time.monotonic_ns()) for p in (heavy, light)]
            shares.append(100 * had[0] / sum(had))
        changed = headway(tmp_path, "set", heavy.name, "--policy", "wfq:weight=1")
        assert changed.returncode == 0, changed.stderr
        assert managed.entry(heavy)["policy"] == "wfq:weight=1"
        for program in (heavy, light):
            program.kill(signal.SIGKILL)


def test_a_policy_that_fails_costs_nobody_the_gpu(gpu: cuda.Gpu, tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from headway.engine.policies import Policy, policy\n\n\n"
        '@policy("bad")\nclass Bad(Policy):\n    """Divides by zero."""\n\n'
        "    def key(self, task):\n        return 1 // 0\n"
    )
    with cuda.managed(gpu, tmp_path / "run", "--load", str(bad)) as managed:
        program = managed.greedy("--policy", "bad", kernel_us=200)
        wait_until(lambda: managed.entry(program)["policy"] == "prt", "it runs under prt")
        managed.goes_on(program)
        assert "ZeroDivisionError" in managed.entry(program)["note"]
        program.kill(signal.SIGKILL)
