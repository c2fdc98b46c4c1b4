"""`headway ps`, `status` and tables of numbers: what they list, and on terminals of any width."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.command import HEADWAY, ROOT, headway
from tests.integration.daemon_client import running_daemon, wait_until
from tests.integration.zygote import Zygote

LONG = "a-task-with-a-rather-long-name"
SCENARIO = f"""run.duration = "100ms"
[[task]]
name = "{LONG}"
periodic = {{ period = "5ms", cost = "1ms", deadline = "1ms" }}
[[task]]
name = "other"
periodic = {{ period = "5ms", cost = "2ms", deadline = "4ms" }}
"""


@pytest.mark.parametrize("name", ["", "detector"])
def test_a_launched_program_is_listed_before_its_first_gpu_call(tmp_path: Path, name: str) -> None:
    """Once, however many processes it starts; and no longer than it runs; by its name."""
    options = [f"--name={name}"] if name else []
    shown = name or "idle.py"
    with running_daemon(tmp_path / "run") as daemon:
        env = {**os.environ, "HEADWAY_DIR": str(daemon.folder), "COLUMNS": "60"}
        (tmp_path / "idle.py").write_text("import subprocess\nsubprocess.run(['cat'])\n")
        program = subprocess.Popen(
            [HEADWAY, "run", *options, "--", sys.executable, "idle.py"],
            cwd=tmp_path, env=env, stdin=subprocess.PIPE,
        )  # fmt: skip
        try:

            def listed() -> list[int]:
                found = json.loads(headway("ps", "--json", env=env).stdout)
                assert found["schema"] == 1
                assert found["channels"] == found["unmanaged"] == []
                return [entry["pid"] for entry in found["started"]]

            wait_until(lambda: listed() == [program.pid], "it is listed")
            (line,) = [x for x in headway("ps", env=env).stdout.splitlines() if "started" in x]
            assert line.split()[0] == shown
            assert line.split()[1] == str(program.pid)
            top = headway("top", "--once", env=env).stdout.splitlines()
            assert (top[-1].split()[0], top[-1].split()[-1]) == (shown, "started")
        finally:
            program.communicate(timeout=20)
        assert listed() == []


def test_one_of_a_thing_is_told_as_one(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "run") as daemon:
        with daemon.client("game") as game:
            game.one_group()
        said = headway("status", env={**os.environ, "HEADWAY_DIR": str(daemon.folder)}).stdout
    assert ": 1 grant, " in said
    assert "1 grants" not in said


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_names_of_tasks_are_whole_on_narrow_terminals(tmp_path: Path, columns: int) -> None:
    """Columns of numbers go first; a name that is too long even then goes on below itself."""
    (tmp_path / "s.toml").write_text(SCENARIO)
    zygote = Zygote()
    try:
        env = {"COLUMNS": str(columns)}
        for words in (("sim", "s.toml"), ("compare", "s.toml")):
            result = zygote.run(*words, cwd=tmp_path, env=env)
            assert result.code == 0, result.err
            rows = [x for x in result.out.splitlines() if not x.startswith("reserve")]
            assert all(len(x.rstrip()) <= columns for x in rows), result.out
            assert LONG in "".join(x.strip().partition(" ")[0] for x in rows), result.out
            assert "…" not in result.out
    finally:
        zygote.close()


def test_compare_counts_missed_deadlines(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    words = ("compare", "s.toml", "--policy", "fifo", "--plot", "p.svg")
    shown = headway(*words, cwd=tmp_path).stdout.splitlines()
    assert 'height="720pt"' in (tmp_path / "p.svg").read_text()  # three pictures, not two
    at = next(i for i, x in enumerate(shown) if x.strip() == "deadlines missed, of all")
    simulated = json.loads(headway("sim", "s.toml", "--json", cwd=tmp_path).stdout)["tasks"]
    for line, name in zip(shown[at + 1 : at + 3], (LONG, "other"), strict=True):
        assert line.split()[0] == name
        missed, of = map(int, line.split()[1].split("/"))
        assert of == 20
        assert 0 <= missed <= of
        assert simulated[name]["deadlines"] == of


def test_an_unmanaged_program_draws_on_the_cpu_where_it_is_told_to(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "LIBGL_ALWAYS_SOFTWARE"}
    env["HEADWAY_DIR"] = str(tmp_path)
    line = ("--no-daemon", "--software-gpu", "--", "sh", "-c", "echo $LIBGL_ALWAYS_SOFTWARE")
    assert headway("run", *line, env=env).stdout == "1\n"
    assert headway("run", line[0], *line[2:], env=env).stdout == "\n"


def test_durations_of_commands_are_asked_for_in_the_same_word() -> None:
    for command in ("trace", "doctor"):
        said = headway(command, "--help", cwd=ROOT).stdout
        assert "--for, --duration T" in said
