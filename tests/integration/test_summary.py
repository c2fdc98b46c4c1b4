"""`headway run --summary`: the program ends as it would, and then what it came to is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration import cuda
from tests.integration.command import HEADWAY
from tests.integration.daemon_client import wait_until

pytestmark = pytest.mark.live

JOBS = 40


def test_the_summary_has_the_programs_jobs(managed: cuda.Managed) -> None:
    """As many as it did, and no longer than it took."""
    done = subprocess.run(
        [
            HEADWAY,
            "run",
            "--summary",
            "--",
            *managed.gpu.command("cudaapp", "fix", 200, 2, 20, JOBS),
        ],
        env={**os.environ, **managed.gpu.environment(), "HEADWAY_DIR": str(managed.daemon.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) jobs: half of them within (.*), 99 % within", done.stderr)
    assert found is not None, done.stderr
    # Filling its memory, warming up and reading back may be jobs, or parts of the first and last.
    assert JOBS - 2 <= int(found[1]) <= JOBS + 3
    assert "others waited" in done.stderr


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -KILL $$", -9), ("kill -ABRT $$", -6)]
)
def test_the_end_is_the_programs_own(tmp_path: Path, script: str, code: int) -> None:
    done = subprocess.run(
        [HEADWAY, "run", "--summary", "--", "sh", "-c", script],
        env={**os.environ, "HEADWAY_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert "nothing to the GPU" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_program(tmp_path: Path, number: signal.Signals) -> None:
    """And what the program makes of it is its own."""
    script = f"trap 'exit 7' {number.value}; touch {tmp_path}/up; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        [HEADWAY, "run", "--summary", "-q", "--no-daemon", "--", "sh", "-c", script],
        env={**os.environ, "HEADWAY_DIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    wait_until((tmp_path / "up").exists, "the program runs")
    process.send_signal(number)
    assert process.wait(20) == 7


def test_what_cannot_be_started_has_the_code_of_env(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/nowhere/interpreter\n")
    script.chmod(0o755)
    done = subprocess.run(
        [HEADWAY, "run", "--summary", "--no-daemon", "-q", "--", script],
        env={**os.environ, "HEADWAY_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (126, 127)
    assert "cannot be started" in done.stderr
