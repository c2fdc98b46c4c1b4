"""Charging a group that goes on: what was executed is paid for once, whenever that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import (
    Charged,
    Completed,
    Dispatched,
    Event,
    Joined,
    Observer,
    Replenished,
    ReserveSet,
    Submitted,
    TaskAdded,
)
from headway.engine.model import Group
from headway.engine.reserves import Reserve, ReserveSpec
from headway.trace.analysis.history import read_history
from headway.trace.analysis.summary import summarise
from headway.trace.statistics import Statistics
from headway.trace.tally import Tally
from tests.bench.drives import (
    MS,
    Drive,
    RandomDrive,
    altered,
    broken,
    charge_run,
    complaints,
    drives,
    moved_to,
    pe,
    place,
    without,
)
from tests.bench.taking_up import take_up


def charges(events: list[Event]) -> list[tuple[int, int, int]]:
    """When, how much and what was left, of everything that was paid."""
    paid: Counter[tuple[str, int]] = Counter()
    rows = []
    for event in events:
        if isinstance(event, Charged):
            paid[event.task, event.index] += event.amount_ns
            rows.append((event.ns, event.amount_ns, event.budget_ns))
        elif isinstance(event, Completed) and event.reserve is not None:
            rest_ns = event.ns - event.started_ns - paid.pop((event.task, event.index), 0)
            rows.append((event.ns, rest_ns, event.budget_ns))
    return [(ns // MS, amount_ns // MS, left_ns // MS) for ns, amount_ns, left_ns in rows]


# -- the engine --------------------------------------------------------------------------------


def test_a_period_that_is_over_pays_before_it_is_replenished() -> None:
    """70 of 100 ms; a turn of 60 ms from 80 ms on, of which 20 are before the period's end."""
    for parts, left_ms in (((20,), 30), ((), 10)):
        drive = Drive()
        drive.task("turns", reserve=pe(70, 100))
        drive.submit(80, "turns", 60)
        for part in parts:
            drive.charge(100, "turns", part)
        events = drive.run(150)
        assert complaints(events) == []
        assert charges(events)[-1] == (140, 60 - sum(parts), left_ms)


def test_a_full_reserve_is_replenished_for_a_charge_that_comes_late() -> None:
    """Until it is charged it is full, and a full one has no timer that would be late."""
    drive = Drive()
    drive.task("turns", reserve=pe(70, 100))
    drive.submit(0, "turns", 500)

    def charge(now_ns: int) -> None:
        (group,) = drive.engine.gpus[0].online
        drive.engine.charge(group, 200 * MS, 200 * MS, now_ns)
        drive.engine.charge(group, 200 * MS, 400 * MS, now_ns)

    drive.at(410, charge, early=True)
    events = drive.run(420)
    assert complaints(events, tolerance_ns=10 * MS) == []
    budgets = [(e.ns // MS, e.budget_ns // MS) for e in events if isinstance(e, Replenished)]
    assert budgets == [(100, 70), (410, 70 - 400 + 3 * 70)]


def test_nothing_is_replenished_before_the_first_period_of_a_new_reserve_is_over() -> None:
    drive = Drive()
    drive.task("turns")
    drive.submit(0, "turns", 60)
    drive.set_reserve(30, "turns", pe(7, 20))
    drive.charge(31, "turns", 31)
    events = drive.run(45)
    assert complaints(events) == []
    assert charges(events) == [(31, 31, -24)]
    assert not any(isinstance(event, Replenished) for event in events)


def test_a_task_without_a_reserve_pays_nothing() -> None:
    drive = Drive()
    task = drive.task("free")
    drive.submit(0, "free", 60)
    drive.charge(30, "free", 30)
    events = drive.run(100)
    assert not any(isinstance(event, Charged) for event in events)
    assert complaints(events) == []
    assert task.gpu_ns == 60 * MS


def test_a_predictor_learns_what_the_whole_group_cost() -> None:
    engine = Engine()
    spec = ReserveSpec("ae", 50 * MS, 100 * MS, predict="history")
    task, _ = engine.add_task("turns", 0, reserve=spec)
    for index, start_ms in enumerate((0, 200)):
        group = Group(task, index, signature=("same",))
        engine.submit(group, start_ms * MS)
        assert engine.dispatch(start_ms * MS) is group
        engine.charge(group, 10 * MS, (start_ms + 20) * MS, (start_ms + 20) * MS)
        engine.complete(group, start_ms * MS, (start_ms + 40) * MS)
        engine.advance((start_ms + 100) * MS)
    last = Group(task, 2, signature=("same",))
    engine.submit(last, 400 * MS)
    assert last.predicted_ns == 40 * MS


@pytest.mark.parametrize(
    ("amount_ns", "until_ns", "now_ns"),
    [(0, 5, 5), (-1, 5, 5), (6, 5, 5), (3, 5, 5), (1, 6, 5)],
    ids=["nothing", "less than that", "more than there was time for", "twice", "the future"],
)
def test_what_cannot_be_is_refused(amount_ns: int, until_ns: int, now_ns: int) -> None:
    engine = Engine()
    task, _ = engine.add_task("turns", 0, reserve=ReserveSpec("pe", 7, 10))
    group = Group(task, 0)
    with pytest.raises(ValueError, match="is not online"):
        engine.charge(group, 1, 5, 5)
    engine.submit(group, 0)
    engine.dispatch(0)
    engine.charge(group, 3, 4, 4)
    with pytest.raises(ValueError, match="cannot have run"):
        engine.charge(group, amount_ns, until_ns, now_ns)
    with pytest.raises(ValueError, match="paid for 3"):
        engine.complete(group, 3, 5)


def test_who_comes_later_hears_what_was_paid_and_does_not_count_it() -> None:
    """10 of 25 ms were charged before somebody came: a further 9, and then the rest."""
    drive = Drive()
    drive.task("turns", reserve=pe(7, 10))
    drive.submit(0, "turns", 25)
    for ms, amount_ms in ((10, 10), (14, 1), (20, 8)):
        drive.charge(ms, "turns", amount_ms)
    late = take_up(drive, 12)
    events = drive.run(30)
    assert complaints(late) == []
    for stream, charged_ms in ((events, [10, 1, 8, 6]), (late, [1, 8, 6])):
        facts = read_history(stream).reserves["turns"]
        assert [charge_ns // MS for charge_ns in facts.charged_ns] == charged_ms


# -- anything ----------------------------------------------------------------------------------


class Caps(Observer):
    """No budget is ever above what it may be filled up to."""

    def __init__(self) -> None:
        self.saved_ns = 0
        """What an ae group may have saved up for."""

    def charged(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None:
        assert group.task.reserve is not None
        self.look(group.task.reserve)

    def completed(self, group: Group, now_ns: int) -> None:
        if group.task.reserve is not None:
            self.look(group.task.reserve)

    def replenished(self, reserve: Reserve, now_ns: int) -> None:
        self.look(reserve)

    def look(self, reserve: Reserve) -> None:
        costs_ns = [group.predicted_ns for group in reserve.waiting.values()]
        self.saved_ns = max([self.saved_ns, *costs_ns])
        assert reserve.budget_ns <= max(reserve.cap_ns, self.saved_ns)


class ChargingDrive(RandomDrive):
    """Whatever executes is charged for now and then, in part or wholly, until then or until a
    period of its reserve was over that is not replenished yet."""

    def __init__(self, **options: int) -> None:
        super().__init__(**options)
        self.random = Random(0)
        self.statistics = Statistics()
        self.engine.attach(self.statistics)
        for ms in range(0, 80, 2):
            self.at(ms, lambda now_ns: None, early=True)

    def charge_heads(self, now_ns: int) -> None:
        for gpu in self.engine.gpus:
            reserve = gpu.online[0].task.reserve if gpu.online else None
            if reserve is None or self.random.random() < 0.5:
                continue
            until_ns = min(now_ns, reserve.next_ns or now_ns)
            part_ns = self.random.choice((1, MS // 3, MS, 1000 * MS))
            self.charge_part(gpu.online[0], part_ns, until_ns, now_ns)


def check_books(drive: RandomDrive, events: list[Event]) -> None:
    """Everything adds up, whoever does the sum."""
    assert isinstance(drive, ChargingDrive)
    paid: Counter[tuple[str, int]] = Counter()
    by_reserve: Counter[str] = Counter()
    ran: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Charged):
            assert event.reserve is not None
            assert event.amount_ns > 0
            paid[event.task, event.index] += event.amount_ns
            by_reserve[event.reserve] += event.amount_ns
        elif isinstance(event, Completed):
            whole_ns = event.ns - event.started_ns
            rest_ns = whole_ns - paid.pop((event.task, event.index), 0)
            assert rest_ns >= 0
            ran[event.task] += whole_ns
            if event.reserve is not None:
                by_reserve[event.reserve] += rest_ns
    summary = summarise(read_history(events))
    assert {r.name: r.charged_ns for r in summary.reserves if r.charged_ns} == +by_reserve
    statistics: Counter[str] = Counter()
    for entry in drive.statistics.reserves.values():
        statistics[entry.reserve.name] += entry.charged_ns
    assert +statistics == +by_reserve
    tally = Tally()
    for event in events:
        tally.feed(event)
    assert {name: task.gpu_ns for name, task in tally.tasks.items() if task.gpu_ns} == +ran


@given(drives(kind=ChargingDrive, changes="all"), st.integers(0, 1000))
@settings(deadline=None, max_examples=200)
def test_charges_add_up_and_keep_the_rules(drive: RandomDrive, seed: int) -> None:
    assert isinstance(drive, ChargingDrive)
    drive.engine.attach(Caps())
    drive.random.seed(seed)
    events = drive.run(80)
    assert complaints(events) == []
    check_books(drive, events)


@given(drives(kind=ChargingDrive, rix=True, changes="all"), st.integers(0, 45))
@settings(deadline=None, max_examples=200)
def test_charges_of_lent_budgets_keep_the_rules_from_any_time_on(
    drive: RandomDrive, ms: int
) -> None:
    late = take_up(drive, ms)
    events = drive.run(80)
    assert complaints(events) == []
    assert complaints(late) == []
    check_books(drive, events)


@given(drives(kind=ChargingDrive, late_ns=MS // 3), st.integers(0, 1000))
@settings(deadline=None, max_examples=100)
def test_late_charges_keep_the_rules(drive: RandomDrive, seed: int) -> None:
    assert isinstance(drive, ChargingDrive)
    drive.random.seed(seed)
    events = drive.run(80)
    assert complaints(events, tolerance_ns=MS // 3) == []
    check_books(drive, events)


# -- what is wrong is found ----------------------------------------------------------------------


def again(events: list[Event], at: int) -> list[Event]:
    return [*events[: at + 1], *events[at:]]


def nobody(events: list[Event], at: int) -> list[Event]:
    return altered(events, at, index=7)


def more(events: list[Event], at: int) -> list[Event]:
    """One more, and everything after it says so too."""
    charged = events[at]
    assert isinstance(charged, Charged)
    return altered(events, at, amount_ns=charged.amount_ns + MS, budget_ns=charged.budget_ns - MS)


def too_late(events: list[Event], at: int) -> list[Event]:
    """After the replenishment of the period that is over, with budgets that fit that."""
    replenished = place(events, Replenished, reserve=events[at].reserve)  # type: ignore[attr-defined]
    assert replenished > at
    charged = events[at]
    assert isinstance(charged, Charged)
    order = [*events[:at], *events[at + 1 : replenished + 1], charged, *events[replenished + 1 :]]
    order = altered(order, replenished - 1, budget_ns=7 * MS)
    return altered(order, replenished, budget_ns=7 * MS - charged.amount_ns)


WRONG: dict[str, tuple[Callable[[list[Event], int], list[Event]], set[str]]] = {
    "a charge is left out": (without, {"budget"}),
    "a charge is told twice": (again, {"sequence", "budget"}),
    "a group is charged that is not there": (nobody, {"sequence", "budget"}),
    "more is charged than was executed": (more, {"sequence"}),
    "a charge comes after the replenishment": (too_late, {"budget"}),
    "a charge states another budget": (
        lambda events, at: altered(events, at, budget_ns=0),
        {"budget"},
    ),
    "a charge is for another amount": (
        lambda events, at: altered(events, at, amount_ns=MS),
        {"budget"},
    ),
    "another reserve is charged": (
        lambda events, at: altered(events, at, reserve="@pool"),
        {"budget"},
    ),
    "a charge is for what is to come": (
        lambda events, at: altered(events, at, until_ns=11 * MS),
        {"sequence"},
    ),
    "a charge comes before its time": (
        lambda events, at: moved_to(events, at, at - 1),
        {"sequence"},
    ),
}


@pytest.mark.parametrize(("breaks", "rules"), WRONG.values(), ids=WRONG.keys())
def test_a_doctored_charge_is_found(
    breaks: Callable[[list[Event], int], list[Event]], rules: set[str]
) -> None:
    events = charge_run()
    assert complaints(events) == []
    assert rules <= broken(breaks(events, place(events, Charged)))


def test_a_group_that_ran_for_less_than_it_paid_for_is_found() -> None:
    events = charge_run()
    at = place(events, Completed, task="turns", index=0)
    done = events[at]
    assert isinstance(done, Completed)
    short = replace(done, started_ns=done.ns - 10 * MS)
    assert "sequence" in broken([*events[:at], short, *events[at + 1 :]])


def test_bandwidth_parts_add_up_to_more_than_the_reserve() -> None:
    """Even where every event claims that there is budget left."""
    reserve = ReserveSet(0, "r", "pe", 2 * MS, 10 * MS, 2 * MS, 0, False)
    events: list[Event] = [TaskAdded(0, "a", "prt", "0", 0), reserve, Joined(0, "a", "r")]
    for index in range(4):
        ns = 2 * index * MS
        events.append(Submitted(ns, "a", index, 0, None))
        events.append(Dispatched(ns, "a", index, 0))
        events.append(Charged(ns + MS, "a", index, ns + MS, MS, "r", MS))
        events.append(Completed(ns + 2 * MS, "a", index, 0, ns, ns, "r", MS, False, None))
    assert broken(events) == {"budget", "bandwidth"}
    assert "bandwidth" not in broken(events[: 3 + 4 * 2]), "one group's overrun is allowed"
