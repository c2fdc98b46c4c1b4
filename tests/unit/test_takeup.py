"""A stream that begins in the middle of a run stands for itself: what is right passes, what is
wrong is found, and what was dropped is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import (
    Began,
    Completed,
    Dispatched,
    Ended,
    Event,
    Found,
    Recorder,
    Submitted,
    TakenUp,
    TaskAdded,
)
from headway.trace.checker import check
from tests.bench.drives import (
    MS,
    RUNS,
    Drive,
    RandomDrive,
    broken,
    complaints,
    drives,
    everything_run,
    pe,
)
from tests.bench.mistakes import MISTAKES
from tests.bench.taking_up import take_up


@contextmanager
def taking_up(monkeypatch: pytest.MonkeyPatch, ms: int) -> Iterator[list[list[Event]]]:
    """Somebody comes at this time to every drive that is made."""
    streams: list[list[Event]] = []
    make = Drive.__init__

    def init(drive: Drive, **options: int) -> None:
        make(drive, **options)
        streams.append(take_up(drive, ms))

    with monkeypatch.context() as patch:
        patch.setattr(Drive, "__init__", init)
        yield streams


@pytest.mark.parametrize("ms", [0, 1, 3, 4, 6, 9, 14, 26])
@pytest.mark.parametrize("run", [*RUNS, everything_run], ids=lambda run: run.__name__)
def test_what_is_right_passes_from_any_time_on(
    run: Callable[[], list[Event]], ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with taking_up(monkeypatch, ms) as streams:
        run()
    (events,) = streams
    assert [type(event) for event in events[:2]] == [Began, TakenUp]
    assert type(events[-1]) is Ended
    assert complaints(events) == []


@given(drives(rix=True, changes="all"), st.integers(0, 45))
@settings(deadline=None, max_examples=100)
def test_a_random_run_passes_from_any_time_on(drive: RandomDrive, ms: int) -> None:
    drive.plan.append(f"take up at {ms}")
    events = take_up(drive, ms)
    drive.run(80)
    assert complaints(events) == []


@given(drives(late_ns=MS // 3), st.integers(0, 45))
@settings(deadline=None, max_examples=100)
def test_a_run_with_late_timers_passes_from_any_time_on(drive: RandomDrive, ms: int) -> None:
    events = take_up(drive, ms)
    drive.run(80)
    assert complaints(events, tolerance_ns=MS // 3) == []


@pytest.mark.parametrize(
    ("mistakes", "caught"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_what_is_wrong_is_found_from_the_middle_on(
    mistakes: dict[str, object], caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, mistake in mistakes.items():
        monkeypatch.setattr(target, mistake)
    with taking_up(monkeypatch, 1) as streams:
        for run in [everything_run, *RUNS]:
            run()
    assert caught <= set().union(*map(broken, streams))


def test_a_group_that_waits_and_one_that_executes_are_told_with_their_times() -> None:
    drive = Drive()
    drive.task("video", 3, reserve=pe(2, 10))
    drive.task("batch", 1)
    drive.submit(0, "batch", 5)
    drive.submit(1, "video", 3, 1)
    events = take_up(drive, 2)
    drive.run(100)
    told = events[: [type(event) for event in events].index(Found)]
    assert [(e.ns, e.task) for e in told if isinstance(e, Submitted)] == [
        (0, "batch"),
        (1 * MS, "video"),
    ]
    assert [(e.ns, e.task) for e in told if isinstance(e, Dispatched)] == [(0, "batch")]
    assert [e.task for e in events if isinstance(e, Completed)] == ["batch", "video", "video"]


def two_streams(dropped: int) -> list[Event]:
    """A run of which some records got lost between 3 and 14 ms."""
    early: list[Event] = []
    drive = Drive()
    drive.engine.attach(Recorder(early.append))
    drive.task("video", 3, reserve=pe(2, 10))
    drive.task("batch", 1)
    for ms in range(0, 60, 5):
        drive.submit(ms, "video", 1, 2)
        drive.submit(ms, "batch", 2, 1)
    late = take_up(drive, 14)
    drive.run(100)
    head = [event for event in early if event.ns < 3 * MS]
    gap, *rest = late[1:]
    return [Began(0, 1), *head, TakenUp(gap.ns, dropped), *rest]


def test_a_gap_breaks_no_rule_and_is_counted() -> None:
    checker = check(two_streams(dropped=17))
    assert checker.violations == []
    assert (checker.gaps, checker.lost) == (1, 17)


def test_without_the_gap_the_same_records_break_rules() -> None:
    events = [e for e in two_streams(17) if not isinstance(e, TakenUp | Found)]
    assert broken(events)


def test_a_violation_after_a_gap_is_found() -> None:
    events = two_streams(17)
    place = max(i for i, e in enumerate(events) if isinstance(e, Dispatched))
    events[place:place] = [events[place]]
    assert "sequence" in broken(events)


def test_a_stream_that_ends_within_a_gap_is_no_violation() -> None:
    events = [Began(0, 1), TaskAdded(0, "a", "prt", "0", 0), Submitted(0, "a", 0, 0, None)]
    checker = check([*events, TakenUp(50 * MS, 9), Ended(50 * MS, True)])
    assert (checker.count, checker.lost, checker.ended) == (0, 9, True)
