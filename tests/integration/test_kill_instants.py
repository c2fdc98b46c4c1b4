"""Clients killed at random instants leave nobody stuck, and nothing of themselves behind."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.kill_instants import run_kills

pytestmark = pytest.mark.live


def test_nobody_is_stuck_after_kills_at_random_instants(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    outcome = run_kills(tmp_path / "run", seed, 300)
    said = f"seed {seed}: {outcome.said()}"
    assert outcome.kills >= 300, said
    assert outcome.stuck == 0, said
    assert outcome.left == 0, said
