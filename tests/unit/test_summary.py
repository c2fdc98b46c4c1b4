"""What `headway run --summary` says, what MPS would change, and accounts of launches."""

from __future__ import annotations

from typing import Any

import pytest

from headway.view.advice import about_mps
from headway.view.summary import lines_of

S, MS = 1_000_000_000, 1_000_000


def account(**changes: Any) -> dict[str, Any]:
    """Ten seconds of 300 jobs of 14 ms, in which the GPU is busy for a tenth of the time."""
    return {
        "names": ["detector"],
        "lasted_ns": 10 * S,
        "jobs": 300,
        "misses": 0,
        "frames": 0,
        "groups": 900,
        "gpu_ns": 420 * MS,
        "waited_ns": 30 * MS,
        "caused_ns": 2 * S,
        "job_p50_ns": 14 * MS,
        "job_p99_ns": 18 * MS,
        "in_jobs_ns": 300 * 14 * MS,
        "slowdown": 0.04,
        "gpu_in_jobs": 0.1,
        "side_by_side": True,
        **changes,
    }


def test_a_summary_says_jobs_slowdown_and_what_others_waited() -> None:
    text = "\n".join(lines_of("detector", account(misses=3)))
    for part in ("300 jobs", "14 ms", "18 ms", "4 % slower", "3 missed", "others waited 2 s"):
        assert part in text


def test_a_program_without_jobs_has_its_frames() -> None:
    known = account(job_p50_ns=None, job_p99_ns=None, frames=590, jobs=0)
    text = "\n".join(lines_of("game", known))
    assert "590 frames, 59.0 a second" in text
    assert "job" not in text


def test_a_program_that_never_came_is_told_as_that() -> None:
    assert lines_of("make", None) == ["headway: make sent nothing to the GPU through the gate"]


@pytest.mark.parametrize(
    ("used", "in_jobs", "side_by_side", "expected"),
    [
        (0.1, 0.42, False, "up to 96 % of the GPU, now 58 %"),
        (0.1, 0.42, True, None),
        (0.9, 0.42, False, None),
        (None, 0.42, False, None),
        (0.1, 0.05, False, None),
    ],
)
def test_mps_is_advised_where_jobs_leave_the_gpu_idle(
    used: float | None, in_jobs: float, side_by_side: bool, expected: str | None
) -> None:
    """Of the time in jobs others get the part that the jobs do not use: 1 - 0.42 * 0.1."""
    found = about_mps({"gpu_in_jobs": used, "in_jobs": in_jobs, "side_by_side": side_by_side})
    assert (found is None) if expected is None else (found is not None and expected in found)
