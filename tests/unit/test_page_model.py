"""The page protocol as a model, checked by spin in every order of its steps (tests/protocol).

A model without a mistake has no order in which two have the GPU, and none in which somebody waits
for ever; one with a mistake that is named there has.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parents[1] / "protocol" / "pages.pml"
CHECKED = {
    "on the CPU": ("SPINS=0",),
    "on the CPU, polled": ("SPINS=1", "JOBS=1"),
    "on the CPU, the program dies": ("SPINS=0", "JOBS=1", "DEATHS"),
    "on the CPU, the daemon dies": ("SPINS=0", "JOBS=1", "DAEMON_DIES"),
    "on the CPU, the daemon stops": ("SPINS=0", "JOBS=1", "DAEMON_STOPS"),
    "on the GPU, the program dies": ("PIECES", "SPINS=0", "JOBS=1", "GROUPS=1", "DEATHS"),
    "on the GPU, the daemon dies": ("PIECES", "SPINS=0", "JOBS=1", "GROUPS=1", "DAEMON_DIES"),
}
"""Small enough for every day; `make model` checks more."""
MISTAKES = {
    "NO_SECOND_LOOK": ("SPINS=0",),
    "LOOKS_FIRST": ("SPINS=0",),
    "LOOKS_BEFORE_RESTING": ("SPINS=0", "JOBS=1"),
    "RESTED_BEFORE": ("SPINS=0",),
    "ASKED_BEFORE": ("SPINS=0", "QUEUE=2"),
    "NO_LAST_LOOK": ("PIECES", "SPINS=1", "JOBS=1", "GROUPS=1"),
    "NOBODY_OPENS": ("PIECES", "SPINS=0", "JOBS=1", "GROUPS=1", "DAEMON_DIES"),
    "DEAD_KEEP_IT": ("SPINS=0", "JOBS=1", "DEATHS"),
}


def check(folder: Path, *settings: str) -> str:
    """What spin says of the model."""
    queue = () if "QUEUE=2" in settings else ("QUEUE=1",)
    defines = [f"-D{name}" for name in (*queue, *settings)]
    subprocess.run(["spin", *defines, "-a", str(MODEL)], cwd=folder, check=True, timeout=250)
    # Partial-order reduction does not go with processes that stop and go on.
    reduction = ["-DNOREDUCE"] if "DAEMON_STOPS" in settings else []
    # Optimising takes gcc longer than the search saves by it.
    compiler = ["gcc", "-O0", "-w", "-DSAFETY", "-DVECTORSZ=512", *reduction, "-o", "pan", "pan.c"]
    subprocess.run(compiler, cwd=folder, check=True, timeout=250)
    search = ["./pan", "-m200000", "-w22"]
    done = subprocess.run(search, cwd=folder, capture_output=True, text=True, timeout=280)
    assert "max search depth too small" not in done.stdout
    return done.stdout


@pytest.mark.parametrize("what", CHECKED)
def test_nobody_meets_another_and_nobody_waits_for_ever(what: str, tmp_path: Path) -> None:
    assert "errors: 0" in check(tmp_path, *CHECKED[what])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_protocol_is_found(mistake: str, tmp_path: Path) -> None:
    assert "errors: 1" in check(tmp_path, *MISTAKES[mistake], mistake)
