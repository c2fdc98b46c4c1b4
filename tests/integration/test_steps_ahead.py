"""The program and the GPU that pieces are measured with (benchmarks/steps_ahead.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import steps_ahead
from benchmarks.launch_cost import headway
from tests.integration.daemon_client import running_daemon

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

GPU_MS = 25
"""What the kernels of a step take together."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return steps_ahead.build(tmp_path_factory.mktemp("steps"))


def test_without_headway_there_are_no_gates(program: Path, tmp_path: Path) -> None:
    found = steps_ahead.measure(program, tmp_path, [], 3, 0)
    assert found["gates"] == found["closed"] == 0
    assert found["step_ms"] > GPU_MS


def test_corunning_somebody_important_there_are_which_close_for_it(
    program: Path, tmp_path: Path
) -> None:
    """About as many as windows that a step takes."""
    with running_daemon(run := tmp_path / "run", "--window", "1ms"), steps_ahead.important(run):
        found = steps_ahead.measure(program, run, headway(), 10, 0)
    assert GPU_MS * 0.8 <= found["gates"] < 700
    assert found["closed"] > 0
