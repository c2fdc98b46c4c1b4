"""`headway papers run cudamon/… --live` with real programs: the OpenCL sample on PoCL, whose
sub-devices are real partitions, stands for the CUDA sample; MPS is played by a script."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from headway.sim.cudamon import figures
from headway.sim.cudamon.controlling import FEW
from headway.sim.cudamon.workloads import HIGH, LOW
from headway.view import cudamon_live
from tests.integration.command import headway
from tests.integration.daemon_client import ROOT

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

MPS = """#!/bin/sh
[ "$1" = -d ] && touch "$CUDA_MPS_PIPE_DIRECTORY/control" && exit 0
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || exit 1
case "$(cat)" in get_server_list) echo 4711 ;; quit*) rm "$CUDA_MPS_PIPE_DIRECTORY/control" ;; esac
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample, and with what plays MPS."""
    folder = tmp_path_factory.mktemp("tools")
    source = ROOT / "examples" / "prng" / "prng_cl.c"
    subprocess.run(["gcc", "-O2", "-o", folder / "prng_cl", source, "-lOpenCL"], check=True)
    control = folder / "nvidia-cuda-mps-control"
    control.write_text(MPS)
    control.chmod(0o755)
    return folder


def environment(tools: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


def test_partitions_by_hand_are_run_and_judged(tools: Path) -> None:
    words = ("cudamon/manual", "--live", "--prng", str(tools / "prng_cl"), "--json")
    done = headway("papers", "run", *words, env=environment(tools), timeout_s=150)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [row[:2] for row in said["rows"]] == [
        ["alone", HIGH],
        *([how, who] for how in ("100/100", "100/20") for who in (HIGH, LOW)),
    ]
    assert all(int(row[2]) > 0 for row in said["rows"])
    assert {"alone", "which meets its deadline then"} <= {claim["text"] for claim in said["claims"]}


def test_a_controller_restarts_the_less_important_task_on_a_smaller_part_of_the_device(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both want all of it, with a deadline that each meets only alone."""
    monkeypatch.setattr(cudamon_live, "RESTARTS_S", 8.0)
    monkeypatch.setattr(cudamon_live, "DEADLINE_MS", 4.3)
    monkeypatch.setenv("PATH", environment(tools)["PATH"])
    figure = figures()["cudamon/fig7"]
    with cudamon_live.opened(tools / "prng_cl", lambda: tools) as runs:
        measured = runs.variants(figure.id)[FEW]()
    shares = [share for _, share in measured.tasks[LOW].shares]
    assert shares[0] == 100
    assert min(shares) <= 50
    assert {share for _, share in measured.tasks[HIGH].shares} == {100}
    assert len(measured.tasks[LOW].responses) > 10


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["cudamon/fig4", "timegraph/fig8", "--live"], "--live: found timegraph/fig8"),
        (["cudamon/fig4", "--prng", "true"], "--prng: expected --live as well"),
        (["cudamon/fig4", "--live", "--prng", "/nowhere"], "--prng: /nowhere: no such program"),
        (["cudamon/fig4", "--live", "--prng", "/etc/passwd"], "may not be executed"),
        (["cudamon/fig4", "--live", "--prng", "false"], "exit code 1"),
        (["cudamon/fig4", "--live", "--prng", "true"], "expected the number that --info says"),
    ],
)
def test_mistakes_are_one_line(tools: Path, words: list[str], why: str) -> None:
    done = headway("papers", "run", *words, env=environment(tools))
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert why in line


@pytest.mark.parametrize(
    ("missing", "words", "why"),
    [
        ("nvcc", [], "nvcc, which builds the PRNG sample, is not on the PATH"),
        ("MPS", ["--prng", "true"], "nvidia-cuda-mps-control is not on the PATH"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, missing: str, words: list[str], why: str) -> None:
    (tmp_path / "true").symlink_to("/bin/true")
    done = headway(
        "papers", "run", "cudamon/fig4", "--live", *words, env={**os.environ, "PATH": str(tmp_path)}
    )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert why in line
