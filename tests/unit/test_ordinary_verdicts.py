"""Verdicts on ordinary programs, from rounds made up so that the answer is known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.gpu.ordinary import ROUNDS, Pace, twin
from benchmarks.gpu.ordinary.cases import CASES, Actor
from benchmarks.gpu.ordinary.shapes import MEASURED, SHAPES
from benchmarks.gpu.ordinary.verdicts import (
    ALONE,
    MPS,
    MPS_PRIORITY,
    OURS,
    OURS_MPS,
    SLICED,
    bound_by,
    p99,
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
    assert quantile([], 0.99) == math.inf, "no job was done"


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


# -- how long it takes -----------------------------------------------------------------------------


def rounds_of(starts_s: list[float], round_s: float, minutes: float) -> tuple[list[int], float]:
    """Rounds of cases whose programs take so long to start, and how late the last one was over."""
    clock = [100.0]
    pace, counts = Pace(100.0 + 60 * minutes, lambda: clock[0]), []
    for place, start_s in enumerate(starts_s):
        since_s, later = clock[0], sum(s > 0 for s in starts_s[place + 1 :])
        clock[0] += start_s
        goes_on = pace.rounds(len(starts_s) - place, later, since_s)
        count = 0
        while goes_on(count):
            clock[0] += round_s
            count += 1
        counts.append(count)
    return counts, clock[0] - pace.end_s


def test_all_cases_have_rounds_and_are_over_in_time() -> None:
    counts, late_s = rounds_of([40.0, 0.0, 0.0] * 5, 7.0, 9)
    assert min(counts) >= ROUNDS
    assert max(counts) > ROUNDS
    assert -14 < late_s < 14


def test_programs_that_start_slowly_cost_rounds_and_not_cases() -> None:
    counts, _ = rounds_of([120.0, 0.0, 0.0] * 5, 7.0, 9)
    assert counts == [ROUNDS] * 15


# -- the twin --------------------------------------------------------------------------------------


def test_the_twin_has_a_shape_for_every_actor_of_every_case() -> None:
    actors = {actor for case in CASES for actor in (*case.important, *case.others)}
    assert {actor.workload for actor in actors} == set(SHAPES)


@pytest.mark.parametrize("name", MEASURED)
def test_a_shape_takes_alone_what_was_measured(name: str) -> None:
    (told,) = twin.play([twin.task(Actor(name), "a", 0, 1, important=True)], [], OURS, 0.3)[
        "important"
    ]
    assert quantile(told["us"], 0.5) / 1000 == pytest.approx(MEASURED[name], rel=0.1)


def test_a_case_in_the_twin_has_the_table_and_the_goals_of_a_measured_one() -> None:
    (case,) = (case for case in CASES if case.name == "FFT, CuPy")
    found = twin.rounds(case, 0.3)
    assert p99(found, ALONE) < p99(found, OURS) < p99(found, SLICED)
    assert p99(found, OURS_MPS) < 1.05 * p99(found, MPS)
    assert bound_by(found, case) == "gpu"
    assert {goal.what for goal in goals({case.name: found}, {case.name: "gpu"})} > {
        f"{case.name}: p99 of {OURS} against {SLICED}"
    }


def test_ways_in_another_order_than_measured_are_named_if_they_are_apart() -> None:
    here = said()["case"]
    there = said(ours=(9.9, 0.8, "a"), ours_mps=(11.2, 0.8, "a"))["case"]
    assert twin.orders(here, here) == []
    assert twin.orders(here, there) == [f"{OURS} before {OURS_MPS}"]
