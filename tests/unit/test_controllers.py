"""Controllers of shares, against plants whose answer is known: a task that misses if the others
have more than so much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.controllers import Controller, controllers
from headway.engine.controllers.aimd import Aimd
from headway.engine.controllers.bisection import CONFIRMED, FIRST, RESOLUTION, Bisection
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


@settings(deadline=None)
@given(st.integers(10, 1000))
def test_bisection_finds_the_largest_share_without_misses(limit: int) -> None:
    """Halvings to below the limit, and bisections of what is left, can each miss once."""
    controller = made(Bisection(), HIGH, LOW)
    told = run(controller, limit, 20 * CONFIRMED)
    assert limit - 2 * RESOLUTION < controller.share(LOW) <= limit
    halvings = next(n for n in range(10) if max(10, 1000 >> n) <= limit)
    assert sum(missed for _, missed in told) <= halvings + 6
    assert not any(missed for _, missed in told[halvings : halvings + CONFIRMED])


@settings(deadline=None)
@given(st.integers(10, 999))
def test_bisection_does_not_saw_tooth(limit: int) -> None:
    """After the search a miss is a rare trial, and each comes twice as late as the one before."""
    controller = made(Bisection(), HIGH, LOW)
    run(controller, limit, 20 * CONFIRMED)
    told = run(controller, limit, 7 * FIRST, first=1000)
    assert sum(missed for _, missed in told) <= 6
    assert min(share for share, _ in told) > limit - 2 * RESOLUTION
    sawtooth = run(made(Aimd(), HIGH, LOW), limit, 7 * FIRST)
    if 300 <= limit < 900:  # of smaller ones the resolution is a large part
        assert sum(missed for _, missed in sawtooth) > 10
        assert sum(share for share, _ in told) > 1.2 * sum(share for share, _ in sawtooth)


@settings(deadline=None)
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


@settings(deadline=None)
@given(st.integers(20, 1000), st.integers(20, 1000))
def test_a_program_that_changes_is_followed(before: int, after: int) -> None:
    controller = made(Bisection(), HIGH, LOW)
    run(controller, before, 20 * CONFIRMED)
    run(controller, after, 20 * FIRST, first=1000)
    assert after - 3 * RESOLUTION <= controller.share(LOW) <= after + RESOLUTION


def test_jobs_that_began_before_a_change_was_done_do_not_count() -> None:
    """A restart takes a while: the misses meanwhile are of the share before."""
    controller = made(Bisection(between_ns=5 * PERIOD_NS), HIGH, LOW)
    end(controller, HIGH, 0, missed=True)
    for number in range(1, 6):
        end(controller, HIGH, number, missed=True)
        assert controller.share(LOW) == 500
    end(controller, HIGH, 6, missed=True)
    assert controller.share(LOW) == 250


def test_a_tasks_own_range_is_kept_and_no_lower_level_is_searched() -> None:
    low = replace(LOW, shares=Range(250, 800))
    controller = made(Bisection(), HIGH, low)
    assert controller.share(low) == 800
    for number in range(20):
        end(controller, HIGH, number, missed=True)
    assert controller.share(low) == controller.level(HIGH) == 250


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
