"""Runs the real `headway` command in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADWAY = Path(sys.executable).with_name("headway")


def headway(
    *arguments: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """The finished process, with its output as text."""
    return subprocess.run(
        [HEADWAY, *map(str, arguments)],
        cwd=cwd,
        env=env,
        text=True,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
