"""What programs are told of when somebody more important is due: without processes, with our
clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.engine.reserves import ReserveSpec
from headway.live.gate.arbiter import Arbiter, Bounds
from headway.live.gate.channel import Channel
from tests.bench.gate import MS
from tests.bench.regular import JOBS, PERIOD_NS, RegularBench
from tests.bench.turns import HOLD_NS
from tests.pages import page

CALM_NS = MS
NOTHING = (0, 0, 0, 0)


class Calms(RegularBench):
    def __init__(self, calm_ns: int = CALM_NS) -> None:
        super().__init__()
        bounds = Bounds(HOLD_NS, calm_ns=calm_ns)
        self.arbiter = Arbiter(self.engine, lambda _: None, bounds)


@pytest.fixture
def bench() -> Iterator[Calms]:
    bench = Calms()
    yield bench
    assert bench.checker.violations == []
    bench.close()


def known(channel: Channel) -> tuple[int, ...]:
    """How long its pieces may be, when somebody is due, again, and for how long."""
    return tuple(page(channel, name) for name in ("calm_ns", "due_ns", "period_ns", "job_ns"))


@pytest.mark.parametrize("count", [JOBS - 1, JOBS])
def test_who_has_somebody_regular_above_it_knows_when_that_one_comes(
    bench: Calms, count: int
) -> None:
    low, high = bench.long(piece_ns=0), bench.turner("high", 9)
    due_ns = bench.jobs(high, count)
    assert known(low) == ((CALM_NS, due_ns, PERIOD_NS, MS) if count == JOBS else NOTHING)
    assert known(high) == NOTHING


def test_a_late_job_does_not_make_the_next_one_late(bench: Calms) -> None:
    low, high = bench.long(piece_ns=0), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    late_ns = MS // 2
    bench.come(high, due_ns + late_ns)
    assert known(low)[1] == due_ns + PERIOD_NS
    bench.be_done(high, due_ns + MS)


@pytest.mark.parametrize("level", [1, 9])
def test_nobody_knows_with_others_whom_nothing_is_known_of(bench: Calms, level: int) -> None:
    """More important, or as important, with whom turns are shared."""
    low, high = bench.long(piece_ns=0), bench.turner("high", 9)
    bench.jobs(high)
    assert known(low) != NOTHING
    other = bench.turner("other", level, at_ns=bench.now_ns)
    bench.arbiter.changed()
    assert known(low) == NOTHING
    bench.arbiter.remove(other, bench.now_ns)
    bench.arbiter.changed()
    assert known(low) != NOTHING


def test_of_several_who_come_the_first_is_known_and_nothing_after_it(bench: Calms) -> None:
    low, high, higher = bench.long(piece_ns=0), bench.turner("high", 8), bench.turner("higher", 9)
    for _ in range(JOBS):
        begin_ns = bench.now_ns + PERIOD_NS - 6 * MS
        bench.come(high, begin_ns)
        bench.be_done(high, begin_ns + MS)
        bench.come(higher, begin_ns + 4 * MS)
        bench.be_done(higher, begin_ns + 6 * MS)
    assert known(low) == (CALM_NS, begin_ns + PERIOD_NS, 0, MS)
    bench.come(high, begin_ns + PERIOD_NS)
    assert known(low) == (CALM_NS, begin_ns + PERIOD_NS + 4 * MS, 0, 2 * MS)
    bench.be_done(high, begin_ns + PERIOD_NS + MS)


def test_who_has_a_budget_cannot_tell_when_its_work_will_run(bench: Calms) -> None:
    low, high = bench.long(piece_ns=0), bench.turner("high", 9)
    assert low.task is not None
    bench.engine.set_reserve(low.task, ReserveSpec("pe", 5 * MS, 20 * MS), 0)
    bench.jobs(high)
    assert known(low) == NOTHING


def test_it_is_forgotten_when_jobs_are_no_longer_regular(bench: Calms) -> None:
    low, high = bench.long(piece_ns=0), bench.turner("high", 9)
    bench.jobs(high)
    bench.jobs(high, JOBS, odd_ns=3 * MS)
    assert known(low) == NOTHING


def test_nothing_is_told_unless_that_is_wanted() -> None:
    bench = Calms(calm_ns=0)
    low, high = bench.long(piece_ns=0), bench.turner("high", 9)
    bench.jobs(high)
    assert known(low) == NOTHING
    bench.close()


def test_pieces_that_are_long_because_nobody_is_due_are_not_held_back(bench: Calms) -> None:
    low, high = bench.long(piece_ns=CALM_NS), bench.turner("high", 9)
    due_ns = bench.jobs(high)
    bench.go(due_ns - 1)
    assert low.held.until_ns == 0
