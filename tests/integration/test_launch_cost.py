"""The program and the driver that launches are measured with (benchmarks/launch_cost.py)."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import launch_cost
from tests.integration.daemon_client import running_daemon

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return launch_cost.build(tmp_path_factory.mktemp("launch"))


def test_every_kind_of_launch_is_measured(program: Path, tmp_path: Path) -> None:
    found = launch_cost.measure(program, tmp_path, [])
    assert set(found) == set(launch_cost.KINDS)
    assert min(found.values()) > 0


@pytest.mark.parametrize("window", [False, True])
def test_kernels_that_always_take_the_same_time_are_known_soon(
    program: Path, tmp_path: Path, window: bool
) -> None:
    """Unknown ones have a gate before and a mark behind them; of known ones of 40 us, five go
    through one gate of 0.2 ms. Alone there are none."""
    with running_daemon(run := tmp_path / "run"):
        beside = launch_cost.important(program, run) if window else contextlib.nullcontext()
        with beside:
            command = [*launch_cost.headway(), str(program), "gates"]
            env = launch_cost.environment(program, run)
            said = subprocess.run(command, env=env, capture_output=True, check=True).stdout
    found = json.loads(said)
    assert (found["gates"] > 0) == window
    assert found["gates"] < found["launches"] / 3
