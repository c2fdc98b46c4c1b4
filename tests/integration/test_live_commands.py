"""Watching and changing programs while they run, and what the daemon records of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import gl
from tests.integration.command import headway
from tests.integration.gl import Stage

pytestmark = pytest.mark.live

TOLERANCE_NS = 20_000_000
"""Timers of a busy machine are late."""


def test_a_live_trace_keeps_the_rules_of_the_simulator(bare_stage: Stage, tmp_path: Path) -> None:
    trace = tmp_path / "live.pftrace"
    daemon = bare_stage.daemon("--trace", str(trace))
    bomb = str(bare_stage.built / "bomb")
    bare_stage.start(bomb, "30", options=["--priority", "1", "--reserve", "2.5ms/25ms"])
    bare_stage.start(bomb, "30", options=["--priority", "1"])
    gears = bare_stage.start(gl.GEARS, options=["--priority", "9"])
    gl.wait_until(lambda: gears.frames() > 200, "frames beside two bombs")
    bare_stage.stop_programs()
    assert headway("stop", env=bare_stage.environment()).returncode == 0
    assert daemon.wait(timeout=20) == 0
    check = headway("check", trace, "--tolerance", f"{TOLERANCE_NS}ns")
    assert check.returncode == 0, check.stdout + check.stderr
    assert "fine" in check.stdout


def test_a_program_is_changed_while_it_runs(stage: Stage) -> None:
    env = stage.environment()
    stage.start(gl.GEARS, options=["--priority", "3"])
    gl.wait_until(lambda: stage.is_managed("es2gears"), "a managed program")
    result = headway(
        "set", "es2gears_x11", "--priority", "7", "--policy", "ht", "--reserve", "5ms/20ms", env=env
    )
    assert result.returncode == 0, result.stderr
    (entry,) = stage.channels("es2gears")
    assert (entry["priority"], entry["policy"]) == ("7", "ht")
    assert (entry["capacity_ns"], entry["period_ns"]) == (5_000_000, 20_000_000)
    listing = headway("ps", env=env)
    assert "es2gears_x11" in listing.stdout
    assert "5ms/20ms" in listing.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("set", "nobody", "--priority", "5"), "nobody"),
        (("set", "nobody"), "expected"),
        (("run", "--priority", "high", "--", "true"), "integer"),
        (("run", "--reserve", "5/20", "--", "true"), "5ms/20ms"),
        (("run", "--reserve", "9ms/5ms", "--", "true"), "at most the period"),
        (("run", "--policy", "ptr", "--", "true"), "prt"),
        (("run", "--shared", "pool", "--", "true"), "--reserve"),
        (("daemon", "--split", "fast"), "duration"),
        (("daemon", "--spec", "no-such-file"), "no-such-file"),
        (("daemon",), "running there already"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_word_is_one_line_and_changes_nothing(
    stage: Stage, arguments: tuple[str, ...], expected: str
) -> None:
    before = stage.status()
    result = headway(*arguments, env=stage.environment())
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert expected in result.stderr
    after = stage.status()
    assert before is not None
    assert after is not None
    assert after["channels"] == before["channels"]


def test_without_a_daemon_the_commands_say_so(bare_stage: Stage) -> None:
    for command in ("ps", "status", "stop"):
        result = headway(command, env=bare_stage.environment())
        assert result.returncode == 1
        assert len(result.stderr.strip().splitlines()) == 1
        assert "no daemon answers" in result.stderr
