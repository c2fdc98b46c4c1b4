"""CUDA programs whose work goes in pieces, and what became of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import cuda
from tests.integration.daemon_client import Client

LOWEST, LOW = ("--priority", "0"), ("--priority", "1")
SPINS = pytest.mark.parametrize("spin", ["0ms", "20ms"])
LEARNED = 8
"""What a kernel takes is known once it was seen so often."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").touch()
    return tmp_path / "log"


def fates(
    managed: cuda.Managed, log: Path, *options: str, more: cuda.Env | None = None
) -> cuda.Program:
    """On a GPU of its own: one that is stopped would keep the software GPU stopped."""
    env = {"SOFTCUDA_LOG": log, "SOFTCUDA_GPU": "", **(more or {})}
    program = managed.start("fates", options=options, env=env)
    assert program.heard().startswith("ready")
    return program


def done(log: Path, program: cuda.Program) -> list[tuple[str, int, int]]:
    """What the GPU has done for it, from when until when."""
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 4]
    return [(kind, int(a), int(b)) for pid, _, kind, a, b in lines if int(pid) == program.pid]


def spins(log: Path, program: cuda.Program) -> list[tuple[int, int]]:
    """From when until when its kernels were on the GPU that are over."""
    return [(start, end) for kind, start, end in done(log, program) if kind == "spin_us"]


def kernels(log: Path, program: cuda.Program) -> list[int]:
    """When they began."""
    return [start for start, _ in spins(log, program)]


def rival(managed: cuda.Managed) -> Client:
    token = managed.daemon.ask(do="run", name="rival", priority=9)["token"]
    return managed.daemon.client("rival", token)


SLOW_ARRIVALS = pytest.mark.parametrize("module", ["tests.integration.slow_arrivals"])
