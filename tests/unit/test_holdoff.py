"""Hold-off: an idle GPU is kept for a moment for the important program that used it last."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from headway.engine.events import Event, Observer, Recorder
from headway.engine.model import Group
from headway.sim.run import simulate
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


@given(scenarios())
@settings(deadline=None, max_examples=200)
def test_nobody_starves_and_all_rules_hold(scenario: dict[str, Any]) -> None:
    setting = {"holdoff": "1.5ms", "patience": "4ms"}
    scenario["policy"] = {"prt": setting, "ht": setting}
    events = list[Event]()
    outcome = simulate(read_scenario(scenario, "test"), observers=[Recorder(events.append)])
    wanted = {task["name"]: len(task["groups"]) for task in scenario["task"]}
    found = {name: entry.groups for name, entry in outcome.statistics.by_name().items()}
    assert found == wanted
    assert check(events).violations == []
