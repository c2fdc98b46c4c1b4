"""The checker: silent on what the engine does, loud on every way of doing it wrong."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from headway.engine.core import Engine
from headway.engine.events import (
    Began,
    Completed,
    Dispatched,
    Ended,
    Entered,
    Event,
    Joined,
    Left,
    Moved,
    Ranked,
    Recorder,
    Replenished,
    ReserveSet,
    Submitted,
    TaskAdded,
)
from headway.engine.model import Group, make_rank
from headway.engine.priorities import Fixed
from headway.trace.checker import KEPT, RULES, Checker, Violation, check, describe_rules
from tests.bench.drives import (
    MS,
    NEVER,
    RUNS,
    Drive,
    RandomDrive,
    ae_run,
    altered,
    broken,
    change_run,
    charge_run,
    complaints,
    delayed,
    drives,
    everything_run,
    ht_run,
    moved_to,
    pe,
    pe_run,
    pix_run,
    place,
    prt_run,
    removal_run,
    renamed,
    rix_run,
    without,
)
from tests.bench.mistakes import (
    MISTAKES,
)

# -- what the engine does is right -----------------------------------------------------------


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_correct_run_has_no_violation(run: Callable[[], list[Event]]) -> None:
    events = run()
    assert complaints(events) == []
    assert isinstance(events[-1], Ended)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_correct_run_has_no_violation_up_to_any_event(run: Callable[[], list[Event]]) -> None:
    checker = Checker()
    for event in run()[:-1]:
        checker.feed(event)
        assert not checker.violations
        assert not checker.ended


def test_runs_show_what_they_are_for() -> None:
    """The correct runs would prove little if nothing of interest happened in them."""

    def kinds(events: list[Event]) -> set[str]:
        return {event.kind for event in events}

    assert {"moved", "entered", "left", "replenished", "ranked"} <= kinds(rix_run())
    assert {"task_removed", "left", "moved"} <= kinds(removal_run())
    assert {"ranked", "focused", "joined", "reserve_set"} <= kinds(change_run())
    assert {"charged", "replenished"} <= kinds(charge_run())
    budgets = [e.budget_ns for e in pe_run() if isinstance(e, Completed) and e.reserve]
    assert min(budgets) < -2 * MS
    budgets = [e.budget_ns for e in ae_run() if isinstance(e, Replenished)]
    assert max(budgets) > 2 * MS


# -- random runs -----------------------------------------------------------------------------


@given(drives())
@settings(deadline=None, max_examples=100)
def test_a_random_run_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80)) == []


@given(drives(rix=True, changes="none"))
@settings(deadline=None, max_examples=100)
def test_a_random_run_with_lent_budgets_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80)) == []


@given(drives(rix=True, changes="all"))
@settings(deadline=None, max_examples=100)
def test_a_random_run_with_lent_budgets_and_changes_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80)) == []


@given(drives(late_ns=MS // 3))
@settings(deadline=None, max_examples=100)
def test_a_random_run_with_late_timers_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80), tolerance_ns=MS // 3) == []


# -- cases that random runs found ------------------------------------------------------------


def test_a_lent_reserve_is_replenished_and_its_server_goes_on() -> None:
    drive = Drive()
    drive.task("client", 1, reserve=pe(2, 4))
    drive.task("server", 0, reserve=pe(1, 20), rix=True)
    drive.enter(0, "client", "server")
    drive.submit(0, "server", 3, 1)
    assert complaints(drive.run(30)) == []


def test_a_task_brings_its_debt_into_a_pool_whose_members_wait() -> None:
    drive = Drive()
    drive.task("hog", 5, reserve=pe(1, 10))
    drive.task("other", 4)
    drive.task("member", 0, reserve=pe(1, 10, "pool"))
    drive.submit(0, "hog", 6)
    drive.submit(0, "other", 1, 2)
    drive.submit(1, "member", 1)
    drive.set_reserve(7, "hog", pe(1, 10, "pool"))
    assert complaints(drive.run(60)) == []


def test_a_client_leaves_a_pool_that_gets_its_lent_budget_back() -> None:
    drive = Drive()
    drive.task("client", 1, reserve=pe(2, 20, "pool"))
    drive.task("mate", 0, reserve=pe(2, 20, "pool"))
    drive.task("server", 0, reserve=pe(1, 20), rix=True)
    drive.enter(0, "client", "server")
    drive.submit(1, "mate", 1)
    drive.set_reserve(2, "client", None)
    assert complaints(drive.run(60)) == []


def test_a_server_gets_the_priority_of_the_client_that_it_serves() -> None:
    drive = Drive()
    drive.task("client", 2)
    drive.task("server", 0, pix=True)
    drive.enter(0, "client", "server")
    drive.set_priority(1, "server", Fixed(2))
    drive.leave(2)
    assert complaints(drive.run(5)) == []


# -- each rule can fail ----------------------------------------------------------------------


def test_one_online_a_prt_group_joins_another() -> None:
    events = prt_run()
    at = place(events, Dispatched, task="high", index=0)
    executing = place(events, Completed, task="low", index=0)
    assert at > executing
    assert "one-online" in broken(moved_to(events, at, executing))


def test_ht_order_a_group_passes_a_more_important_one() -> None:
    events = ht_run()
    submitted = place(events, Submitted, task="throughput", index=2)
    assert submitted > place(events, Submitted, task="high")
    at = place(events, Dispatched, task="throughput", index=2)
    assert "ht-order" in broken(moved_to(events, at, submitted + 1))


def test_ht_order_a_group_follows_another_task() -> None:
    drive = Drive()
    drive.task("other", 1)
    drive.task("throughput", 1, "ht")
    drive.submit(0, "other", 2)
    drive.submit(1, "throughput", 1)
    events = drive.run()
    assert complaints(events) == []
    at = place(events, Dispatched, task="throughput")
    executing = place(events, Completed, task="other")
    assert broken(moved_to(events, at, executing)) == {"ht-order"}


def test_priority_two_dispatches_are_swapped() -> None:
    drive = Drive()
    drive.task("first", 1)
    drive.task("low", 1)
    drive.task("high", 2)
    drive.submit(0, "first", 1)
    drive.submit(0, "low", 1)
    drive.submit(0, "high", 1)
    events = drive.run()
    assert complaints(events) == []
    assert broken(renamed(events, 0, {"low": "high", "high": "low"})) == {"priority"}


@pytest.mark.parametrize("late", ["a", "b"])
def test_priority_equal_tasks_go_by_submission_and_then_by_order(late: str) -> None:
    """Whoever came later, in time or in the file, is put first."""
    drive = Drive()
    drive.task("a")
    drive.task("b")
    drive.task("executing", 1)
    drive.submit(0, "executing", 5)
    drive.submit(2 if late == "a" else 1, "a", 1)
    drive.submit(1, "b", 1)
    events = drive.run()
    assert complaints(events) == []
    swapped = renamed(events, 0, {"a": "b", "b": "a"})
    swapped = [
        replace(e, submitted_ns=(2 if late == e.task == "a" else 1) * MS)
        if isinstance(e, Completed) and e.task in ("a", "b")
        else e
        for e in swapped
    ]
    assert broken(swapped) == {"priority"}


def test_work_conserving_the_gpu_idles_while_a_group_waits() -> None:
    events = prt_run()
    assert broken(delayed(events, place(events, Dispatched, nth=1), MS)) == {"work-conserving"}


def test_work_conserving_is_not_broken_by_a_reserve_that_is_used_up() -> None:
    drive = Drive()
    drive.task("video", reserve=pe(1, 10))
    drive.submit(0, "video", 3, 1)
    events = drive.run(50)
    assert complaints(events) == []
    dispatched = [e.ns // MS for e in events if isinstance(e, Dispatched)]
    assert dispatched == [0, 30]


@pytest.mark.parametrize("budget_ns", [-2 * MS, 0, 7 * MS])
def test_budget_a_completion_states_another_budget(budget_ns: int) -> None:
    events = pe_run()
    at = place(events, Completed, reserve="video")
    assert broken(altered(events, at, budget_ns=budget_ns)) == {"budget"}


def test_budget_a_replenishment_gives_too_much() -> None:
    events = pe_run()
    at = place(events, Replenished, budget_ns=-2 * MS)
    assert "budget" in broken(altered(events, at, budget_ns=2 * MS))


def test_budget_a_replenishment_is_left_out_while_a_group_waits() -> None:
    events = pe_run()
    messages = complaints(without(events, place(events, Replenished, budget_ns=-2 * MS)))
    assert any("was not replenished at 10000000 ns" in message for message in messages)


def test_budget_a_replenishment_comes_between_boundaries() -> None:
    events = pe_run()
    at = place(events, Replenished, budget_ns=-2 * MS)
    early = altered(events, at, ns=events[at].ns - 1)
    assert "budget" in broken(early)


def test_budget_a_reserve_is_replenished_twice_in_a_period() -> None:
    events = pe_run()
    at = place(events, Replenished, budget_ns=-2 * MS)
    again = Replenished(events[at].ns, "video", 0, events[at].ns)
    twice = [*events[: at + 1], again, *events[at + 1 :]]
    assert any("again within one period" in message for message in complaints(twice))


def test_budget_a_group_is_let_through_with_nothing_left() -> None:
    events = pe_run()
    at = place(events, Dispatched, task="video", index=2)
    early = place(events, Dispatched, task="batch", index=0)
    assert events[early].ns < events[at].ns
    swapped = without(events, early)
    swapped = moved_to(swapped, at - 1, early)
    assert "budget" in broken(swapped)


def test_budget_an_ae_group_is_let_through_that_costs_more_than_is_left() -> None:
    events = ae_run()
    at = place(events, Submitted, task="video", index=1)
    assert broken(altered(events, at, predicted_ns=3 * MS)) >= {"budget"}


@pytest.mark.parametrize(
    ("nth", "change"),
    [(0, {"budget_ns": MS}), (1, {"budget_ns": 2 * MS}), (1, {"anchor_ns": MS})],
    ids=["starts less than full", "gains by a change", "gets other boundaries by a change"],
)
def test_budget_a_reserve_is_set_wrongly(nth: int, change: dict[str, int]) -> None:
    events = change_run()
    at = place(events, ReserveSet, nth=nth, reserve="video")
    assert "budget" in broken(altered(events, at, **change))


def test_budget_a_group_is_charged_to_another_reserve() -> None:
    events = rix_run()
    at = place(events, Completed, task="b")
    assert "budget" in broken(altered(events, at, reserve="a"))


def test_bandwidth_executions_add_up_to_more_than_the_reserve() -> None:
    """Even where every event claims that there is budget left."""
    reserve = ReserveSet(0, "r", "pe", 2 * MS, 10 * MS, 2 * MS, 0, False)
    events: list[Event] = [TaskAdded(0, "a", "prt", "0", 0), reserve]
    events.append(Joined(0, "a", "r"))
    for index in range(4):
        ns = 2 * index * MS
        events.append(Submitted(ns, "a", index, 0, None))
        events.append(Dispatched(ns, "a", index, 0))
        done_ns = ns + 2 * MS
        events.append(Completed(done_ns, "a", index, 0, ns, ns, "r", MS, False, None))
    assert broken(events) == {"budget", "bandwidth"}
    assert check(events).violations[-1].rule == "bandwidth"
    assert broken(events[: 3 + 2 * 3]) == {"budget"}, "one group's overrun is allowed"


def test_inheritance_a_rank_stays_raised() -> None:
    events = pix_run()
    at = place(events, Ranked, nth=-1, task="server")
    undone = events[at]
    assert isinstance(undone, Ranked)
    assert undone.rank == undone.base_rank
    assert broken(without(events, at)) == {"inheritance"}


def test_inheritance_a_rank_is_raised_for_nobody() -> None:
    events = prt_run()
    at = place(events, Submitted, nth=-1)
    rank = Ranked(events[at].ns, "low", -(1 << 70), 0)
    assert "inheritance" in broken([*events[:at], rank, *events[at:]])


def test_inheritance_a_client_raises_its_server_the_first_time_only() -> None:
    events = pix_run()
    at = place(events, Entered, client="middle") + 1
    assert isinstance(events[at], Ranked)
    assert "inheritance" in broken(without(events, at))


def test_inheritance_a_server_that_does_not_follow_is_left_alone() -> None:
    drive = Drive()
    drive.task("client", 2)
    drive.task("server", 0)
    drive.enter(0, "client", "server")
    drive.leave(3)
    events = drive.run()
    assert not any(isinstance(event, Ranked) for event in events)
    assert complaints(events) == []


@pytest.mark.parametrize("nth", range(5))
@pytest.mark.parametrize("by_ns", [-1, 1])
def test_inheritance_a_request_moves_another_amount(nth: int, by_ns: int) -> None:
    events = rix_run()
    at = place(events, Moved, nth=nth)
    moved = events[at]
    assert isinstance(moved, Moved)
    wrong = altered(events, at, amount_ns=moved.amount_ns + by_ns)
    assert "inheritance" in broken(wrong)


def test_inheritance_budget_moves_without_a_request() -> None:
    events = rix_run()
    at = place(events, Entered)
    assert broken([*events[:at], Moved(events[at].ns, "a", "b", MS), *events[at:]]) >= {
        "inheritance"
    }


def test_inheritance_a_client_goes_and_its_request_stays() -> None:
    events = removal_run()
    assert "inheritance" in broken(without(events, place(events, Left)))


def _swap_completions(events: list[Event]) -> list[Event]:
    first = place(events, Completed, task="throughput", index=0)
    second = place(events, Completed, task="throughput", index=1)
    a, b = events[first], events[second]
    assert isinstance(a, Completed)
    assert isinstance(b, Completed)
    events[first] = replace(a, index=1, submitted_ns=b.submitted_ns)
    events[second] = replace(b, index=0, submitted_ns=a.submitted_ns)
    return events


SEQUENCE: dict[str, Callable[[list[Event]], list[Event]]] = {
    "time runs backwards": lambda e: altered(e, place(e, Submitted, nth=1), ns=-1),
    "a group goes online that was never submitted": lambda e: without(e, place(e, Submitted)),
    "a group goes online twice": lambda e: [*e[:-1], replace(e[place(e, Dispatched)], ns=e[-1].ns)],
    "a group completes that was never online": lambda e: without(e, place(e, Dispatched, nth=-1)),
    "groups complete in another order": _swap_completions,
    "an index is left out": lambda e: without(
        without(without(e, place(e, Completed, nth=1)), place(e, Dispatched, nth=1)),
        place(e, Submitted, nth=1),
    ),
    "executions overlap": lambda e: altered(e, place(e, Completed, nth=1), started_ns=1 * MS),
    "a group starts before its dispatch": lambda e: altered(
        e, place(e, Completed, task="high"), started_ns=3 * MS
    ),
    "a group starts after its end": lambda e: altered(
        e, place(e, Completed, nth=-1), started_ns=NEVER
    ),
    "a group was submitted at another time": lambda e: altered(
        e, place(e, Completed), submitted_ns=-5
    ),
    "a task submits before its last group went": lambda e: without(
        e, place(e, Dispatched, task="throughput", index=1)
    ),
    "something follows the end": lambda e: [*e, replace(e[-1], ns=e[-1].ns + 1)],
    "a task comes that is there": lambda e: [*e[:2], *e[1:]],
    "a task is unknown": lambda e: [e[0], *e[2:]],
}


@pytest.mark.parametrize("policy", ["overlap", "prt"])
@pytest.mark.parametrize("first", ["low", "high"])
def test_sequence_only_who_went_beside_others_may_be_done_first(policy: str, first: str) -> None:
    """What a policy lets through is its own rule."""
    events: list[Event] = []
    engine = Engine(observers=[Recorder(events.append)])
    groups = []
    for number, name in enumerate(("low", "high")):
        task, _ = engine.add_task(name, 0, policy="overlap", priority=Fixed(number))
        groups.append(Group(task, 0))
        engine.submit(groups[-1], number)
        assert engine.dispatch(number) is groups[-1]
    for now_ns, group in enumerate(sorted(groups, key=lambda g: g.task.name != first), start=10):
        engine.complete(group, now_ns - 1, now_ns)
    if policy == "prt":
        at = place(events, TaskAdded, task="high")
        events = altered(events, at, policy="prt", promises=())
    in_order = policy == "overlap" or first == "low"
    assert ("sequence" in broken(events)) != in_order


@pytest.mark.parametrize("breaks", SEQUENCE.values(), ids=SEQUENCE.keys())
def test_sequence(breaks: Callable[[list[Event]], list[Event]]) -> None:
    assert "sequence" in broken(breaks(ht_run()))


def test_sequence_of_requests() -> None:
    events = pix_run()
    entered, left = place(events, Entered), place(events, Left)
    assert "sequence" in broken(without(events, entered))
    assert "sequence" in broken([*events[:entered], events[entered], *events[entered:]])
    assert "sequence" in broken([*events[:left], events[left], *events[left:]])


# -- a wrong engine is caught ----------------------------------------------------------------


def test_everything_is_right_in_a_right_engine() -> None:
    assert complaints(everything_run()) == []


@pytest.mark.parametrize(
    ("mistakes", "caught"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_a_wrong_engine_is_caught(
    mistakes: dict[str, object], caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, mistake in mistakes.items():
        monkeypatch.setattr(target, mistake)
    assert caught <= set().union(*(broken(run()) for run in [everything_run, *RUNS]))


# -- the checker itself ----------------------------------------------------------------------


def test_late_timers_are_allowed_within_the_tolerance_only() -> None:
    drive = Drive(late_ns=1000)
    drive.task("video", reserve=pe(2, 10))
    drive.submit(0, "video", 5, 1, 4, 1)
    events = drive.run()
    assert complaints(events, tolerance_ns=1000) == []
    assert broken(events, tolerance_ns=999) == {"budget"}
    assert broken(events) == {"budget"}


def test_late_decisions_are_allowed_within_the_tolerance_only() -> None:
    events = prt_run()
    late = delayed(events, place(events, Dispatched, nth=1), 1000)
    assert complaints(late, tolerance_ns=1000) == []
    assert broken(late, tolerance_ns=999) == {"work-conserving"}


def test_only_the_first_violations_are_kept() -> None:
    checker = Checker()
    for index in range(0, 1000, 2):
        checker.feed(Dispatched(index, "ghost", index, 0))
    assert len(checker.violations) == KEPT
    assert checker.violations[0] == Violation(0, "sequence", "no task is called ghost")
    assert checker.dropped == checker.count - KEPT
    assert checker.count > 500


def test_memory_does_not_grow_with_the_run() -> None:
    """Tasks come and go, with reserves and requests, and nothing of them is left behind."""

    def round_of(number: int) -> list[Event]:
        drive = Drive()
        for name in ("client", "server"):
            drive.task(f"{name}{number}", reserve=pe(1, 10), pix=True, rix=True)
        drive.submit(0, f"client{number}", 1, 1)
        drive.enter(0, f"client{number}", f"server{number}")
        drive.remove(1, f"client{number}")
        drive.remove(2, f"server{number}")
        events = drive.run(5)[:-1]
        ns = number * 10 * MS
        shifted: list[Event] = []
        for event in events:
            changes: dict[str, Any] = {"ns": event.ns + ns}
            for name in ("anchor_ns", "submitted_ns", "started_ns"):
                if hasattr(event, name):
                    changes[name] = getattr(event, name) + ns
            shifted.append(replace(event, **changes))
        return shifted

    checker = Checker()
    sizes = []
    for number in range(100, 400):
        for event in round_of(number):
            checker.feed(event)
        sizes.append(len(pickle.dumps(checker)))
    assert not checker.violations
    assert sizes[-1] - sizes[0] < 100


def test_the_help_text_names_every_rule() -> None:
    text = describe_rules(80)
    assert all(f"\n  {rule} " in f"\n{text}" for rule in RULES)
    assert max(map(len, text.splitlines())) <= 80


def test_a_stream_without_an_end_is_seen_to_be_cut_off() -> None:
    assert check(prt_run()).ended
    assert not check(prt_run()[:-1]).ended


MS = 1_000_000


@pytest.mark.parametrize("promised", [("keeps_rank", "takes_idle", "decides"), ("decides",), ()])
def test_a_policy_from_outside_is_held_to_what_it_promises(
    promised: tuple[str, ...],
) -> None:
    """And to nothing else: nobody here knows it by its name."""
    low, high = make_rank(0), make_rank(9)
    events: list[Event] = [
        Began(0, 1),
        TaskAdded(0, "low", "mine", "0", low, promises=promised),
        TaskAdded(0, "high", "mine", "9", high, promises=promised),
        Submitted(0, "low", 0, 0, None),
        Submitted(0, "high", 0, 0, None),
        Dispatched(0, "low", 0, 0),
        Completed(MS, "low", 0, 0, 0, 0, None, 0, False, None),
        Dispatched(MS, "high", 0, 0),
        Completed(2 * MS, "high", 0, 0, 0, MS, None, 0, False, None),
        Ended(2 * MS, True),
    ]
    wrong = ["priority"] if "keeps_rank" in promised else []
    assert [violation.rule for violation in check(events).violations] == wrong
