"""The period estimator: what a program's jobs so far say of the next one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.turns.arrivals import (
    ALIKE_NS,
    LATE_NS,
    LEAD_NS,
    LONGEST_NS,
    RECENT,
    SEEN,
    SHORTEST_NS,
    PeriodEstimator,
)

MS = 1_000_000


def estimator_of(*intervals_ns: int, since_ns: int = 0) -> tuple[PeriodEstimator, int]:
    """And when the last of the jobs began."""
    estimator, now_ns = PeriodEstimator(), since_ns
    estimator.began(now_ns)
    for interval_ns in intervals_ns:
        now_ns += interval_ns
        estimator.began(now_ns)
    return estimator, now_ns


def test_the_next_job_is_due_a_period_after_the_last_began() -> None:
    estimator, last_ns = estimator_of(*[10 * MS] * SEEN, since_ns=123)
    assert estimator.due_ns == last_ns + 10 * MS
    assert estimator.expected_ns == (last_ns + 9_500_000, last_ns + 10_300_000)


@pytest.mark.parametrize(("late_us", "sooner_us"), [(150, 150), (200, 200), (900, 200)])
def test_after_a_late_job_the_next_may_be_on_time(late_us: int, sooner_us: int) -> None:
    """Then it is waited for sooner, but for no longer, and still when it is as late."""
    estimator, last_ns = estimator_of(*[20 * MS] * SEEN, 20 * MS + late_us * 1000)
    assert estimator.due_ns == last_ns + 20 * MS
    due_ns = estimator.due_ns - sooner_us * 1000
    assert estimator.expected_ns == (due_ns - 500_000, due_ns + 300_000)
    assert estimator.expected_ns[1] > estimator.due_ns


def test_a_habit_is_not_known_before_it_was_seen_often_enough() -> None:
    assert PeriodEstimator().due_ns is None
    estimator, last_ns = estimator_of(*[10 * MS] * (SEEN - 1))
    assert estimator.due_ns is None
    assert estimator.expected_ns is None
    estimator.began(last_ns + 10 * MS)
    assert estimator.due_ns is not None


@pytest.mark.parametrize(
    ("period_ns", "differ_ns"),
    [
        (2 * MS + 200_000, 200_000),  # at least so much
        (16 * MS, MS),
        (8 * MS, MS // 2),
        (500 * MS, MS),  # at most
    ],
)
def test_intervals_may_differ_by_a_sixteenth_of_a_period(period_ns: int, differ_ns: int) -> None:
    """By how much the longest and the shortest of each eight do, says nothing."""
    for extra_ns in (0, 1):
        late_ns = period_ns + differ_ns + extra_ns
        estimator, last_ns = estimator_of(*[period_ns] * 5, late_ns, late_ns, late_ns)
        assert estimator.due_ns == (None if extra_ns else last_ns + period_ns)


def test_one_late_job_is_forgiven_and_two_are_not() -> None:
    even, late, early = 10 * MS, 13 * MS, 7 * MS
    estimator, last_ns = estimator_of(*[even] * SEEN, late, early)
    assert estimator.due_ns == last_ns + even
    estimator, last_ns = estimator_of(*[even] * SEEN, late, early, late, early)
    assert estimator.due_ns is None
    for _ in range(SEEN):
        last_ns += even
        estimator.began(last_ns)
    assert estimator.due_ns == last_ns + even


def test_a_pause_does_not_end_a_habit_but_nothing_is_due_twice() -> None:
    estimator, last_ns = estimator_of(*[10 * MS] * SEEN)
    due_ns = estimator.due_ns
    assert estimator.due_ns == due_ns  # however much later it is asked for
    estimator.began(last_ns + 5000 * MS)
    assert estimator.due_ns == last_ns + 5010 * MS


@pytest.mark.parametrize("period_ns", [SHORTEST_NS - 1, LONGEST_NS + 1, 0, 1])
def test_periods_that_are_too_short_or_too_long_are_none(period_ns: int) -> None:
    estimator, _ = estimator_of(*[period_ns] * SEEN)
    assert estimator.due_ns is None


@given(st.lists(st.integers(0, 2 * LONGEST_NS), max_size=30))
def test_whatever_jobs_do_the_next_is_expected_for_a_short_time(intervals_ns: list[int]) -> None:
    estimator, last_ns = estimator_of(*intervals_ns)
    if estimator.expected_ns is None:
        assert estimator.due_ns is None
        return
    since_ns, until_ns = estimator.expected_ns
    assert estimator.due_ns is not None
    assert last_ns < since_ns < estimator.due_ns < until_ns
    assert until_ns - since_ns <= LEAD_NS + LATE_NS
    assert (until_ns - since_ns) * 5 <= estimator.due_ns - last_ns


@given(st.integers(SHORTEST_NS, LONGEST_NS), st.lists(st.integers(-100_000, 100_000), min_size=9))
def test_small_differences_never_hide_a_habit(period_ns: int, differences: list[int]) -> None:
    """Where the shortest period is not at stake."""
    period_ns += 100_000
    estimator, last_ns = estimator_of(*[min(period_ns + d, LONGEST_NS) for d in differences])
    assert estimator.due_ns is not None
    assert abs(estimator.due_ns - last_ns - period_ns) <= 200_000


# -- how late the last one was, and how long they take ---------------------------------------------


@pytest.mark.parametrize(("late_ns", "seen_ns"), [(0, 0), (MS // 2, MS // 2), (-MS // 2, 0)])
def test_the_next_job_may_be_as_early_as_if_the_last_had_been_in_time(
    late_ns: int, seen_ns: int
) -> None:
    estimator, last_ns = estimator_of(*[10 * MS] * SEEN, 10 * MS + late_ns)
    assert estimator.due_ns == last_ns + 10 * MS
    assert estimator.soonest_ns == estimator.due_ns - seen_ns


def test_who_came_late_some_times_ago_is_late_by_what_is_left_of_it() -> None:
    estimator, _ = estimator_of(*[10 * MS] * SEEN, 10 * MS + MS // 2, 10 * MS - MS // 5, 10 * MS)
    assert estimator.due_ns is not None
    assert estimator.soonest_ns == estimator.due_ns - (MS // 2 - MS // 5)


def test_a_program_that_drifts_is_not_waited_for_ever_earlier() -> None:
    """Of one that counts from its own end, each job is a little later than the period says."""
    estimator, _ = estimator_of(*[10 * MS, 10 * MS + MS // 5] * SEEN)
    assert estimator.due_ns is not None
    assert estimator.soonest_ns is not None
    assert 0 <= estimator.due_ns - estimator.soonest_ns <= RECENT * MS // 5


@given(st.lists(st.integers(SHORTEST_NS, LONGEST_NS), min_size=SEEN, max_size=3 * SEEN))
def test_the_soonest_time_is_never_after_the_one_that_is_due(intervals_ns: list[int]) -> None:
    estimator, _ = estimator_of(*intervals_ns)
    assert (estimator.soonest_ns is None) == (estimator.due_ns is None)
    if estimator.soonest_ns is not None and estimator.due_ns is not None:
        assert estimator.soonest_ns <= estimator.due_ns


def estimator_with(*lengths_ns: int) -> PeriodEstimator:
    estimator = PeriodEstimator()
    for number, length_ns in enumerate(lengths_ns):
        estimator.began(number * 10 * MS)
        estimator.lasted(length_ns)
    return estimator


def test_jobs_are_alike_if_all_but_the_longest_and_the_shortest_are() -> None:
    assert estimator_with(*[MS] * (SEEN - 1)).lengths_ns is None, "too few"
    assert estimator_with(*[MS] * SEEN).lengths_ns == (MS, MS)
    assert estimator_with(*[MS] * (SEEN - 2), 9 * MS, MS // 9).lengths_ns == (MS, MS)
    assert estimator_with(*[MS] * (SEEN - 2), 2 * MS, 2 * MS).lengths_ns is None
    assert estimator_with(*[MS, MS + ALIKE_NS] * SEEN).lengths_ns == (MS, MS + ALIKE_NS)
    assert estimator_with(*[MS, MS + ALIKE_NS + 1] * SEEN).lengths_ns is None


def test_only_the_last_jobs_count() -> None:
    estimator = estimator_with(*[5 * MS] * SEEN, *[MS] * SEEN)
    assert estimator.lengths_ns == (MS, MS)
    assert estimator.job_ns == MS
    assert PeriodEstimator().job_ns == 0
