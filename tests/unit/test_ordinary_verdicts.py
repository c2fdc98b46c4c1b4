"""Verdicts on ordinary programs, from rounds made up so that the answer is known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu.ordinary.verdicts import (
    ALONE,
    MPS,
    MPS_PRIORITY,
    OURS,
    OURS_MPS,
    SLICED,
    quantile,
    summary,
)
from benchmarks.gpu.ordinary.verdicts import goals_of as goals

pytestmark = pytest.mark.tables

WAYS = {ALONE: 10, SLICED: 50, MPS: 20, MPS_PRIORITY: 18, OURS: 12, OURS_MPS: 11}


def rounds(us: float, share: float | None, digest: str = "a") -> list[dict[str, Any]]:
    important = {"us": [us] * 50, "hash": digest}
    others = [] if share is None else [{"per_s": 40 * share, "hash": ""}]
    return [{"important": [important], "others": others}] * 2


def said(**changed: tuple[float, float, str]) -> dict[str, Any]:
    whole = {way: rounds(us, 0.8) for way, us in WAYS.items()}
    whole[ALONE] = rounds(10, 1.0)
    for way, (us, share, digest) in changed.items():
        whole[{"ours": OURS, "ours_mps": OURS_MPS}[way]] = rounds(us, share, digest)
    return {"case": summary(whole)}


def missed(cases: dict[str, Any], bound_by: str = "gpu") -> list[str]:
    return [goal.what for goal in goals(cases, {"case": bound_by}) if not goal.met]


def test_a_quantile_is_the_smallest_time_that_so_many_do_not_exceed() -> None:
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 99
    assert quantile([float(n) for n in range(1, 101)], 0.5) == 50
    assert quantile([3.0], 0.99) == 3


def test_faster_than_every_peer_meets_the_goals() -> None:
    assert missed(said(ours=(12, 0.85, "a"), ours_mps=(11, 0.85, "a"))) == []


def test_slower_than_without_us_is_missed() -> None:
    found = missed(said(ours=(53, 0.9, "a"), ours_mps=(22, 0.9, "a")))
    assert "case: p99 of Headway against time-sliced" in found
    assert "case: p99 of Headway + MPS against MPS" in found


def test_a_peer_that_is_better_on_both_is_named() -> None:
    found = missed(said(ours=(12, 0.85, "a"), ours_mps=(19, 0.7, "a")))
    named = [what for what in found if "better on both (" in what]
    assert named
    assert "by MPS, client priority" in named[0]
    assert "by MPS)" not in named[0]  # MPS itself is slower: 20 against 19


def test_other_results_than_alone_are_missed() -> None:
    found = missed(said(ours=(12, 0.85, "b"), ours_mps=(11, 0.85, "a")))
    assert found == ["case: other results than alone"]


def test_others_beside_a_cpu_bound_job_keep_what_mps_gives_them() -> None:
    found = missed(said(ours=(12, 0.85, "a"), ours_mps=(11, 0.6, "a")), "cpu")
    assert "case: the others beside a CPU-bound job" in found
