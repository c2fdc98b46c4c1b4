"""How long jobs may take: what a person says of that, wherever it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import headway
from tests.integration.daemon_client import DaemonProcess, running_daemon

SPEC = """[[task]]
name = "detector"
slowdown = "25%"
"""


def goals(daemon: DaemonProcess, name: str) -> tuple[Any, Any]:
    entry = daemon.one(name)
    return entry["job_slowdown"], entry["job_deadline_ns"]


def test_a_goal_is_what_was_said_last_of_the_program(tmp_path: Path) -> None:
    """In the spec, then by headway set, one goal at a time."""
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    env = {"HEADWAY_DIR": str(tmp_path / "r")}
    with (
        running_daemon(tmp_path / "r", "--spec", str(spec)) as daemon,
        daemon.client("detector"),
    ):
        assert goals(daemon, "detector") == (0.25, None)
        for words, expected in (
            (("--slowdown", "40%"), (0.4, None)),
            (("--period", "20ms"), (0.4, 20_000_000)),
            (("--deadline", "5ms"), (0.4, 5_000_000)),
            (("--period", "30ms"), (0.4, 5_000_000)),
        ):
            result = headway("set", "detector", *words, env=env)
            assert (result.returncode, result.stderr) == (0, "")
            assert goals(daemon, "detector") == expected


@pytest.mark.parametrize("wrong", ["10", "0%", "-1%", "1001%", "nan%", "", "ten"])
def test_a_goal_that_is_none_is_told_in_one_line_and_changes_nothing(
    tmp_path: Path, wrong: str
) -> None:
    env = {"HEADWAY_DIR": str(tmp_path / "r")}
    with running_daemon(tmp_path / "r") as daemon, daemon.client("detector"):
        result = headway("set", "detector", "--priority", "7", "--slowdown", wrong, env=env)
        assert result.returncode != 0
        (line,) = result.stderr.splitlines()
        assert "slowdown" in line
        assert (goals(daemon, "detector"), daemon.one("detector")["base"]) == ((0.1, None), 0)
