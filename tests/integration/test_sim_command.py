"""`headway sim` and `compare`, as people and scripts use them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.command import HEADWAY, ROOT, headway

ORACLES = sorted((ROOT / "tests" / "data" / "oracles").glob("*.toml"))
BOMBS = ROOT / "examples" / "bombs.toml"


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda path: path.stem)
def test_the_worked_examples_come_out_exactly(oracle: Path) -> None:
    result = headway("sim", oracle, "--json")
    assert result.returncode == 0, result.stderr
    expected = json.loads(oracle.with_suffix(".json").read_text())
    found = json.loads(result.stdout)
    assert found["schema"] == expected["schema"]
    assert found["groups"] == expected["groups"]


def test_five_worked_examples_are_there() -> None:
    assert len(ORACLES) == 5


def test_the_json_result_has_the_documented_keys() -> None:
    result = headway("sim", ORACLES[0], "--json")
    (task,) = json.loads(result.stdout)["tasks"].values()
    # ae-four-groups: responses are 2, 12, 10 and 12 ms, execution is 2 + 4 + 2 + 2 ms.
    assert task["groups"] == 4
    assert task["response_ns"] == {"p50": 10_000_000, "p99": 12_000_000, "max": 12_000_000}
    assert task["gpu_ns"] == 10_000_000


def test_several_files_give_a_line_each() -> None:
    result = headway("sim", *ORACLES[:3], "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["file"] for line in lines] == [str(path) for path in ORACLES[:3]]


def test_with_two_gpus_groups_are_listed_by_their_start(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text(
        "[device]\ncount = 2\n"
        '[[task]]\nname = "long"\ngroups = [{ at = "0ms", cost = "9ms" }]\n'
        '[[task]]\nname = "short"\ngroups = [\n'
        '{ at = "1ms", cost = "1ms" }, { at = "2ms", cost = "1ms" }]\n'
    )
    groups = json.loads(headway("sim", file, "--json").stdout)["groups"]
    assert [(g["task"], g["started_ns"] // 1_000_000) for g in groups] == [
        ("long", 0),
        ("short", 1),
        ("short", 2),
    ]


def test_set_changes_a_key_and_the_seed_changes_what_is_random() -> None:
    def fps(*more: str) -> float:
        result = headway("sim", BOMBS, "--json", "--set", "run.duration=1s", *more)
        assert result.returncode == 0, result.stderr
        return float(json.loads(result.stdout)["tasks"]["game"]["fps"])

    assert fps() == fps()
    assert fps("--seed", "1") != fps("--seed", "2")
    assert fps("--set", "task.game.priority=-9") < fps()
    assert fps("--set", 'task.game.game={groups=1,cost="1ms",fps=30}') == pytest.approx(30, abs=1)


def test_a_spec_decides_and_whoever_it_does_not_name_is_background(tmp_path: Path) -> None:
    spec = tmp_path / "spec"
    spec.write_text("game:ht::9::\nwidget:prt:pe:5:2000:16000\n")
    result = headway("sim", BOMBS, "--json", "--spec", spec)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert set(found["reserves"]) == {"widget", "@background"}
    bombs = sum(found["tasks"][f"bomb{n}"]["gpu_share"] for n in range(1, 6))
    assert 0.09 < bombs < 0.11  # the Background reserve is a tenth of the GPU


def test_compare_shows_each_policy_in_a_column(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    result = headway(
        "compare", BOMBS, "--policy", "fifo", "--policy", "prt", "--set", "run.duration=1s",
        "--plot", picture,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "fifo" in result.stdout
    assert "prt" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_compare_runs_the_variants_of_the_file() -> None:
    result = headway("compare", BOMBS, "--json", "--set", "run.duration=2s")
    variants = json.loads(result.stdout)["variants"]
    fps = {name: variant["tasks"]["game"]["fps"] for name, variant in variants.items()}
    unmanaged, priorities, reserved = fps.values()
    assert 3 * unmanaged < priorities < reserved


def test_a_trace_of_a_run_passes_the_check(tmp_path: Path) -> None:
    trace = tmp_path / "run.pftrace"
    result = headway("sim", BOMBS, "--trace", trace, "--set", "run.duration=1s")
    assert result.returncode == 0, result.stderr
    check = headway("check", trace)
    assert check.returncode == 0, check.stdout
    assert "fine" in check.stdout


def _interrupt(tmp_path: Path, *options: str) -> tuple[int, str]:
    """Start a run that takes very long, wait until it writes its trace, then press Ctrl-C."""
    command: list[str | Path] = [HEADWAY, "sim", BOMBS, "--set", "run.duration=100000s", *options]
    process = subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size > 100_000 for path in tmp_path.iterdir()):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the trace never grew"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out
    finally:
        process.kill()


def test_an_interrupted_run_keeps_a_whole_trace_and_says_so(tmp_path: Path) -> None:
    code, out = _interrupt(tmp_path, "--trace", "run.pftrace")
    assert code == 130
    assert "interrupted" in out
    assert [path.name for path in tmp_path.iterdir()] == ["run.pftrace"]
    check = headway("check", tmp_path / "run.pftrace")
    assert check.returncode == 0, check.stdout + check.stderr


def test_an_interrupted_json_result_is_still_json(tmp_path: Path) -> None:
    with (tmp_path / "out.json").open("w+") as out:
        command: list[str | Path] = [
            HEADWAY,
            "sim",
            BOMBS,
            "--json",
            "--set",
            "run.duration=100000s",
        ]
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)
        try:
            deadline = time.monotonic() + 60
            while os.fstat(out.fileno()).st_size < 100_000:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
            process.communicate()
        out.seek(0)
        result = json.load(out)
    assert result["complete"] is False
    assert result["tasks"]["game"]["groups"] > 0


def test_a_killed_run_leaves_no_trace_that_looks_whole(tmp_path: Path) -> None:
    command: list[str | Path] = [
        HEADWAY,
        "sim",
        BOMBS,
        "--set",
        "run.duration=100000s",
        "--trace",
        "run.pftrace",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size > 100_000 for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()
    assert not (tmp_path / "run.pftrace").exists()
    (partial,) = tmp_path.iterdir()
    check = headway("check", partial)
    assert check.returncode == 2
    assert len(check.stderr.splitlines()) == 1


def test_a_long_run_on_a_terminal_shows_a_progress_bar() -> None:
    leader, follower = pty.openpty()
    command: list[str | Path] = [HEADWAY, "sim", BOMBS, "--set", "run.duration=200s"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown = b""
    try:
        while chunk := os.read(leader, 4096):
            shown += chunk
    except OSError:  # the other end is closed: the process has ended
        pass
    finally:
        os.close(leader)
    assert process.wait(timeout=60) == 0
    assert b"bombs.toml" in shown
    assert b"%" in shown


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"'{HEADWAY}' sim '{BOMBS}' --json | head -c 100"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert len(result.stdout) == 100
    assert result.stderr == ""


def test_the_command_starts_without_importing_what_it_does_not_need() -> None:
    code = (
        "import sys; from headway.view.cli import headway;"
        "headway.main(['sim', '--help'], standalone_mode=False);"
        "heavy = {'matplotlib', 'numpy', 'rich.table', 'perfetto', 'simpy'} & set(sys.modules);"
        "print('heavy:', sorted(heavy))"
    )
    python = HEADWAY.with_name("python")
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    assert "heavy: []" in result.stdout
