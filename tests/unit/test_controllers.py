"""Controllers of shares, against plants whose answer is known: a task that misses if the others
have more than so much."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.controllers import Controller, controllers
from headway.engine.controllers.aimd import Aimd
from headway.engine.controllers.bisection import CONFIRMED, FIRST, RESOLUTION, SOON, Bisection
from headway.engine.controllers.slowdown import Slowdown
from headway.engine.jobs import Job
from headway.engine.shares import ANY, Range, parse_share, percent

MS = 1_000_000
PERIOD_NS = 10 * MS


@dataclass(frozen=True)
class Program:
    name: str
    rank: int
    shares: Range = ANY


HIGH, MIDDLE, LOW = Program("high", 1), Program("middle", 2), Program("low", 3)


def made(controller: Controller, *tasks: Program) -> Controller:
    for task in tasks:
        controller.joins(task)
    return controller


def end(controller: Controller, task: Program, number: int, missed: bool) -> None:
    begun_ns = number * PERIOD_NS
    controller.job_ended(
        Job(task, number, begun_ns, begun_ns + 4 * MS, 4_500_000, missed=missed), 0.1
    )


def run(controller: Controller, limit: int, jobs: int, first: int = 0) -> list[tuple[int, bool]]:
    """High's jobs miss while low has more than `limit`: low's share in each job, and its fate."""
    told = []
    for number in range(first, first + jobs):
        share = controller.share(LOW)
        told.append((share, share > limit))
        end(controller, HIGH, number, share > limit)
    return told


# -- the report's rule -----------------------------------------------------------------------------


def test_the_report_halves_until_the_deadline_is_met_then_adds_one_per_cent_to_the_next_miss() -> (
    None
):
    """Figure 7: from 100 % down, then a saw-tooth that never ends."""
    told = run(made(Aimd(), HIGH, LOW), limit=437, jobs=100)
    shares = [share for share, _ in told]
    assert shares[:3] == [1000, 500, 250]
    tooth = [*range(220, 441, 10)]
    assert shares[3:22] == [*range(260, 441, 10)]
    assert shares[22:45] == tooth
    assert shares[45:68] == tooth
    assert sum(missed for _, missed in told) == 2 + len([s for s in shares if s == 440])


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from((HIGH, MIDDLE, LOW)), st.booleans()), max_size=200))
def test_aimd_is_the_report_for_any_jobs_of_several_priorities(
    jobs: list[tuple[Program, bool]],
) -> None:
    """ "Halving the partition of all lower priority tasks"; "increase … by 1%"."""
    controller = made(Aimd(), HIGH, MIDDLE, LOW)
    expected = {"high": 1000, "middle": 1000, "low": 1000}
    for number, (task, missed) in enumerate(jobs):
        end(controller, task, number, missed)
        for other in (MIDDLE, LOW):
            if other.rank <= task.rank:
                continue
            if missed:
                expected[other.name] = max(10, expected[other.name] // 2)
            else:
                expected[other.name] = min(1000, expected[other.name] + 10)
        assert {t.name: controller.share(t) for t in (HIGH, MIDDLE, LOW)} == expected


@settings(deadline=None)
@given(
    st.lists(st.booleans(), max_size=300),
    st.integers(1, 400),
    st.integers(0, 200),
    st.integers(0, 10),
)
def test_floor_hysteresis_and_time_between_changes_are_kept(
    misses: list[bool], floor: int, hysteresis: int, periods: int
) -> None:
    low = replace(LOW, shares=Range(100, 900))
    controller = made(Aimd(floor, hysteresis, periods * PERIOD_NS), HIGH, low)
    changes = [(0, 900)]
    for number, missed in enumerate(misses):
        end(controller, HIGH, number, missed)
        if controller.share(low) != changes[-1][1]:
            changes.append((number, controller.share(low)))
        assert max(floor, 100) <= controller.share(low) <= 900
    for (at, before), (then, after) in pairwise(changes[1:]):
        assert then - at >= periods
        assert after < before or after - before >= min(hysteresis, 900 - before)


def test_the_default_hysteresis_and_time_change_nothing() -> None:
    assert run(made(Aimd(), HIGH, LOW), 437, 300) == run(made(Aimd(10, 0, 0), HIGH, LOW), 437, 300)


# -- the largest share without misses --------------------------------------------------------------

SEARCH = FIRST + 8 * CONFIRMED
"""Jobs after which more was tried once, until nothing between good and bad is worth a trial."""


def misses(told: list[tuple[int, bool]]) -> list[int]:
    return [number for number, (_, missed) in enumerate(told) if missed]


@settings(deadline=None, max_examples=50)
@given(st.integers(63, 999), st.integers(0, 1))
def test_misses_end_within_five_jobs_of_the_first(limit: int, lag: int) -> None:
    """`lag`: so many jobs after a change had begun before, and are not told to controllers."""
    controller = made(Bisection(), HIGH, LOW)
    told, has, due = [], 1000, 0
    for number in range(200):
        told.append((has, has > limit))
        if number >= due:
            before = controller.share(LOW)
            end(controller, HIGH, number, has > limit)
            if controller.share(LOW) != before:
                due = number + 1 + lag
        if number + 1 >= due:
            has = controller.share(LOW)
    halvings = next(n for n in range(10) if 1000 >> n <= limit)
    assert len(misses(told)) >= halvings
    assert misses(told)[-1] < max(SOON, (1 + lag) * halvings)
    assert limit // 2 <= has <= limit, "it has no less than the first half that was in time"


@settings(deadline=None, max_examples=25)
@given(st.integers(10, 999))
def test_bisection_finds_the_largest_share_without_misses(limit: int) -> None:
    """Much later, when a program may have changed: each trial can be one miss."""
    controller = made(Bisection(), HIGH, LOW)
    told = run(controller, limit, SEARCH)
    assert limit - 2 * RESOLUTION < controller.share(LOW) <= limit
    late = [number for number in misses(told) if number > 2 * SOON]
    assert len(late) <= 6
    assert all(number > FIRST for number in late)


@settings(deadline=None, max_examples=25)
@given(st.integers(300, 900))
def test_bisection_does_not_saw_tooth(limit: int) -> None:
    controller = made(Bisection(), HIGH, LOW)
    run(controller, limit, SEARCH)
    told = run(controller, limit, FIRST, first=SEARCH)
    sawtooth = run(made(Aimd(), HIGH, LOW), limit, FIRST)
    assert len(misses(told)) <= 3
    assert len(misses(sawtooth)) > 10
    assert sum(share for share, _ in told) > 1.1 * sum(share for share, _ in sawtooth)


@settings(deadline=None, max_examples=25)
@given(st.integers(30, 1000), st.integers(30, 1000))
def test_what_was_found_is_remembered_for_each_combination_of_tasks(one: int, other: int) -> None:
    controller = made(Bisection(), HIGH, LOW)
    run(controller, one, 30 * CONFIRMED)
    found = controller.share(LOW)
    controller.joins(MIDDLE)
    assert controller.share(LOW) == 1000, "nothing is known of the three"
    run(controller, other, 30 * CONFIRMED, first=1000)
    assert controller.share(LOW) <= other
    of_three = controller.share(LOW)
    controller.leaves(MIDDLE)
    assert controller.share(LOW) == found
    assert not any(missed for _, missed in run(controller, one, CONFIRMED, first=2000))
    controller.leaves(LOW)
    controller.joins(LOW)
    controller.joins(MIDDLE)
    assert controller.share(LOW) == of_three


@settings(deadline=None, max_examples=12)
@given(st.integers(20, 1000), st.integers(20, 1000))
def test_a_program_that_changes_is_followed(before: int, after: int) -> None:
    controller = made(Bisection(), HIGH, LOW)
    run(controller, before, 20 * CONFIRMED)
    told = run(controller, after, 3 * FIRST, first=1000)
    assert after - 3 * RESOLUTION <= controller.share(LOW) <= after
    assert len(misses(told)) <= 24


def noisy(controller: Controller, chance: Callable[[int], float], jobs: int) -> tuple[float, int]:
    """Jobs miss with a chance that depends on low's share: the mean share, and the misses."""
    draws, shares, missed = random.Random(1), 0, 0
    made(controller, HIGH, LOW)
    for number in range(jobs):
        share = controller.share(LOW)
        late = draws.random() < chance(share)
        end(controller, HIGH, number, late)
        shares, missed = shares + share, missed + late
    return shares / jobs, missed


def test_misses_that_have_nothing_to_do_with_the_others_do_not_starve_them() -> None:
    share, _ = noisy(Bisection(), lambda share: 0.01, 10_000)
    assert share > 600
    share, _ = noisy(Bisection(), lambda share: 1.0 if share > 400 else 0.01, 10_000)
    assert share > 200


def test_a_level_at_which_few_jobs_miss_is_left() -> None:
    def chance(share: int) -> float:
        return 1.0 if share > 600 else 0.02 if share > 300 else 0.0

    share, missed = noisy(Bisection(), chance, 20_000)
    of_aimd, missed_of_aimd = noisy(Aimd(), chance, 20_000)
    assert missed < missed_of_aimd / 10
    assert share > of_aimd / 2


def test_jobs_that_began_before_a_change_was_done_do_not_count() -> None:
    """A restart takes a while: the misses meanwhile are of the share before."""
    controller = made(Bisection(between_ns=5 * PERIOD_NS), HIGH, LOW)
    end(controller, HIGH, 0, missed=True)
    for number in range(1, 6):
        end(controller, HIGH, number, missed=True)
        assert controller.share(LOW) == 500
    end(controller, HIGH, 6, missed=True)
    assert controller.share(LOW) == 250


def test_a_tasks_own_range_is_kept_and_levels_go_below_it_for_the_gate() -> None:
    """Who may not be given so little as the important task stands is gated in time instead."""
    for shares in (Range(250, 800), Range(1000, 1000)):
        low = replace(LOW, shares=shares)
        controller = made(Bisection(), HIGH, low)
        assert controller.share(low) == shares.most
        for number in range(20):
            end(controller, HIGH, number, missed=True)
        assert controller.share(low) == shares.least
        assert controller.level(HIGH) < 100


# -- one interface ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(controllers()))
@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from((HIGH, MIDDLE, LOW)), st.booleans()), max_size=60))
def test_levels_and_shares_say_the_same(name: str, jobs: list[tuple[Program, bool]]) -> None:
    controller = made(controllers()[name](), HIGH, MIDDLE, LOW)
    for number, (task, missed) in enumerate(jobs):
        end(controller, task, number, missed)
        assert controller.share(HIGH) == 1000, "nobody is more important"
        for low in (MIDDLE, LOW):
            above = [controller.level(other) for other in (HIGH, MIDDLE) if other.rank < low.rank]
            assert 10 <= controller.share(low) <= 1000
            if name == "aimd":  # a level is the most that anybody there has
                assert controller.share(low) <= min(above)
            else:
                assert controller.share(low) == max(10, min(above))


def test_the_next_program_of_a_name_begins_anew_where_only_levels_were_learned() -> None:
    controller = made(Slowdown(), HIGH, LOW)
    end(controller, HIGH, 0, missed=True)
    assert controller.level(HIGH) == 500
    controller.leaves(HIGH)
    assert controller.level(HIGH) == 1000


@pytest.mark.parametrize("kind", [Aimd, Bisection])
def test_a_floor_of_nothing_is_refused(kind: type[Aimd | Bisection]) -> None:
    with pytest.raises(ValueError, match="floor: expected more than 0"):
        kind(floor=0)


# -- as people write them --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("50%", Range(500, 500)),
        ("25%..100%", Range(250, 1000)),
        ("12.5 % .. 20%", Range(125, 200)),
        ("1%", Range(10, 10)),
    ],
)
def test_shares_are_read(text: str, shares: Range) -> None:
    assert parse_share(text) == shares
    assert parse_share(str(shares)) == shares


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("50", "expected a share such as"),
        ("", "expected a share such as"),
        ("0%", "expected shares from 1% to 100%"),
        ("101%", "expected shares from 1% to 100%"),
        ("80%..20%", "expected the smaller share first"),
        ("20%..30%..40%", "expected a share such as"),
    ],
)
def test_other_shares_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_share(text)


def test_shares_are_written_without_needless_digits() -> None:
    assert [percent(p) for p in (1000, 500, 125, 10)] == ["100%", "50%", "12.5%", "1%"]
