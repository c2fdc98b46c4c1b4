"""A recorded run, simulated again: the same under the same policy, and what is assumed beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import (
    Began,
    Completed,
    Dispatched,
    Ended,
    Event,
    Passed,
    Recorder,
    Submitted,
    TakenUp,
    TaskAdded,
    TaskRemoved,
    Withdrawn,
)
from headway.engine.model import make_rank
from headway.engine.reading import BadInput
from headway.sim.outcome import simulate
from headway.sim.scenario import parse_scenario, read_scenario
from headway.trace.replay import Plan, plan
from headway.trace.replay.steps import Step, parse_step
from headway.trace.replay.text import scenario_text
from headway.trace.tally import Tally
from tests.strategies import scenarios, to_toml

MS = 1_000_000
Schedule = list[tuple[str, int, int, int, int]]


def events_of(data: dict[str, Any]) -> list[Event]:
    events: list[Event] = []
    simulate(read_scenario(data, "test"), observers=[Recorder(events.append)])
    return events


def schedule(events: list[Event]) -> Schedule:
    """Every group that ran: submitted, started, done."""
    done = [event for event in events if isinstance(event, Completed)]
    return [(e.task, e.index, e.submitted_ns, e.started_ns, e.ns) for e in done]


def replayed(events: list[Event]) -> Schedule:
    return schedule(events_of(plan(events).data))


@given(scenarios())
@settings(deadline=None, max_examples=80)
def test_the_same_policy_gives_the_same_schedule(data: dict[str, Any]) -> None:
    events: list[Event] = []
    simulate(parse_scenario(to_toml(data)), observers=[Recorder(events.append)])
    assert replayed(events) == schedule(events)


PROGRAMS: list[dict[str, Any]] = [
    {"greedy": {"cost": ["0.3ms", "2ms"], "depth": 3, "cpu": "0.2ms"}},
    {"bomb": {"cost": ["0.3ms", "2ms"]}},
    {"periodic": {"period": "7ms", "cost": "2ms", "deadline": "5ms"}},
    {"widget": {"cost": "1.7ms"}},
    {"game": {}},
    {"video": {"cost": "3ms"}},
]
RESERVES: list[Any] = [
    "none",
    "background",
    {"policy": "pe", "capacity": "3ms", "period": "9ms"},
    {"policy": "ae", "capacity": "4ms", "period": "11ms"},
]


@given(st.data())
@settings(deadline=None, max_examples=40)
def test_generated_programs_give_the_same_schedule(data: st.DataObject) -> None:
    tasks = [
        {
            "name": f"t{number}",
            "policy": data.draw(st.sampled_from(("prt", "ht", "fifo"))),
            "priority": data.draw(st.sampled_from((0, 1, 5, "rm", "edf"))),
            "reserve": data.draw(st.sampled_from(RESERVES)),
            **data.draw(st.sampled_from(PROGRAMS)),
        }
        for number in range(data.draw(st.integers(1, 4)))
    ]
    run = {"run": {"duration": "80ms", "seed": data.draw(st.integers(0, 9))}, "task": tasks}
    if data.draw(st.booleans()):
        run["policy"] = {"prt": {"holdoff": "1ms", "patience": "10ms"}}
    events = events_of(run)
    assert replayed(events) == schedule(events)


def test_a_task_that_dies_dies_again() -> None:
    run = {
        "run": {"duration": "50ms"},
        "task": [
            {"name": "a", "priority": 2, "greedy": {"cost": "3ms"}},
            {"name": "b", "greedy": {"cost": "2ms"}},
        ],
        "event": [{"at": "20ms", "kill": "a"}, {"at": "30ms", "task": "b", "priority": 4}],
    }
    events = events_of(run)
    made = plan(events)
    assert {"at": "20ms", "kill": "a"} in made.data["event"]
    assert schedule(events_of(made.data)) == schedule(events)


def test_what_is_written_to_a_file_is_what_is_simulated() -> None:
    events = events_of(
        {
            "run": {"duration": "60ms"},
            "task": [
                {"name": "game", "priority": 3, "game": {}},
                {"name": "b", "reserve": RESERVES[2], "bomb": {}},
            ],
        }
    )
    made = plan(events)
    again: list[Event] = []
    text = scenario_text(made.data, "a test")
    simulate(parse_scenario(text), observers=[Recorder(again.append)])
    assert schedule(again) == schedule(events)


# -- another policy ------------------------------------------------------------------------------


def under(made: Plan, policy: str) -> Tally:
    tally = Tally()
    data = {**made.data, "task": [{**task, "policy": policy} for task in made.data["task"]]}
    simulate(read_scenario(data, "test"), observers=[Recorder(tally.feed)])
    return tally


def test_what_would_prt_have_done() -> None:
    """A game beside a bomb, recorded without a manager: simulated under PRT from that recording it
    comes to what it comes to if the programs themselves are simulated under PRT."""
    run = {
        "run": {"duration": "3s"},
        "task": [
            {"name": "widget", "policy": "fifo", "priority": 5, "widget": {"cost": "2ms"}},
            {"name": "bomb", "policy": "fifo", "bomb": {"cost": "1ms", "depth": 8}},
        ],
    }
    made = plan(events_of(run))
    truth = {**run, "task": [{**t, "policy": "prt"} for t in run["task"]]}  # type: ignore[dict-item]
    expected = Tally()
    simulate(read_scenario(truth, "test"), observers=[Recorder(expected.feed)])
    recorded, guess = under(made, "fifo"), under(made, "prt")
    assert expected.tasks["widget"].frames > 2 * recorded.tasks["widget"].frames
    assert guess.tasks["widget"].frames == pytest.approx(expected.tasks["widget"].frames, rel=0.05)


def test_a_paced_program_keeps_its_pace_when_it_is_held_up() -> None:
    run = {
        "run": {"duration": "1s"},
        "task": [
            {"name": "clock", "priority": 5, "periodic": {"period": "10ms", "cost": "2ms"}},
            {"name": "bomb", "greedy": {"cost": "3ms"}},
        ],
    }
    made = plan(events_of(run))
    assert all(step.startswith("@") for step in made.data["task"][0]["recorded"]["groups"])
    assert under(made, "fifo").tasks["clock"].groups in (99, 100)


# -- live recordings -----------------------------------------------------------------------------

NS0 = 5_000_000_000
"""Live clocks do not begin at zero."""


def lease(*more: Event) -> list[Event]:
    """One group that was asked for, then a lease under which 40 passed, 20 with a frame."""
    return [
        Began(NS0, 1),
        TaskAdded(NS0, "gears.123", "prt", "9", make_rank(9), 2 * MS, 50 * MS),
        Submitted(NS0 + 1 * MS, "gears.123", 0, 0, None),
        Dispatched(NS0 + 1 * MS, "gears.123", 0, 0),
        Completed(NS0 + 2 * MS, "gears.123", 0, 0, NS0 + MS, NS0 + MS, None, 0, True, None),
        Submitted(NS0 + 2 * MS, "gears.123", 1, 0, None),
        Dispatched(NS0 + 2 * MS, "gears.123", 1, 0),
        Passed(NS0 + 42 * MS, "gears.123", 40, 20, 20 * MS),
        Completed(
            NS0 + 42 * MS, "gears.123", 1, 0, NS0 + 2 * MS, NS0 + 22 * MS, None, 0, False, None
        ),
        *more,
        Ended(NS0 + 43 * MS, True),
    ]


def test_groups_that_passed_under_a_lease_are_spread_over_it() -> None:
    made = plan(lease())
    (task,) = made.data["task"]
    assert (task["name"], task["priority"]) == ("gears", 9)
    assert made.data["policy"]["prt"] == {"holdoff": "2ms", "patience": "50ms"}
    first, *passed = map(parse_step, task["recorded"]["groups"])
    assert first == Step("@", 1 * MS, 1 * MS, frame=True)
    assert len(passed) == 40
    assert {(step.mark, step.when_ns, step.cost_ns) for step in passed} == {("+", MS // 2, MS // 2)}
    assert sum(step.frame for step in passed) == 20
    tally = Tally()
    for event in lease():
        tally.feed(event)
    recorded = tally.tasks["gears.123"]
    again = under(made, "prt").tasks["gears"]
    assert (recorded.groups, recorded.frames, recorded.gpu_ns) == (41, 21, 21 * MS)
    assert (again.groups, again.frames, again.gpu_ns) == (41, 21, 21 * MS)


def test_a_program_that_was_killed_while_it_waited_would_have_gone_on() -> None:
    events = lease(
        Submitted(NS0 + 42 * MS + 1, "gears.123", 2, 0, None),
        Withdrawn(NS0 + 43 * MS, "gears.123", 2),
        TaskRemoved(NS0 + 43 * MS, "gears.123"),
    )
    (task,) = plan(events).data["task"]
    assert len(task["recorded"]["groups"]) == 42
    assert "repeat" in task["recorded"]


def test_two_programs_of_one_name_keep_apart() -> None:
    more = [event for event in lease() if isinstance(event, TaskAdded | Submitted)][:2]
    other = [TaskAdded(NS0, "gears.77", "prt", "0", 0), Submitted(NS0, "gears.77", 0, 0, None)]
    made = plan([Began(NS0, 1), *more, *other, Ended(NS0 + MS, True)])
    assert [task["name"] for task in made.data["task"]] == ["gears", "gears-2"]


def test_what_is_missing_is_said() -> None:
    assert plan([*lease()[:-1], TakenUp(NS0 + 50 * MS, 7), Ended(NS0 + 60 * MS, True)]).notes == [
        "7 records were dropped; what happened there is left out"
    ]


# -- the text form -------------------------------------------------------------------------------


@given(
    st.builds(
        Step,
        st.sampled_from("@+>"),
        st.integers(0, 10**12),
        st.integers(1, 10**12),
        st.booleans(),
        st.none() | st.integers(0, 10**12),
    )
)
def test_a_step_comes_back_from_its_text(step: Step) -> None:
    assert parse_step(str(step)) == step


@pytest.mark.parametrize(
    "text", ["", "1ms", "1ms 2ms", "@1ms", "@1ms 0ms", "@-1ms 2ms", "+1ms 2ms blue", "+1 2", 5]
)
def test_a_wrong_step_is_refused_with_its_place(text: object, tmp_path: Path) -> None:
    data = {"task": [{"name": "a", "recorded": {"groups": ["@0ms 1ms", text]}}]}
    with pytest.raises(BadInput, match="groups") as error:
        read_scenario(data, "test")
    assert '"WHEN COST"' in str(error.value)
