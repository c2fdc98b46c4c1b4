"""The simulator keeps the scenario contract: the worked examples, and the reference on any other.

`tests/reference.py` follows the contract sentence by sentence and shares no code with Headway.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import Observer
from headway.engine.model import Group
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import parse_scenario
from tests import reference
from tests.strategies import MS, TASK_NAMES, scenarios, to_toml

ORACLES = sorted((Path(__file__).resolve().parents[1] / "data" / "oracles").glob("*.toml"))


class Groups(Observer):
    """The `groups` of a result."""

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = []

    def completed(self, group: Group, now_ns: int) -> None:
        self.groups.append(
            {
                "task": group.task.name,
                "index": group.index,
                "submitted_ns": group.submitted_ns,
                "started_ns": group.started_ns,
                "finished_ns": now_ns,
            }
        )


def run(text: str) -> tuple[list[dict[str, Any]], Outcome]:
    seen = Groups()
    outcome = simulate(parse_scenario(text), observers=[seen])
    return sorted(seen.groups, key=lambda group: group["started_ns"]), outcome


def groups_of(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    return run(to_toml(scenario))[0]


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.stem)
def test_the_worked_examples_come_out_as_they_are_written(path: Path) -> None:
    groups, outcome = run(path.read_text())
    expected = json.loads(path.with_suffix(".json").read_text())
    assert groups == expected["groups"]
    assert outcome.complete
    assert not outcome.turned_away


@pytest.mark.parametrize("path", ORACLES, ids=lambda path: path.stem)
def test_the_table_of_tasks_follows_from_the_groups(path: Path) -> None:
    _, outcome = run(path.read_text())
    of_task: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for group in json.loads(path.with_suffix(".json").read_text())["groups"]:
        of_task[group["task"]].append(group)
    table = outcome.statistics.as_dict()["tasks"]
    assert set(of_task) <= set(table)
    for name, groups in of_task.items():
        responses = sorted(g["finished_ns"] - g["submitted_ns"] for g in groups)
        count = len(responses)
        assert table[name]["groups"] == count
        assert table[name]["gpu_ns"] == sum(g["finished_ns"] - g["started_ns"] for g in groups)
        assert table[name]["response_ns"] == {
            "p50": responses[-(-50 * count // 100) - 1],
            "p99": responses[-(-99 * count // 100) - 1],
            "max": responses[-1],
        }


@settings(database=None, deadline=None, max_examples=600)
@given(scenarios())
def test_the_simulator_agrees_with_the_reference(scenario: dict[str, Any]) -> None:
    assert groups_of(scenario) == reference.simulate(scenario)


@settings(database=None, deadline=None, max_examples=100)
@given(scenarios(), st.data())
def test_a_task_that_submits_nothing_in_time_changes_nothing(
    scenario: dict[str, Any], data: st.DataObject
) -> None:
    # All groups together take less than 200 ms and none waits longer than a few periods of 12 ms.
    idle = {
        "name": "idle",
        "policy": data.draw(st.sampled_from(("prt", "ht"))),
        "priority": data.draw(st.integers(-2, 3)),
        "groups": data.draw(st.sampled_from(([], [{"at": "1000s", "cost": "1ms"}]))),
    }
    place = data.draw(st.integers(0, len(scenario["task"])))
    tasks = [*scenario["task"]]
    tasks.insert(place, idle)
    with_idle = [g for g in groups_of({"task": tasks}) if g["task"] != "idle"]
    assert with_idle == groups_of(scenario)


@settings(database=None, deadline=None, max_examples=100)
@given(scenarios(), st.sampled_from(("pe", "ae")))
def test_a_reserve_that_is_never_used_up_changes_nothing(
    scenario: dict[str, Any], policy: str
) -> None:
    ample = {"policy": policy, "capacity": "100s", "period": "100s", "predict": "exact"}
    tasks = [{"reserve": ample, **task} for task in scenario["task"]]
    assert groups_of({"task": tasks}) == groups_of(scenario)


@settings(database=None, deadline=None, max_examples=100)
@given(
    scenarios(),
    st.permutations(range(len(TASK_NAMES))),
    st.permutations(range(len(TASK_NAMES))),
)
def test_the_order_in_the_file_means_nothing_where_priorities_differ(
    scenario: dict[str, Any], priorities: list[int], order: list[int]
) -> None:
    tasks = [
        {**task, "priority": priority}
        for task, priority in zip(scenario["task"], priorities, strict=False)
    ]
    shuffled = [tasks[place] for place in order if place < len(tasks)]
    assert groups_of({"task": shuffled}) == groups_of({"task": tasks})


@settings(database=None, deadline=None, max_examples=50)
@given(scenarios())
def test_a_device_without_overheads_may_be_written_down(scenario: dict[str, Any]) -> None:
    device = {"count": 1, "switch": "0us", "decide": "0ns"}
    assert groups_of({"device": device, **scenario}) == groups_of(scenario)


@settings(database=None, deadline=None, max_examples=50)
@given(scenarios(), st.integers(1, 40))
def test_a_run_that_is_cut_short_is_the_beginning_of_the_whole_run(
    scenario: dict[str, Any], stop_ms: int
) -> None:
    text = f'[run]\nduration = "{stop_ms}ms"\n{to_toml(scenario)}'
    whole = groups_of(scenario)
    assert run(text)[0] == [g for g in whole if g["finished_ns"] <= stop_ms * MS]
