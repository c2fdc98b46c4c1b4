"""Policies, priority rules and the device: who goes next, and when.

Times are milliseconds. A row of a timeline is (task, index, started, finished), in the order in
which the groups started.
"""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import Event, Observer, Recorder
from headway.engine.model import Group
from headway.engine.policies import policies
from headway.engine.priorities import Fixed, parse_priority
from headway.engine.reserves import ReserveSpec
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario
from headway.trace.checker import check
from tests import reference
from tests.strategies import scenarios

MS = 1_000_000
Row = tuple[str, int, float, float]
Groups = list[tuple[float, float]]


class Timeline(Observer):
    """What ran when and on which GPU; and how many groups were ever online at once."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.gpu: dict[tuple[str, int], int] = {}
        self.submitted_at: dict[tuple[str, int], float] = {}
        self.most_online: dict[int, int] = defaultdict(int)
        self.dispatched_ns: list[int] = []

    def dispatched(self, group: Group, now_ns: int) -> None:
        self.dispatched_ns.append(now_ns)
        index = group.gpu.index
        self.most_online[index] = max(self.most_online[index], len(group.gpu.online))

    def completed(self, group: Group, now_ns: int) -> None:
        key = (group.task.name, group.index)
        self.rows.append((*key, group.started_ns / MS, now_ns / MS))
        self.rows.sort(key=lambda row: row[2])
        self.gpu[key] = group.gpu.index
        self.submitted_at[key] = group.submitted_ns / MS

    def order(self) -> list[str]:
        return [row[0] for row in self.rows]


def task(name: str, groups: Groups | None = None, **more: Any) -> dict[str, Any]:
    """A task; each group is (at, cost)."""
    entry: dict[str, Any] = {"name": name, **more}
    if groups is not None:
        entry["groups"] = [{"at": f"{at}ms", "cost": f"{cost}ms"} for at, cost in groups]
    return entry


def run(*tasks: dict[str, Any], until: str | None = None, **top: Any) -> Timeline:
    seen = Timeline()
    if until is not None:
        top["run"] = {"duration": until}
    scenario = read_scenario({"task": list(tasks), **top}, "scenario")
    outcome = simulate(scenario, observers=[seen], progress=lambda _: False)
    assert outcome.complete, "thousands of instants for a few groups"
    return seen


def rows(*tasks: dict[str, Any], until: str | None = None, **top: Any) -> list[Row]:
    return run(*tasks, until=until, **top).rows


def test_the_policies_of_the_papers_are_registered() -> None:
    assert {"prt", "ht", "fifo", "germ"} <= set(policies())


# -- PRT and HT ------------------------------------------------------------------------------


def test_under_prt_the_highest_priority_goes_at_every_completion() -> None:
    assert rows(
        task("low", [(0, 3), (0, 3)], priority=1),
        task("mid", [(1, 2)], priority=2),
        task("high", [(2, 1), (4, 1)], priority=3),
    ) == [
        ("low", 0, 0, 3),
        ("high", 0, 3, 4),
        ("high", 1, 4, 5),
        ("mid", 0, 5, 7),
        ("low", 1, 7, 10),
    ]


@settings(database=None, deadline=None, max_examples=50)
@given(scenarios())
def test_under_prt_one_group_is_online_at_a_time(scenario: dict[str, Any]) -> None:
    tasks = [{**entry, "policy": "prt"} for entry in scenario["task"]]
    assert run(*tasks).most_online[0] == 1


def test_ht_sends_on_behind_its_own_group() -> None:
    # All of a's are online from 0; b, though more important, waits for the three of them.
    a = task("a", [(0, 2), (0, 2), (0, 2)], priority=1, policy="ht")
    b = task("b", [(1, 1)], priority=2)
    seen = run(a, b)
    assert seen.rows == [("a", 0, 0, 2), ("a", 1, 2, 4), ("a", 2, 4, 6), ("b", 0, 6, 7)]
    assert seen.most_online[0] == 3


def test_ht_waits_while_another_tasks_group_executes() -> None:
    # Condition (i): b executes when a arrives, so a waits; c, which is more important, passes it.
    assert rows(
        task("b", [(0, 3)], priority=1),
        task("a", [(1, 1)], priority=2, policy="ht"),
        task("c", [(2, 1)], priority=3),
    ) == [("b", 0, 0, 3), ("c", 0, 3, 4), ("a", 0, 4, 5)]


def test_ht_holds_back_while_a_more_important_task_is_ready() -> None:
    # Condition (ii): high is ready from 1 on, so a's second group (at 2) is not sent behind the
    # first, and its third not behind the second while high's second waits.
    assert rows(
        task("a", [(0, 3), (2, 3), (5, 1)], priority=1, policy="ht"),
        task("high", [(1, 1), (5, 1)], priority=2),
    ) == [
        ("a", 0, 0, 3),
        ("high", 0, 3, 4),
        ("a", 1, 4, 7),
        ("high", 1, 7, 8),
        ("a", 2, 8, 9),
    ]


def test_ht_goes_on_before_a_ready_task_of_its_own_priority() -> None:
    assert rows(
        task("a", [(0, 3), (2, 3)], priority=1, policy="ht"),
        task("same", [(1, 1)], priority=1),
    ) == [("a", 0, 0, 3), ("a", 1, 3, 6), ("same", 0, 6, 7)]


def test_ht_does_not_wait_for_a_more_important_task_without_budget() -> None:
    # high: e = 1 - 2 = -1 from 2 on, so it is not ready at 3; a's second group goes online then.
    # high's budget: 0 at 10, 1 at 20.
    reserve = {"policy": "pe", "capacity": "1ms", "period": "10ms"}
    assert rows(
        task("a", [(0, 3), (3, 3)], priority=1, policy="ht"),
        task("high", [(0, 2), (0, 1)], priority=2, reserve=reserve),
    ) == [("high", 0, 0, 2), ("a", 0, 2, 5), ("a", 1, 5, 8), ("high", 1, 20, 21)]


def test_a_prt_task_beside_an_ht_task_keeps_to_its_own_rule() -> None:
    # Both send two groups at once. h's go together; p's second is submitted at 4, when its first is
    # dispatched, waits for it to be done and then goes before h's third, which came at 5.
    h = task("h", [(0, 2), (0, 2), (5, 1)], priority=1, policy="ht")
    p = task("p", [(0, 2), (0, 2)], priority=1)
    assert rows(h, p) == [
        ("h", 0, 0, 2),
        ("h", 1, 2, 4),
        ("p", 0, 4, 6),
        ("p", 1, 6, 8),
        ("h", 2, 8, 9),
    ]


# -- FIFO ------------------------------------------------------------------------------------


def test_fifo_sends_groups_on_as_they_come_whatever_their_priority() -> None:
    low = task("low", [(0, 3), (0, 3)], priority=1, policy="fifo")
    high = task("high", [(1, 1)], priority=9, policy="fifo")
    seen = run(low, high)
    assert seen.rows == [("low", 0, 0, 3), ("low", 1, 3, 6), ("high", 0, 6, 7)]
    assert seen.most_online[0] == 3
    assert seen.dispatched_ns == [0, 0, 1 * MS]


# -- GERM ------------------------------------------------------------------------------------


def test_germ_dispatches_one_group_a_tick_in_priority_order() -> None:
    # Ticks at 0, 1, 2...: the GPU idles from 0.4 to 1 though low's second group waits since 0.
    seen = run(
        task("low", [(0, 0.4), (0, 0.4)], priority=1, policy="germ"),
        task("high", [(0.5, 0.4), (0.5, 0.4)], priority=2, policy="germ"),
    )
    assert seen.rows == [
        ("low", 0, 0, 0.4),
        ("high", 0, 1, 1.4),
        ("high", 1, 2, 2.4),
        ("low", 1, 3, 3.4),
    ]


def test_germ_looks_again_at_the_tick_after_a_long_group() -> None:
    # a is done at 2.5, which only the tick at 3 notices; b's first ends exactly at the tick of 5.
    assert rows(
        task("a", [(0, 2.5)], policy="germ"),
        task("b", [(1, 2), (1, 1)], policy="germ"),
    ) == [("a", 0, 0, 2.5), ("b", 0, 3, 5), ("b", 1, 5, 6)]


def test_germs_tick_can_be_set() -> None:
    assert rows(task("a", [(1, 1), (1, 1)], policy="germ"), policy={"germ": {"tick": "4ms"}}) == [
        ("a", 0, 4, 5),
        ("a", 1, 8, 9),
    ]


@settings(database=None, deadline=None, max_examples=50)
@given(scenarios())
def test_germ_dispatches_only_at_ticks(scenario: dict[str, Any]) -> None:
    tasks = [{**entry, "policy": "germ"} for entry in scenario["task"]]
    seen = run(*tasks)
    assert all(at % MS == 0 for at in seen.dispatched_ns)
    assert len(set(seen.dispatched_ns)) == len(seen.dispatched_ns), "one group per tick"
    assert len(seen.rows) == sum(len(entry["groups"]) for entry in tasks)


# -- priority rules --------------------------------------------------------------------------


def blocked_pair(first: dict[str, Any], second: dict[str, Any], **top: Any) -> list[str]:
    """In which order two tasks go that wait while something more important runs."""
    blocker = task("blocker", [(0, 2)], priority=100)
    order = run(blocker, first, second, until="20ms", **top).order()
    return [name for name in order if name != "blocker"][:2]


def test_rate_monotonic_prefers_the_shorter_period() -> None:
    slow = task("slow", periodic={"period": "40ms", "cost": "1ms"}, priority="rm")
    fast = task("fast", periodic={"period": "20ms", "cost": "1ms"}, priority="rm")
    assert blocked_pair(slow, fast) == ["fast", "slow"]


def test_rate_monotonic_goes_by_the_reserves_period_where_there_is_one() -> None:
    slow = task(
        "slow",
        periodic={"period": "40ms", "cost": "1ms"},
        priority="rm",
        reserve={"policy": "pe", "capacity": "2ms", "period": "10ms"},
    )
    fast = task("fast", periodic={"period": "20ms", "cost": "1ms"}, priority="rm")
    assert blocked_pair(fast, slow) == ["slow", "fast"]


def test_rate_monotonic_puts_a_task_without_a_period_last() -> None:
    aimless = task("aimless", [(0, 1)], priority="rm")
    slow = task("slow", periodic={"period": "1s", "cost": "1ms"}, priority="rm")
    assert blocked_pair(aimless, slow) == ["slow", "aimless"]


def test_rate_monotonic_follows_a_changed_reserve() -> None:
    engine = Engine()
    wanted = ReserveSpec("pe", 1, 30)
    a, _ = engine.add_task("a", 0, priority=parse_priority("rm"), reserve=wanted, period_ns=50)
    b, _ = engine.add_task("b", 0, priority=parse_priority("rm"), period_ns=40)
    assert a.rank < b.rank
    engine.set_reserve(a, ReserveSpec("pe", 1, 45), 0)
    assert a.rank > b.rank


def test_rate_monotonic_falls_back_to_the_tasks_period_without_its_reserve() -> None:
    engine = Engine()
    wanted = ReserveSpec("pe", 1, 30)
    a, _ = engine.add_task("a", 0, priority=parse_priority("rm"), reserve=wanted, period_ns=50)
    b, _ = engine.add_task("b", 0, priority=parse_priority("rm"), period_ns=40)
    engine.set_reserve(a, None, 0)
    assert a.rank > b.rank


@pytest.mark.parametrize(("deadline", "order"), [("4ms", ["b", "a"]), ("30ms", ["a", "b"])])
def test_edf_prefers_the_earlier_deadline(deadline: str, order: list[str]) -> None:
    # a is released at 0 and due at 20; b is released at 1 and due at 5, or at 31.
    a = task("a", periodic={"period": "20ms", "cost": "1ms"}, priority="edf")
    b = task(
        "b",
        periodic={"period": "50ms", "cost": "1ms", "offset": "1ms", "deadline": deadline},
        priority="edf",
    )
    assert blocked_pair(a, b) == order


def test_edf_decides_anew_for_every_job() -> None:
    # Jobs (release, deadline), 3 ms each: a (0, 10), (10, 20), (20, 30); b (0, 15), (15, 30).
    # At 0 a's is earlier. At 15 only b's waits. At 20 a's arrives; both alone.
    # From 28 on z runs until 31: then a (30, 40) and b (30, 45) wait: a, b.
    a = task("a", periodic={"period": "10ms", "cost": "3ms"}, priority="edf")
    b = task("b", periodic={"period": "15ms", "cost": "3ms"}, priority="edf")
    z = task("z", [(28, 3)], priority=1)
    assert rows(b, a, z, until="37ms") == [
        ("a", 0, 0, 3),
        ("b", 0, 3, 6),
        ("a", 1, 10, 13),
        ("b", 1, 15, 18),
        ("a", 2, 20, 23),
        ("z", 0, 28, 31),
        ("a", 3, 31, 34),
        ("b", 2, 34, 37),
    ]


def test_the_foreground_task_goes_first_among_the_automatic_ones() -> None:
    # b has the focus until 3, then a. A group that runs is never interrupted: b's second ends at 4.
    groups: Groups = [(0, 2)] * 3
    focus = [{"at": "0ms", "focus": "b"}, {"at": "3ms", "focus": "a"}]
    assert run(
        task("a", groups, priority="*"), task("b", groups, priority="*"), event=focus
    ).order() == ["b", "b", "a", "a", "a", "b"]


def test_a_higher_fixed_priority_beats_the_foreground_task() -> None:
    focus = [{"at": "0ms", "focus": "auto"}]
    auto = task("auto", [(0, 1)], priority="*")
    assert blocked_pair(auto, task("fixed", [(1, 1)], priority=1), event=focus) == ["fixed", "auto"]
    assert blocked_pair(task("fixed", [(0, 1)], priority=-1), auto, event=focus) == [
        "auto",
        "fixed",
    ]


def test_focus_means_nothing_to_a_task_with_a_fixed_priority() -> None:
    focus = [{"at": "0ms", "focus": "fixed"}]
    fixed, auto = task("fixed", [(1, 1)], priority=-1), task("auto", [(1, 1)], priority="*")
    assert blocked_pair(fixed, auto, event=focus) == ["auto", "fixed"]


def test_a_rule_may_have_a_level_of_its_own() -> None:
    slow = task("slow", periodic={"period": "40ms", "cost": "1ms"}, priority="rm@5")
    fast = task("fast", periodic={"period": "20ms", "cost": "1ms"}, priority="rm@4")
    assert blocked_pair(fast, slow) == ["slow", "fast"]
    assert blocked_pair(fast, task("fixed", [(1, 1)], priority=5)) == ["fixed", "fast"]


def test_an_event_changes_the_priority_of_a_task_that_waits() -> None:
    up = [{"at": "1ms", "task": "b", "priority": 7}]
    assert blocked_pair(task("a", [(0, 1)], priority=5), task("b", [(0, 1)])) == ["a", "b"]
    assert blocked_pair(task("a", [(0, 1)], priority=5), task("b", [(0, 1)]), event=up) == [
        "b",
        "a",
    ]


def test_events_of_one_instant_happen_in_the_order_of_the_file() -> None:
    changes = [{"at": "1ms", "task": "b", "priority": level} for level in (7, 3)]
    pair = task("a", [(0, 1)], priority=5), task("b", [(0, 1)])
    assert blocked_pair(*pair, event=changes) == ["a", "b"]
    assert blocked_pair(*pair, event=changes[::-1]) == ["b", "a"]


def test_another_policy_counts_from_the_next_decision_on() -> None:
    engine = Engine()
    low, _ = engine.add_task("low", 0, priority=Fixed(1))
    high, _ = engine.add_task("high", 0, priority=Fixed(2))
    engine.submit(Group(low, 0, 5), 0)
    assert engine.dispatch(0) is not None
    waiting = Group(high, 0, 5)
    engine.submit(waiting, 1)
    assert engine.dispatch(1) is None
    engine.set_policy(high, "fifo", 2)
    assert engine.dispatch(2) is waiting


# -- many GPUs -------------------------------------------------------------------------------

TWO = {"count": 2}


def test_two_gpus_run_two_groups_and_keep_the_third_waiting() -> None:
    seen = run(*(task(name, [(0, 4)]) for name in "abc"), device=TWO)
    assert seen.rows == [("a", 0, 0, 4), ("b", 0, 0, 4), ("c", 0, 4, 8)]
    assert seen.gpu[("a", 0)] != seen.gpu[("b", 0)]


def test_a_task_goes_back_to_the_gpu_it_used_last() -> None:
    # At 10 both GPUs are idle: b returns to its own, not to the first in line.
    seen = run(task("a", [(0, 2)]), task("b", [(0, 2), (10, 2)]), device=TWO)
    assert (seen.gpu[("a", 0)], seen.gpu[("b", 0)], seen.gpu[("b", 1)]) == (0, 1, 1)


def test_a_task_takes_an_idle_gpu_rather_than_wait_for_its_own() -> None:
    # At 10 c runs on b's GPU (a's was busy when it came), and a's is idle.
    seen = run(task("a", [(0, 9)]), task("b", [(0, 2), (10, 2)]), task("c", [(5, 10)]), device=TWO)
    assert seen.gpu[("c", 0)] == 1
    assert seen.gpu[("b", 1)] == 0
    assert ("b", 1, 10, 12) in seen.rows


@settings(database=None, deadline=None, max_examples=100)
@given(scenarios(), st.integers(2, 3))
def test_no_ready_group_waits_while_a_gpu_is_idle(scenario: dict[str, Any], count: int) -> None:
    tasks = [
        {key: value for key, value in {**entry, "policy": "prt"}.items() if key != "reserve"}
        for entry in scenario["task"]
    ]
    seen = run(*tasks, device={"count": count})
    for name, index, started, _ in seen.rows:
        submitted = seen.submitted_at[(name, index)]
        for gpu in range(count):
            covered = submitted
            for row in seen.rows:
                if seen.gpu[row[:2]] == gpu and row[2] <= covered < row[3]:
                    covered = row[3]
            assert covered >= started, f"GPU {gpu} idle at {covered} while {name} {index} waits"


@settings(database=None, deadline=None, max_examples=50)
@given(scenarios())
def test_on_every_gpu_groups_run_one_after_the_other(scenario: dict[str, Any]) -> None:
    seen = run(*scenario["task"], device=TWO)
    for gpu in range(2):
        spans = [row for row in seen.rows if seen.gpu[row[:2]] == gpu]
        assert all(before[3] <= after[2] for before, after in pairwise(spans))


# -- what the device and the manager cost ----------------------------------------------------


def test_a_change_of_task_costs_a_switch() -> None:
    # Nothing ran before a's first group, and b's second follows b's first: no switch for those.
    assert rows(
        task("a", [(0, 2)], priority=2),
        task("b", [(0, 2), (0, 2)]),
        device={"switch": "1ms"},
    ) == [("a", 0, 0, 2), ("b", 0, 3, 5), ("b", 1, 5, 7)]


def test_an_idle_gap_does_not_save_the_switch() -> None:
    assert rows(task("a", [(0, 1)]), task("b", [(5, 1)]), device={"switch": "1ms"}) == [
        ("a", 0, 0, 1),
        ("b", 0, 6, 7),
    ]


@pytest.mark.parametrize(
    ("policy", "spans"),
    [
        ("prt", [(1, 3), (4, 6), (7, 9)]),  # a decision at every boundary
        ("ht", [(1, 3), (3, 5), (5, 7)]),  # all decided at once, while the first one runs
        ("fifo", [(0, 2), (2, 4), (4, 6)]),  # nobody decides
    ],
)
def test_a_decision_costs_time_unless_the_gpu_works_meanwhile(
    policy: str, spans: list[tuple[int, int]]
) -> None:
    seen = run(task("a", [(0, 2)] * 3, policy=policy), device={"decide": "1ms"})
    assert [row[2:] for row in seen.rows] == spans


SECOND = {"start": (9, 12), "dispatch": (11, 21)}


@pytest.mark.parametrize("charge_from", SECOND)
def test_decision_and_switch_add_up_and_are_charged_if_the_device_says_so(charge_from: str) -> None:
    # a: decided at 0, starts at 1. b: decided at 3, switched from 4, 6 to 8. Charged from its
    # start: e = 1, the next is decided at 8 and starts at 9; with what came at 10, e = 1 at 11.
    # From its dispatch: e = 3 - 5, 1 at 10, where the next is decided; 1 - 3 at 13, and 1 at 20.
    reserve = {"policy": "pe", "capacity": "3ms", "period": "10ms"}
    found = rows(
        task("a", [(0, 2)], priority=2),
        task("b", [(0, 2)] * 3, reserve=reserve),
        device={"decide": "1ms", "switch": "2ms", "charge_from": charge_from},
    )
    starts = SECOND[charge_from]
    assert found == [
        ("a", 0, 1, 3),
        ("b", 0, 6, 8),
        *(("b", number, at, at + 2) for number, at in enumerate(starts, 1)),
    ]


def test_overheads_are_charged_to_the_reserve_and_are_no_gpu_time_of_the_task() -> None:
    events: list[Event] = []
    scenario = {
        "device": {"decide": "1ms", "switch": "2ms"},
        "task": [
            task("a", [(0, 2)], priority=2),
            task("b", [(0, 2)], reserve={"policy": "pe", "capacity": "9ms", "period": "10ms"}),
        ],
    }
    outcome = simulate(read_scenario(scenario, "test"), observers=[Recorder(events.append)])
    assert check(events).violations == []
    table = outcome.statistics.as_dict()
    assert table["tasks"]["b"]["gpu_ns"] == 2 * MS
    assert table["reserves"]["b"]["charged_ns"] == 5 * MS


@settings(database=None, deadline=None, max_examples=100)
@given(scenarios(), st.integers(0, 900), st.integers(0, 900), st.integers(1, 2))
def test_charged_overheads_keep_the_rules(
    scenario: dict[str, Any], switch: int, decide: int, count: int
) -> None:
    device = {"switch": f"{switch}us", "decide": f"{decide}us", "count": count}
    events: list[Event] = []
    read = read_scenario({**scenario, "device": device}, "test")
    simulate(read, observers=[Recorder(events.append)])
    assert check(events).violations == []


def jittery(seed: int, groups: int = 200) -> list[float]:
    device = {"jitter": 0.25, "seed": seed}
    seen = run(task("a", [(0, 4)] * groups), device=device)
    return [round((finished - started) * MS) for _, _, started, finished in seen.rows]


def test_jitter_stays_within_its_fraction_and_spreads_over_it() -> None:
    costs = jittery(seed=1)
    assert all(3 * MS <= cost <= 5 * MS for cost in costs)
    assert min(costs) < 3.2 * MS
    assert max(costs) > 4.8 * MS


def test_jitter_is_the_same_for_the_same_seed_only() -> None:
    assert jittery(seed=1) == jittery(seed=1)
    assert jittery(seed=1) != jittery(seed=2)


@settings(database=None, deadline=None, max_examples=30)
@given(scenarios(), st.integers(0, 3), st.integers(0, 3))
def test_overheads_never_reorder_what_does_not_overlap(
    scenario: dict[str, Any], switch: int, decide: int
) -> None:
    """Groups still run one after the other, each exactly as long as it costs."""
    device = {"switch": f"{switch}us", "decide": f"{decide}us"}
    seen = run(*scenario["task"], device=device)
    assert all(before[3] <= after[2] for before, after in pairwise(seen.rows))
    costs = {
        (entry["name"], index): reference.duration_ns(group["cost"])
        for entry in scenario["task"]
        for index, group in enumerate(entry["groups"])
    }
    assert {row[:2]: round((row[3] - row[2]) * MS) for row in seen.rows} == costs
