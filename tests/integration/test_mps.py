"""An MPS server that belongs to the daemon. NVIDIA's control program is played by a script, which
writes down how it was called; the real one is measured in benchmarks/gpu."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.devices import mps
from tests.integration.daemon_client import running_daemon

pytestmark = pytest.mark.live

SCRIPT = """#!/bin/sh
said=$(cat) running="$CUDA_MPS_PIPE_DIRECTORY/running"
echo "$CUDA_MPS_PIPE_DIRECTORY $* $said" >> "$CALLS"
case "$* $said" in
    "-d ") [ -z "$MPS_FAILS" ] && touch "$running" ;;
    *quit*) rm "$running" ;;
    *) [ -e "$running" ] ;;
esac
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "nvidia-cuda-mps-control"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_programs_are_told_where_the_server_is_and_it_ends_with_the_daemon(
    tmp_path: Path, calls: Path
) -> None:
    with running_daemon(tmp_path / "run", "--mps") as daemon:
        mps = tmp_path / "run" / "mps"
        done = subprocess.run(
            [sys.executable, "-m", "headway", "run", "-q", "--priority", "9", "--", "env"],
            env={**os.environ, "HEADWAY_DIR": str(daemon.folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"CUDA_MPS_PIPE_DIRECTORY={mps}" in done.stdout.splitlines()
        assert "CUDA_MPS_CLIENT_PRIORITY=0" in done.stdout.splitlines()
        assert f"{mps} -d " in calls.read_text().splitlines()
        daemon.kill(signal.SIGTERM)
    assert calls.read_text().splitlines()[-1] == f"{mps}  quit -t 1"
    assert "a fault of one on the GPU ends the others' work too" in daemon.log.read_text()


def test_the_server_of_a_killed_daemon_is_kept_for_those_who_use_it(
    tmp_path: Path, calls: Path
) -> None:
    for _ in range(2):
        with running_daemon(tmp_path / "run", "--mps") as daemon:
            daemon.kill(signal.SIGKILL)
    said = [line.split(maxsplit=1)[1].strip() for line in calls.read_text().splitlines()]
    assert said.count("-d") == 1
    assert not any("quit" in line for line in said)


@pytest.mark.usefixtures("calls")
def test_an_mps_that_does_not_start_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPS_FAILS", "3")
    done = subprocess.run(
        [sys.executable, "-m", "headway", "daemon", "--mps"],
        env={**os.environ, "HEADWAY_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "did not start" in done.stderr.splitlines()[-1]


def test_without_mps_on_the_machine_the_daemon_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "headway", "daemon", "--mps"],
        env={**os.environ, "HEADWAY_DIR": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is not on the PATH" in done.stderr


# -- who is under it ------------------------------------------------------------------------------


@contextlib.contextmanager
def process(**env: str) -> Iterator[int]:
    """One that runs by now: while it is being started its environment cannot be seen."""
    command, pipe = ["sh", "-c", "echo; read line"], subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe) as waiter:
        try:
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == b"\n"
            yield waiter.pid
        finally:
            waiter.kill()


def test_a_program_is_under_mps_if_there_is_something_where_it_looks_for_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipes, nothing = tmp_path / "pipes", tmp_path / "nothing"
    pipes.mkdir()
    monkeypatch.setattr(mps, "DEFAULT_PIPES", str(nothing))
    with process(CUDA_MPS_PIPE_DIRECTORY=str(pipes)) as pid, process() as other:
        assert not mps.may_use(pid)
        (pipes / "control").touch()
        assert mps.may_use(pid)
        assert not mps.may_use(other)
        monkeypatch.setattr(mps, "DEFAULT_PIPES", str(pipes))
        assert mps.may_use(other)
    assert mps.may_use(pid), "of the dead nobody can say"
