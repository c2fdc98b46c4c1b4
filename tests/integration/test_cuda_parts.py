"""Large copies and sets of a CUDA program go in parts while somebody more important waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import cuda
from tests.integration.daemon_client import wait_until

pytestmark = pytest.mark.live
CALLS = 4 * 9 + 1
"""Copies and sets that the check asks for and that are carried out: nine in each of four rounds."""
SETUP = 2
"""It clears its memory at the beginning, and reads back at most once."""


def moved(log: Path, pid: int) -> int:
    """How many copies and sets the driver has carried out for a process."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return sum(line[0] == str(pid) and line[2] in ("copy", "set") for line in lines)


def check(managed: cuda.Managed, log: Path) -> int:
    log.touch()
    env = {"SOFTCUDA_LOG": log}
    program = managed.start("checks", "large", options=("--priority", "1"), env=env)
    result = program.finish()
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    return moved(log, program.pid)


def test_copies_go_whole_while_nobody_waits(managed: cuda.Managed, tmp_path: Path) -> None:
    assert CALLS <= check(managed, tmp_path / "log") <= CALLS + SETUP


def test_copies_go_in_parts_beside_somebody_more_important(
    managed: cuda.Managed, tmp_path: Path
) -> None:
    """With the same bytes and the same errors, which the check looks at itself."""
    busy = managed.start("cudaapp", "hp", 300, 2, 4, 60, options=("--priority", "9"))
    wait_until(lambda: managed.passed(busy) > 0, "the important program has come")
    assert check(managed, tmp_path / "log") > 2 * CALLS
    assert busy.is_alive()
