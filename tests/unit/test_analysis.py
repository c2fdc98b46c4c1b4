"""The analysis of a run: hand-computed waits, and what must hold of any run.

The schedules of the worked examples are known to the millisecond, so what each group waited for was
worked out on paper: which group had the GPU, and when the budget was used up.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine import events
from headway.engine.events import (
    Began,
    Completed,
    Dispatched,
    Ended,
    Joined,
    Replenished,
    ReserveSet,
    Shown,
    Submitted,
    TaskAdded,
    TaskRemoved,
    Withdrawn,
)
from headway.engine.model import make_rank
from headway.trace.analysis import (
    BUDGET,
    CAUSES,
    HOLDOFF,
    IDLE,
    History,
    Occupancy,
    Summary,
    TaskSummary,
    Waits,
    percentile,
    read_history,
    summarise,
)
from tests.bench.histories import history_of
from tests.strategies import MS, scenarios, to_toml

ORACLES = Path(__file__).resolve().parents[1] / "data" / "oracles"


def by_name(summary: Summary) -> dict[str, TaskSummary]:
    return {task.name: task for task in summary.tasks}


def waited_ms(history: History) -> dict[str, dict[str, float]]:
    """Who waited for what, with names, in ms."""
    names = {number: facts.name for number, facts in enumerate(history.tasks)}
    names |= {BUDGET: "budget", HOLDOFF: "hold-off", IDLE: "idle"}
    return {
        task.name: {names[cause]: ns / MS for cause, ns in task.waited_ns.items()}
        for task in summarise(history).tasks
    }


BOMB3: dict[str, float] = {
    "game": 5, "bomb0": 8, "bomb1": 8, "bomb2": 8, "bomb3": 7, "bomb4": 7,
    "budget": 18 + 44 + 6 * 45,
}  # fmt: skip
BY_HAND: dict[str, dict[str, dict[str, float]]] = {
    "prt-three-priorities": {
        "mp": {"mp": 2, "hp": 2},
        "hp": {"mp": 1, "lp": 1},
        "lp": {"hp": 4, "mp": 3},
    },
    "ht-three-priorities": {
        "mp": {"mp": 2},  # behind its own group, on the GPU already
        "hp": {"mp": 4, "hp": 1},
        "lp": {"mp": 3, "hp": 4, "lp": 2},
    },
    # Budget: 5 to 10, and from 12, when the third group leaves a debt of 1 ms, to 20.
    "pe-four-groups": {"a": {"a": 1, "budget": 13}},
    # Budget: 2 to 10, 14 to 20 and 22 to 30; in between the GPU has the group before.
    "ae-four-groups": {"a": {"a": 4, "budget": 22}},
    "shared-pe-bombs": {"game": {}, "bomb3": BOMB3},
}


@pytest.mark.parametrize("name", BY_HAND)
def test_waits_of_the_worked_examples_are_what_was_worked_out_by_hand(name: str) -> None:
    found = waited_ms(history_of((ORACLES / f"{name}.toml").read_text()))
    for task, expected in BY_HAND[name].items():
        assert found[task] == expected, task


@pytest.mark.parametrize("name", BY_HAND)
def test_the_numbers_of_the_worked_examples_follow_from_their_groups(name: str) -> None:
    summary = summarise(history_of((ORACLES / f"{name}.toml").read_text()))
    of_task: dict[str, list[dict[str, int]]] = defaultdict(list)
    for group in json.loads((ORACLES / f"{name}.json").read_text())["groups"]:
        of_task[group["task"]].append(group)
    for task, groups in of_task.items():
        found = by_name(summary)[task]
        responses = sorted(g["finished_ns"] - g["submitted_ns"] for g in groups)
        assert found.responses_ns == responses
        assert found.gpu_ns == sum(g["finished_ns"] - g["started_ns"] for g in groups)
        assert found.wait_ns == sum(g["started_ns"] - g["submitted_ns"] for g in groups)
        assert percentile(responses, 0.5) == responses[-(-len(responses) // 2) - 1]


def test_a_reserve_is_used_as_its_groups_charge_it() -> None:
    # pe-four-groups: 2 + 3 + 2 + 1 ms of groups; the run ends at 21 ms, of 3 ms every 10.
    summary = summarise(history_of((ORACLES / "pe-four-groups.toml").read_text()))
    (reserve,) = summary.reserves
    assert reserve.charged_ns == 8 * MS
    assert reserve.entitled_ns == 3 * 21 * MS // 10
    assert reserve.overruns == 2  # the second and the third group each end in debt
    assert reserve.worst_debt_ns == 2 * MS


def test_the_gpu_that_is_kept_free_is_a_cause_of_its_own() -> None:
    # `important` leaves the GPU at 1 ms; it is kept for 2 ms, so `other` goes at 3 ms.
    history = history_of(
        '[policy.prt]\nholdoff = "2ms"\n'
        '[[task]]\nname = "important"\npriority = 2\ngroups = [{ at = "0ms", cost = "1ms" }]\n'
        '[[task]]\nname = "other"\npriority = 1\ngroups = [{ at = "0ms", cost = "1ms" }]\n'
    )
    assert waited_ms(history)["other"] == {"important": 1, "hold-off": 2}


def test_the_gpu_is_not_kept_from_a_task_that_is_as_important() -> None:
    history = history_of(
        '[device]\nswitch = "100us"\n[policy.prt]\nholdoff = "2ms"\n'
        '[[task]]\nname = "one"\ngroups = [{ at = "0ms", cost = "1ms" }]\n'
        '[[task]]\nname = "other"\ngroups = [{ at = "0ms", cost = "1ms" }]\n'
    )
    assert waited_ms(history)["other"] == {"one": 1, "idle": 0.1}


def test_whoever_was_given_the_gpu_is_the_cause_while_it_is_switched() -> None:
    # `high` is dispatched at 1 ms and starts at 1.5 ms; `low` waits for it from 1 ms on.
    history = history_of(
        '[device]\nswitch = "500us"\n'
        '[[task]]\nname = "first"\ngroups = [{ at = "0ms", cost = "1ms" }]\n'
        '[[task]]\nname = "high"\npriority = 2\ngroups = [{ at = "0.5ms", cost = "1ms" }]\n'
        '[[task]]\nname = "low"\npriority = 1\ngroups = [{ at = "0.5ms", cost = "1ms" }]\n'
    )
    assert waited_ms(history)["high"] == {"first": 0.5, "idle": 0.5}
    assert waited_ms(history)["low"] == {"first": 0.5, "high": 1.5, "idle": 0.5}


def test_with_several_gpus_a_wait_is_divided_among_those_who_have_them() -> None:
    history = history_of(
        "[device]\ncount = 2\n"
        '[[task]]\nname = "a"\npriority = 2\ngroups = [{ at = "0ms", cost = "4ms" }]\n'
        '[[task]]\nname = "b"\npriority = 2\ngroups = [{ at = "0ms", cost = "6ms" }]\n'
        '[[task]]\nname = "c"\npriority = 1\ngroups = [{ at = "1ms", cost = "1ms" }]\n'
    )
    assert waited_ms(history)["c"] == {"a": 1.5, "b": 1.5}


# -- any run ---------------------------------------------------------------------------------------


def runs_on(history: History) -> list[tuple[int, int, int, int, int]]:
    groups = history.groups
    times = (groups.dispatched_ns, groups.started_ns, groups.finished_ns)
    return list(zip(groups.tasks, groups.gpus, *times, strict=True))


@st.composite
def devices(draw: st.DrawFn) -> dict[str, Any]:
    scenario = draw(scenarios())
    scenario["device"] = {
        "count": draw(st.integers(1, 3)),
        "switch": draw(st.sampled_from(("0us", "300us"))),
        "decide": draw(st.sampled_from(("0us", "100us"))),
    }
    return scenario


@settings(database=None, deadline=None, max_examples=80)
@given(devices())
def test_waits_and_shares_add_up(scenario: dict[str, Any]) -> None:
    history = history_of(to_toml(scenario))
    summary = summarise(history)
    waits: dict[int, int] = defaultdict(int)
    groups = history.groups
    for task, submitted, started in zip(
        groups.tasks, groups.submitted_ns, groups.started_ns, strict=True
    ):
        waits[task] += started - submitted
    for number, found in enumerate(summary.tasks):
        assert found.wait_ns == waits[number]
    assert sum(task.gpu_ns for task in summary.tasks) == summary.busy_ns
    assert summary.busy_ns <= summary.duration_ns * history.gpus


@settings(database=None, deadline=None, max_examples=60)
@given(devices())
def test_every_piece_of_a_wait_has_the_cause_that_it_says(scenario: dict[str, Any]) -> None:
    history = history_of(to_toml(scenario))
    runs = runs_on(history)
    reserved = {plan["name"] for plan in scenario["task"] if "reserve" in plan}
    waits = Waits(history, Occupancy(history))
    for task, cause, start, end in waits.within(history.begin_ns, history.end_ns):
        assert start < end
        touched = {gpu for _, gpu, _, s, e in runs if s < end and e > start}
        if cause >= 0:
            executes = any(t == cause and s <= start and end <= e for t, _, _, s, e in runs)
            is_next = any(t == cause and d <= start and end <= s for t, _, d, s, _ in runs)
            assert executes or (is_next and len(touched) < history.gpus)
        elif cause == BUDGET:
            assert history.tasks[task].name in reserved
        else:
            assert cause == IDLE  # nobody holds off here
            assert len(touched) < history.gpus


@settings(database=None, deadline=None, max_examples=60)
@given(devices(), st.floats(0, 1))
def test_two_parts_of_a_run_come_to_the_whole(scenario: dict[str, Any], where: float) -> None:
    history = history_of(to_toml(scenario))
    middle_ns = history.begin_ns + int((history.end_ns - history.begin_ns) * where)
    whole = summarise(history)
    first, second = summarise(history, to_ns=middle_ns), summarise(history, middle_ns)
    assert first.busy_ns + second.busy_ns == whole.busy_ns
    for a, b, both in zip(first.tasks, second.tasks, whole.tasks, strict=True):
        assert a.waited_ns + b.waited_ns == both.waited_ns or history.gpus > 1
        assert a.wait_ns + b.wait_ns == both.wait_ns
        assert a.gpu_ns + b.gpu_ns == both.gpu_ns
        assert sorted(a.responses_ns + b.responses_ns) == both.responses_ns
    for one, two, all_of_it in zip(first.reserves, second.reserves, whole.reserves, strict=True):
        assert one.charged_ns + two.charged_ns == all_of_it.charged_ns
        assert one.overruns + two.overruns == all_of_it.overruns


# -- streams as they come from live runs and from cut-off traces -----------------------------------

LATE = 500_000 * 1_000 * MS


def added(name: str, level: int = 0, ns: int = LATE) -> TaskAdded:
    return TaskAdded(ns, name, "prt", str(level), make_rank(level))


def done(name: str, index: int, submitted: int, started: int, ended: int) -> Completed:
    at = LATE + ended
    return Completed(at, name, index, 0, LATE + submitted, LATE + started, None, 0, False, None)


def test_a_live_stream_begins_with_its_first_task_not_at_zero() -> None:
    history = read_history([Began(0, 1), added("a"), Ended(LATE + 5 * MS, True)])
    assert summarise(history).duration_ns == 5 * MS


def test_what_is_open_at_the_end_of_a_cut_off_stream_counts_until_there() -> None:
    history = read_history(
        [
            Began(0, 1),
            added("runs"),
            added("waits"),
            Submitted(LATE, "runs", 0, 0, None),
            Dispatched(LATE, "runs", 0, 0),
            Submitted(LATE + 1 * MS, "waits", 0, 0, None),
            Shown(LATE + 9 * MS, "runs"),
        ]
    )
    assert history.complete is None
    assert waited_ms(history) == {"runs": {}, "waits": {"runs": 8}}
    runs, _ = summarise(history).tasks
    assert runs.gpu_ns == 0  # nobody knows how much of it was executed
    assert runs.frames == 1


def test_a_lease_holds_the_gpu_but_is_no_group() -> None:
    # Of the lease from 0 to 10 ms the holder used 3; `b` waited for it from 2 ms on.
    history = read_history(
        [
            Began(0, 1),
            added("a"),
            added("b"),
            Submitted(LATE, "a", 0, 0, None),
            Dispatched(LATE, "a", 0, 0, leased=True),
            Submitted(LATE + 2 * MS, "b", 0, 0, None),
            done("a", 0, 0, 7 * MS, 10 * MS),
            Dispatched(LATE + 10 * MS, "b", 0, 0),
            done("b", 0, 2 * MS, 10 * MS, 11 * MS),
            Ended(LATE + 11 * MS, True),
        ]
    )
    assert waited_ms(history) == {"a": {}, "b": {"a": 8}}
    a, b = summarise(history).tasks
    assert (a.groups, a.gpu_ns) == (0, 3 * MS)
    assert (b.groups, b.responses_ns) == (1, [9 * MS])


def test_a_group_that_is_withdrawn_waited_all_the_same() -> None:
    history = read_history(
        [
            Began(0, 1),
            added("a"),
            Submitted(LATE, "a", 0, 0, None),
            Withdrawn(LATE + 2 * MS, "a", 0),
            TaskRemoved(LATE + 3 * MS, "a"),
            Ended(LATE + 4 * MS, True),
        ]
    )
    assert waited_ms(history) == {"a": {"idle": 2}}
    assert history.marks == [(LATE + 3 * MS, "a is gone")]


def test_live_groups_that_overlap_are_not_counted_twice_as_busy() -> None:
    # `b` began while `a` still drained; `c` waited for both.
    history = read_history(
        [
            Began(0, 1),
            *(added(name) for name in "abc"),
            Submitted(LATE, "c", 0, 0, None),
            done("a", 0, 0, 0, 4 * MS),
            done("b", 0, 0, 3 * MS, 6 * MS),
            Dispatched(LATE + 6 * MS, "c", 0, 0),
            done("c", 0, 0, 6 * MS, 7 * MS),
            Ended(LATE + 7 * MS, True),
        ]
    )
    assert waited_ms(history)["c"] == {"a": 4, "b": 2}
    assert summarise(history).busy_ns == 7 * MS


def test_a_trace_that_begins_in_the_middle_of_groups_is_read_all_the_same() -> None:
    history = read_history(
        [Began(0, 1), Joined(LATE, "a", "a"), done("a", 7, -3 * MS, -1 * MS, 1 * MS),
         Replenished(LATE + MS, "a", 5, LATE + MS), Ended(LATE + 2 * MS, True)]
    )  # fmt: skip
    (task,) = summarise(history).tasks
    assert task.gpu_ns == 1 * MS  # only what lies in the trace
    assert task.responses_ns == [4 * MS]


def test_a_budget_line_begins_with_what_the_budget_was_before() -> None:
    history = read_history(
        [
            Began(0, 1),
            added("a"),
            ReserveSet(LATE, "a", "pe", 3, 10, 3, LATE, False),
            Replenished(LATE + 10, "a", 2, LATE + 10),
            Replenished(LATE + 20, "a", 3, LATE + 20),
            Ended(LATE + 30, True),
        ]
    )
    reserve = history.reserves["a"]
    assert reserve.budget_line(LATE + 15, LATE + 25) == [(0, 2), (5, 3)]


def test_a_task_that_changes_its_reserve_while_it_waits_waits_for_the_new_one() -> None:
    def joins(ns: int, reserve: str | None) -> Joined:
        return Joined(LATE + ns * MS, "a", reserve)

    history = read_history(
        [
            Began(0, 1),
            added("a"),
            ReserveSet(LATE, "empty", "pe", MS, 10 * MS, 0, LATE, True),
            ReserveSet(LATE, "full", "ae", MS, 10 * MS, MS, LATE, True),
            Submitted(LATE, "a", 0, 2 * MS, None),  # nobody's budget so far: 1 ms
            joins(1, "empty"),  # 2 ms
            joins(3, "full"),  # too small a budget for 2 ms: 3 ms, then enough for 1 ms
            Replenished(LATE + 6 * MS, "full", 2 * MS, LATE + 6 * MS),
            Replenished(LATE + 6 * MS, "empty", 0, LATE + 6 * MS),
            joins(7, None),
            Withdrawn(LATE + 8 * MS, "a", 0),
            Ended(LATE + 9 * MS, True),
        ]
    )
    assert waited_ms(history) == {"a": {"idle": 1 + 1 + 1, "budget": 2 + 3}}


def test_nothing_at_all_is_no_trouble() -> None:
    for told in ([], [Began(0, 1)], [Began(0, 1), Ended(0, True)]):
        summary = summarise(read_history(told))
        assert (summary.duration_ns, summary.busy_ns, summary.tasks) == (0, 0, [])


def test_every_cause_that_is_no_task_is_explained() -> None:
    assert set(CAUSES) == {BUDGET, HOLDOFF, IDLE}
    assert all(CAUSES.values())


def test_frames_under_a_lease_are_counted_and_spread_over_the_time_they_took() -> None:
    ms = 1_000_000
    history = History()
    history.feed(events.Began(0, 1))
    history.feed(events.TaskAdded(0, "gears", "prt", "9", 0, 0, 0))
    history.feed(events.Passed(100 * ms, "gears", 20, 10, 50 * ms))
    history.feed(events.Passed(200 * ms, "gears", 20, 5, 50 * ms))
    times = list(history.tasks[0].frames_ns)
    assert len(times) == 15
    assert times == sorted(times)
    assert times[9] == 100 * ms
    assert [b - a for a, b in itertools.pairwise(times[9:])] == [20 * ms] * 5


def test_gpu_time_under_a_lease_counts_while_the_lease_goes_on() -> None:
    # Told: 2 ms of the first 10, 3 of the next 10; the end says 7 of all 25 ms.
    begun = [
        Began(0, 1),
        added("a"),
        Submitted(LATE, "a", 0, 0, None),
        Dispatched(LATE, "a", 0, 0, leased=True),
        events.Passed(LATE + 10 * MS, "a", 4, 0, 2 * MS),
        events.Passed(LATE + 20 * MS, "a", 4, 0, 3 * MS),
    ]
    unfinished = read_history([*begun, Ended(LATE + 25 * MS, True)])
    assert summarise(unfinished).tasks[0].gpu_ns == 5 * MS
    assert summarise(unfinished, LATE, LATE + 10 * MS).tasks[0].gpu_ns == 2 * MS
    whole = read_history([*begun, done("a", 0, 0, 18 * MS, 25 * MS), Ended(LATE + 25 * MS, True)])
    assert summarise(whole).tasks[0].gpu_ns == 7 * MS
    assert summarise(whole, LATE + 10 * MS, LATE + 20 * MS).tasks[0].gpu_ns == 3 * MS
    assert summarise(whole).tasks[0].groups == 0
    # A program that has several streams may tell more than there was time.
    busy = [
        *begun[:4],
        events.Passed(LATE + 10 * MS, "a", 4, 0, 30 * MS),
        Ended(LATE + 10 * MS, True),
    ]
    assert summarise(read_history(busy)).tasks[0].gpu_ns == 10 * MS


def test_after_dropped_records_nothing_is_carried_over() -> None:
    history = History()
    for event in (
        events.Began(0, 1),
        events.TaskAdded(0, "a", "prt", "0", 0, 0, 0),
        events.Submitted(10, "a", 0, 0, None),
        events.TakenUp(50, 7),
        events.Ended(90, True),
    ):
        history.feed(event)
    history.close()
    assert any("7 records were dropped" in text for _, text in history.marks)
    assert history.segments.ends_ns[-1] == 50, "it is not known to have waited longer"
