"""Hold-off: an idle GPU is kept for a moment for the important program that used it last."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import Completed, Event, Observer, Recorder
from headway.engine.model import Group
from headway.engine.policies.prt import Prt
from headway.engine.priorities import Fixed
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario
from headway.trace.checker import check
from tests.strategies import scenarios

MS = 1_000_000


class Starts(Observer):
    def __init__(self) -> None:
        self.at: dict[str, list[float]] = {}

    def completed(self, group: Group, now_ns: int) -> None:
        self.at.setdefault(group.task.name, []).append(group.started_ns / MS)


def run(policy: str, setting: dict[str, str], *, low_priority: int = 1) -> dict[str, list[float]]:
    """hp has 1 ms at 0 and 1 ms at 1.5; lp has 1 ms at 0."""
    scenario: dict[str, Any] = {
        "policy": {policy: setting},
        "task": [
            {
                "name": "hp",
                "policy": policy,
                "priority": 5,
                "groups": [{"at": "0ms", "cost": "1ms"}, {"at": "1.5ms", "cost": "1ms"}],
            },
            {
                "name": "lp",
                "policy": policy,
                "priority": low_priority,
                "groups": [{"at": "0ms", "cost": "1ms"}],
            },
        ],
    }
    starts, events = Starts(), list[Event]()
    simulate(read_scenario(scenario, "test"), observers=[starts, Recorder(events.append)])
    assert check(events).violations == []
    return starts.at


@pytest.mark.parametrize("policy", ["prt", "ht"])
def test_without_it_the_rival_slips_in_between(policy: str) -> None:
    # lp takes the GPU at 1, so hp, back at 1.5, waits until 2.
    assert run(policy, {}) == {"hp": [0, 2], "lp": [1]}


@pytest.mark.parametrize("policy", ["prt", "ht"])
def test_the_gpu_is_kept_until_the_important_one_is_back(policy: str) -> None:
    # hp is done at 1 and back at 1.5, done at 2.5; then the GPU is kept until 4.5.
    assert run(policy, {"holdoff": "2ms"}) == {"hp": [0, 1.5], "lp": [4.5]}


def test_it_ends_when_the_important_one_does_not_come_back_in_time() -> None:
    # Kept from 1 to 1.25; hp comes at 1.5, when lp is on.
    assert run("prt", {"holdoff": "250us"}) == {"hp": [0, 2.25], "lp": [1.25]}


def test_whoever_has_waited_long_enough_goes_all_the_same() -> None:
    # lp waits from 0. At 3 its patience ends, and the GPU is idle since 2.5.
    assert run("prt", {"holdoff": "2ms", "patience": "3ms"}) == {"hp": [0, 1.5], "lp": [3]}


def test_equals_are_not_held_off() -> None:
    assert run("prt", {"holdoff": "2ms"}, low_priority=5) == {"hp": [0, 2], "lp": [1]}


def spans(scenario: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """When each task's groups ran, in ms; the checker has nothing to say of it."""
    found: dict[str, list[tuple[float, float]]] = {}
    events = list[Event]()
    simulate(read_scenario(scenario, "test"), observers=[Recorder(events.append)])
    assert check(events).violations == []
    for event in events:
        if isinstance(event, Completed):
            found.setdefault(event.task, []).append((event.started_ns / MS, event.ns / MS))
    return found


def entry(name: str, policy: str, priority: int, *groups: tuple[str, str]) -> dict[str, Any]:
    listed = [{"at": at, "cost": cost} for at, cost in groups]
    return {"name": name, "policy": policy, "priority": priority, "groups": listed}


@pytest.mark.parametrize("policy", ["ht", "overlap", "germ"])
def test_the_hold_off_of_whoever_used_the_gpu_counts_for_waiters_of_every_policy(
    policy: str,
) -> None:
    # Kept for a from 1 to 3, for b from 4 to 6; c's own policy has no hold-off.
    scenario = {
        "policy": {"prt": {"holdoff": "2ms"}},
        "task": [
            entry("a", "prt", 3, ("0ms", "1ms")),
            entry("b", "prt", 2, ("0ms", "1ms")),
            entry("c", policy, 1, ("0ms", "5ms")),
        ],
    }
    assert spans(scenario) == {"a": [(0, 1)], "b": [(3, 4)], "c": [(6, 11)]}


def test_the_hold_off_of_a_waiters_own_policy_keeps_the_gpu_for_nobody_else() -> None:
    scenario = {
        "policy": {"prt": {"holdoff": "2ms"}},
        "task": [
            entry("a", "ht", 3, ("0ms", "1ms")),
            entry("b", "prt", 2, ("0ms", "1ms")),
        ],
    }
    assert spans(scenario) == {"a": [(0, 1)], "b": [(1, 2)]}


def test_a_driver_without_a_manager_keeps_no_gpu_free() -> None:
    scenario = {
        "policy": {"prt": {"holdoff": "2ms"}},
        "task": [
            entry("a", "prt", 3, ("0ms", "1ms")),
            entry("b", "fifo", 2, ("0.5ms", "1ms")),
            entry("c", "fifo", 1, ("2.5ms", "1ms")),
        ],
    }
    assert spans(scenario) == {"a": [(0, 1)], "b": [(1, 2)], "c": [(2.5, 3.5)]}


def test_every_gpu_has_a_hold_off_of_its_own() -> None:
    # GPU 0 is kept for a from 1 to 6, GPU 1 from 3 to 8.
    scenario = {
        "device": {"count": 2},
        "policy": {"prt": {"holdoff": "5ms"}},
        "task": [
            entry("a", "prt", 3, ("0ms", "1ms"), ("0ms", "3ms")),
            entry("b", "prt", 1, ("0.5ms", "1ms")),
        ],
    }
    assert spans(scenario) == {"a": [(0, 1), (0, 3)], "b": [(6, 7)]}


def test_a_task_under_another_policy_brings_its_hold_off_along() -> None:
    """The checker learns of it: a is kept off for b by the policy that b has now."""
    events = list[Event]()
    engine = Engine(named=[Prt(2 * MS)], observers=[Recorder(events.append)])
    b, _ = engine.add_task("b", 0, policy="ht", priority=Fixed(2))
    a, _ = engine.add_task("a", 0, policy="ht", priority=Fixed(1))
    engine.set_policy(b, "prt", 0)
    first, second = Group(b, 0), Group(a, 0)
    engine.submit(first, 0)
    assert engine.dispatch(0) is first
    engine.submit(second, 0)
    engine.complete(first, 0, MS)
    assert engine.dispatch(MS) is None
    assert engine.next_timer_ns() == 3 * MS
    assert engine.dispatch(3 * MS) is second
    engine.complete(second, 3 * MS, 4 * MS)
    engine.tell("ended", True)
    assert check(events).violations == []


@given(scenarios(), st.sampled_from((("prt", "ht"), ("prt",), ("ht",))), st.integers(1, 2))
@settings(deadline=None, max_examples=200)
def test_nobody_starves_and_all_rules_hold(
    scenario: dict[str, Any], keeping: tuple[str, ...], gpus: int
) -> None:
    setting = {"holdoff": "1.5ms", "patience": "4ms"}
    scenario["policy"] = dict.fromkeys(keeping, setting)
    scenario["device"] = {"count": gpus}
    events = list[Event]()
    outcome = simulate(read_scenario(scenario, "test"), observers=[Recorder(events.append)])
    wanted = {task["name"]: len(task["groups"]) for task in scenario["task"]}
    found = {name: entry.groups for name, entry in outcome.statistics.by_name().items()}
    assert found == wanted
    assert check(events).violations == []


def test_who_is_no_longer_ready_when_a_hold_off_ends_holds_up_nothing() -> None:
    """b is kept off GPU 0 until 11; at 10 c, on GPU 1, has used up what both share."""
    pool = {"policy": "pe", "capacity": "6ms", "period": "40ms", "shared": "pool"}
    scenario = {
        "device": {"count": 2},
        "policy": {"prt": {"holdoff": "9ms"}},
        "task": [
            entry("a", "prt", 3, ("0ms", "2ms")),
            entry("c", "ht", 2, ("0ms", "10ms")) | {"reserve": pool},
            entry("b", "prt", 1, ("1ms", "1ms")) | {"reserve": pool},
        ],
    }
    assert spans(scenario) == {"a": [(0, 2)], "c": [(0, 10)], "b": [(40, 41)]}
