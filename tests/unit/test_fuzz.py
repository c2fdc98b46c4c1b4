"""Readers of strangers' input, fed by coverage for a moment; `make fuzz` does so for long."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import ROOT, TARGETS

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
SECONDS = 2


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_was_found_before_is_read_or_refused(name: str) -> None:
    saved = sorted((CORPUS / name).iterdir())
    assert saved, "every target has a corpus"
    for path in saved:
        TARGETS[name](path.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_else_than_the_promised_error_comes_of_a_changed_input(
    name: str, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(1, 2**31)
    command = [sys.executable, "-m", "tests.fuzz.run", name, "--out", str(tmp_path)]
    command += ["--seconds", str(SECONDS), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-3000:]}"


def test_a_reader_that_breaks_its_promise_is_found(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "broken", "--out", str(tmp_path)]
    command += ["--seconds", "30", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "IndexError" in done.stdout + done.stderr
