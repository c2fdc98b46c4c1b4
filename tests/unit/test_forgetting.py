"""A history that forgets what is old says the same of the last seconds as one that does not."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import (
    Began,
    Completed,
    Event,
    Recorder,
    Submitted,
    TaskAdded,
    TaskRemoved,
)
from headway.sim.outcome import simulate
from headway.sim.scenario import parse_scenario
from headway.trace.analysis import History, summarise
from tests.strategies import MS, scenarios, to_toml


def numbers(history: History, from_ns: int, to_ns: int) -> dict[str, Any]:
    """What a summary says, with names instead of numbers, of whoever did anything."""
    found = summarise(history, from_ns, to_ns)
    name = {n: task.name for n, task in enumerate(found.tasks)}
    tasks = {
        task.name: (
            task.responses_ns,
            task.gpu_ns,
            task.frames,
            task.missed,
            sorted((name.get(cause, str(cause)), ns) for cause, ns in task.waited_ns.items() if ns),
        )
        for task in found.tasks
        if task.groups or task.gpu_ns or task.frames or task.wait_ns
    }
    reserves = {r.name: (r.charged_ns, r.entitled_ns, r.overruns) for r in found.reserves}
    return {"busy": found.busy_ns, "tasks": tasks, "reserves": reserves}


@settings(database=None, deadline=None, max_examples=40)
@given(scenarios(), st.integers(1, 40), st.integers(1, 30))
def test_what_is_old_is_not_missed(scenario: dict[str, Any], window: int, every: int) -> None:
    events: list[Event] = []
    simulate(parse_scenario(to_toml(scenario)), observers=[Recorder(events.append)])
    whole, short = History(), History()
    for count, event in enumerate(events):
        whole.feed(event)
        short.feed(event)
        if count % every == 0:
            short.forget(event.ns - window * MS)
    end_ns = whole.end_ns
    from_ns = max(whole.begin_ns, end_ns - window * MS)
    assert numbers(short.until(end_ns), from_ns, end_ns) == numbers(
        whole.until(end_ns), from_ns, end_ns
    )


def test_tasks_that_are_gone_are_forgotten_and_those_that_stay_keep_their_names() -> None:
    history = History()
    history.feed(Began(0, 1))
    history.feed(TaskAdded(0, "stays", "prt", "0", 0))
    for n in range(500):
        at, name = n * MS, f"short {n}"
        history.feed(TaskAdded(at, name, "prt", "0", 0))
        for index, task in enumerate((name, "stays")):
            start = at + index * 1000
            history.feed(Submitted(start, task, n, 1000, None))
            history.feed(Completed(start + 1000, task, n, 0, start, start, None, 0, False, None))
        history.feed(TaskRemoved(at + 5000, name))
        history.forget(at - 10 * MS)
        assert len(history.tasks) <= 13
        assert len(history.groups) <= 26
    now = history.until(500 * MS)
    found = summarise(now, 490 * MS, 500 * MS)
    groups = {task.name: task.groups for task in found.tasks}
    assert groups["stays"] == 10
    assert groups["short 499"] == 1


def test_what_is_known_now_is_closed_and_the_history_goes_on() -> None:
    history = History()
    for event in (
        Began(0, 1),
        TaskAdded(0, "a", "prt", "0", 0),
        Submitted(MS, "a", 0, 1000, None),
    ):
        history.feed(event)
    first = summarise(history.until(3 * MS))
    assert first.tasks[0].wait_ns == 2 * MS
    history.feed(Completed(6 * MS, "a", 0, 0, MS, 5 * MS, None, 0, False, None))
    again = summarise(history.until(6 * MS))
    assert again.tasks[0].responses_ns == [5 * MS]
