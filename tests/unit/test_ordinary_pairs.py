"""Random groups of CUDA programs, and what Headway promises of any of them."""

from __future__ import annotations

import pytest

from headway.sim.study.pairs import LEAST_JOBS, Result, broken, make_group, play, study
from headway.sim.study.ways import MPS, OURS, OURS_MPS, SLICED, WAYS

MS = 1_000_000


def test_a_group_is_always_the_same_and_another_number_another_group() -> None:
    groups = {make_group(seed).name for seed in range(20)}
    assert len(groups) > 15
    assert make_group(3) == make_group(3)


def result(p99: float, others: float, jobs: int = 100) -> Result:
    return Result(jobs, int(p99 * MS / 2), int(p99 * MS), {"other-0": others})


def found(**changed: Result) -> dict[str, Result]:
    ways = {way: result(10, 50) for way in WAYS}
    names = {"ours": OURS, "ours_mps": OURS_MPS, "mps": MPS, "sliced": SLICED}
    return ways | {names[key]: one for key, one in changed.items()}


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (found(), []),
        (found(ours=result(10.4, 30)), []),
        (found(ours=result(10.6, 60)), ["p99 under Headway is 1.06 of time-sliced's"]),
        (found(ours_mps=result(12, 50, jobs=LEAST_JOBS - 1)), []),
        (found(mps=result(8, 60), ours_mps=result(8.3, 60)), []),
        (found(ours=result(2, 4)), ["other-0 starves under Headway"]),
        (
            found(mps=result(9, 60), ours_mps=result(9.5, 50)),
            [
                "p99 under Headway + MPS is 1.06 of MPS's",
                "MPS is better than Headway + MPS on both",
            ],
        ),
    ],
)
def test_a_promise_that_is_broken_is_named(ways: dict[str, Result], expected: list[str]) -> None:
    assert broken(ways) == expected


def test_only_what_happens_after_the_programs_are_known_counts() -> None:
    group = make_group(1)
    short, long = (play(group, SLICED, seconds) for seconds in (0.1, 0.2))
    assert 0 < short.jobs < long.jobs < 3 * short.jobs


def test_promises_are_kept_in_a_group_that_nobody_chose() -> None:
    """`make pairs` looks at more."""
    group, ways, wrong = study(1, 0.2)
    assert wrong == [], group.name
    assert min(one.jobs for one in ways.values()) >= LEAST_JOBS
