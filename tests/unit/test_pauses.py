"""Pauses: which end a job, and how long a turn is kept in one: learned from pauses alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.engine.turns.pauses import (
    BINS,
    LONGEST_INNER_NS,
    Pauses,
    begins_ns,
    bin_of,
)

US, MS = 1000, 1_000_000
HANDOVER_NS = MS // 2
LOSS_NS = 10 * HANDOVER_NS


def of(*pauses_ns: float) -> Pauses:
    pauses = Pauses()
    for pause_ns in pauses_ns:
        pauses.add(int(pause_ns))
    return pauses


def requests(count: int, inner: int, rest_ms: float, seed: int = 1) -> Iterator[float]:
    """A program that reads back so often in each request, and then waits for the next one."""
    numbers = random.Random(seed)
    for _ in range(count):
        for _ in range(inner):
            yield numbers.uniform(30, 400) * US
        yield numbers.uniform(0.7, 1.3) * rest_ms * MS


def kept_ns(pauses: Pauses) -> int:
    return pauses.keep_ns(pauses.split(), HANDOVER_NS, LOSS_NS)


@pytest.mark.parametrize("number", range(BINS))
def test_each_pause_has_its_bin(number: int) -> None:
    assert bin_of(begins_ns(number)) == number
    assert bin_of(begins_ns(number) - 1) == max(0, number - 1)
    assert begins_ns(number + 1) <= 1.5 * begins_ns(number) + 1


@given(st.integers(0, 1 << 70))
def test_there_is_a_bin_for_whatever_is_said(pause_ns: int) -> None:
    assert 0 <= bin_of(pause_ns) < BINS


@pytest.mark.parametrize("inner", [1, 3, 20, 100])
@pytest.mark.parametrize("rest_ms", [5, 20, 90, 2000])
def test_pauses_inside_jobs_and_rests_between_them_are_told_apart(
    inner: int, rest_ms: float
) -> None:
    split = of(*requests(12, inner, rest_ms)).split()
    assert split is not None
    assert 400 * US < split.rest_ns < 0.7 * rest_ms * MS


@pytest.mark.parametrize("inner", [3, 20, 100])
def test_a_turn_is_kept_through_the_pauses_of_a_job_and_little_longer(inner: int) -> None:
    assert 400 * US <= kept_ns(of(*requests(12, inner, 20))) <= 800 * US


@pytest.mark.parametrize("inner", [5, 20])
def test_a_busy_machine_makes_some_pauses_longer(inner: int) -> None:
    """By any time: the rests are rare beside the others, and still a heap of their own."""
    numbers = random.Random(1)
    pauses = Pauses()
    for pause_ns in requests(60, inner, 40):
        late = numbers.random() < 0.05
        pauses.add(int(pause_ns + late * numbers.lognormvariate(14.5, 1)))
    split = pauses.split()
    assert split is not None
    assert 500 * US < split.rest_ns < 30 * MS
    assert 400 * US < kept_ns(pauses) < 4 * MS


def test_where_each_job_waits_once_every_pause_is_a_rest() -> None:
    numbers = random.Random(1)
    for pauses in (
        of(*(numbers.uniform(8, 9) * MS for _ in range(500))),
        of(*(numbers.expovariate(1 / 10) * MS for _ in range(500))),  # at any time
    ):
        assert pauses.split() is None
        assert kept_ns(pauses) == 0


def test_who_is_as_good_as_never_without_work_keeps_its_turn() -> None:
    """As training does, which looks at its loss after each step."""
    numbers = random.Random(1)
    pauses = of(*(numbers.lognormvariate(12, 0.5) for _ in range(500)))
    assert pauses.split() is None
    assert 300 * US <= kept_ns(pauses) <= LOSS_NS


def test_pauses_that_are_worth_a_hand_over_are_given_away() -> None:
    """A program that thinks for 30 ms inside its requests, and rests for a second."""
    numbers = random.Random(1)
    pauses = Pauses()
    for _ in range(20):
        for _ in range(4):
            pauses.add(int(numbers.uniform(25, 35) * MS))
        pauses.add(1_000 * MS)
    assert pauses.split() is not None
    assert kept_ns(pauses) == 0


def test_jobs_that_come_back_to_back_are_one() -> None:
    """Of a program that is asked at any time, and sometimes before it is done."""
    numbers = random.Random(1)
    waits = (0.03 if numbers.random() < 0.3 else numbers.expovariate(1 / 10) for _ in range(600))
    assert kept_ns(of(*(wait * MS for wait in waits))) <= 100 * US


def test_what_a_program_did_when_it_started_is_soon_forgotten() -> None:
    pauses = of(*[1_000 * MS] * 3)
    for _ in range(40):
        pauses.add(4 * MS)
        pauses.split()
    assert pauses.split() is None
    assert kept_ns(pauses) == 0


def test_a_program_that_changes_is_learned_anew() -> None:
    pauses = of(*requests(60, 20, 20))
    for pause_ns in requests(60, 5, 400, seed=2):
        pauses.add(int(20 * pause_ns) if pause_ns < MS else int(pause_ns))
    split = pauses.split()
    assert split is not None
    assert 8 * MS < split.rest_ns <= LONGEST_INNER_NS


def test_rests_that_become_a_little_shorter_are_rests_still() -> None:
    """As those of regular jobs do once others are let in between and the jobs take longer."""
    before_ns, after_ns = 2.2 * MS, 1.9 * MS
    assert bin_of(int(before_ns)) != bin_of(int(after_ns))
    pauses = of(*(2 * US, before_ns) * 40)
    for _ in range(60):
        pauses.add(2 * US)
        pauses.add(int(after_ns))
        split = pauses.split()
        assert split is not None
        assert 2 * US < split.rest_ns < after_ns
        assert kept_ns(pauses) < 10 * US


def test_how_often_jobs_come_decides_between_two_valleys() -> None:
    """Pauses of 0.1 ms in a batch, 4 ms between batches, 200 ms between requests of four."""
    pauses = Pauses()
    counters = [0] * BINS
    for _ in range(10):
        for _ in range(4):
            for pause_ns in [100 * US] * 10 + [4 * MS]:
                counters[bin_of(pause_ns)] += 1
        counters[bin_of(200 * MS)] += 1
        pauses.observe(counters, 220 * MS)
    by_request, by_batch = pauses.split(period_ns=220 * MS), pauses.split(period_ns=50 * MS)
    assert by_request is not None
    assert by_batch is not None
    assert 6 * MS < by_request.rest_ns < 200 * MS
    assert 150 * US < by_batch.rest_ns < 4 * MS


def test_counters_count_from_the_last_look_and_may_wrap() -> None:
    pauses = Pauses()
    counters = [0] * BINS
    counters[5] = 7
    pauses.observe(counters, MS)
    pauses.observe(counters, MS)
    assert pauses.total == 7
    other = Pauses()
    other._seen[5] = (1 << 32) - 2
    other.observe([0] * 5 + [3] + [0] * (BINS - 6), MS)
    assert other.total == 5


@given(st.lists(st.lists(st.integers(0, (1 << 32) - 1), min_size=BINS, max_size=BINS), max_size=6))
def test_whatever_is_said_a_turn_is_kept_for_a_bounded_time(told: list[list[int]]) -> None:
    pauses = Pauses()
    for counters in told:
        pauses.observe(counters, 10 * MS)
        split = pauses.split()
        assert split is None or 0 < split.rest_ns <= LONGEST_INNER_NS
        assert 0 <= pauses.keep_ns(split, HANDOVER_NS, LOSS_NS) <= 2 * LOSS_NS
