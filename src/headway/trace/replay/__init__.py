"""A recorded run as a scenario: the same programs, to be simulated under whatever policy.

What is assumed of a program, because a recording does not say it:

- It is a loop. A group that was submitted after the one before it was done is submitted again as
  long after that one is done; one that was submitted earlier, as long after the dispatch. A program
  is taken to be paced by a clock, so that its groups come when they came, if they have deadlines or
  if they came at even intervals though they did not take evenly long.
- It goes on: if it was still busy at its end and gets on faster, it begins again from its begin.
- What it did under a lease was as even as possible: so many groups of equal cost and distance.
- Costs are what was measured, with everything that was charged to the group.

Requests to servers, and changes of policies and reserves while it ran, are not repeated: the last
ones count throughout. `Plan.notes` says what was left out of a recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from headway.engine import events
from headway.engine.model import MAX_LEVEL
from headway.engine.reserves import BACKGROUND, POOL_MARK
from headway.engine.units import format_ns
from headway.trace.replay.collecting import Recording, SeenTask
from headway.trace.replay.runs import Run, is_paced, runs_of
from headway.trace.replay.steps import AFTER, AT, BEHIND, Step

_LIVE_NAME = re.compile(r"(?P<name>.+?)\.\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Plan:
    """A scenario, as `read_scenario` takes it, and what belongs to it."""

    data: dict[str, Any]
    names: dict[str, str]
    """The tasks' names in the recording, and in the scenario."""
    alive_ns: dict[str, int]
    """For how long each task was there, by its name in the scenario."""
    notes: list[str]


def plan(stream: Iterable[events.Event], paced: Iterable[str] = ()) -> Plan:
    """The scenario of a recording; `paced` tasks are known to follow a clock."""
    recording = Recording()
    for event in stream:
        recording.feed(event)
    return _Planner(recording, set(paced)).plan()


class _Planner:
    """Turns what was collected into a scenario."""

    def __init__(self, recording: Recording, paced: set[str]) -> None:
        self._recording = recording
        self._paced = paced
        self._begin_ns = recording.begin_ns or 0
        self._end_ns = recording.end_ns
        self._names: dict[int, str] = {}

    def plan(self) -> Plan:
        recording = self._recording
        tasks = [task for task in recording.all_tasks() if task.groups]
        self._name(tasks)
        by_name = {task.name: self._names[id(task)] for task in tasks}
        switch_ns, decide_ns = (
            round(median(found)) if found else 0
            for found in (recording.overheads[True], recording.overheads[False])
        )
        device: dict[str, Any] = {"count": recording.gpus}
        if decide_ns or switch_ns:
            device |= {
                "decide": format_ns(decide_ns),
                "switch": format_ns(max(0, switch_ns - decide_ns)),
            }
        data: dict[str, Any] = {
            "run": {"duration": format_ns(max(1, self._end_ns - self._begin_ns))},
            "device": device,
            "policy": {
                name: {"holdoff": format_ns(holdoff_ns), "patience": format_ns(patience_ns)}
                for name, (holdoff_ns, patience_ns) in recording.holdoffs.items()
                if name in ("prt", "ht")
            },
            "task": [self._task(task) for task in tasks],
            "event": self._events(tasks, by_name),
        }
        pool = recording.reserves.get(POOL_MARK + BACKGROUND)
        if pool is not None:
            numbers = {"capacity": pool.capacity_ns, "period": pool.period_ns}
            data["background"] = {key: format_ns(ns) for key, ns in numbers.items()}
        if "germ" in recording.holdoffs:
            recording.notes["the tick of germ is not recorded; 1ms is taken"] = None
        alive_ns = {
            self._names[id(task)]: (task.removed_ns or self._end_ns) - task.added_ns
            for task in tasks
        }
        return Plan(data, by_name, alive_ns, list(recording.notes))

    def _name(self, tasks: list[SeenTask]) -> None:
        """The daemon's names have a process number, which says nothing here."""
        taken: set[str] = set()
        for task in tasks:
            match = _LIVE_NAME.fullmatch(task.name)
            short = (match["name"] if match else task.name).replace(".", "-")
            name, number = short, 1
            while name in taken:
                number += 1
                name = f"{short}-{number}"
            taken.add(name)
            self._names[id(task)] = name

    def _events(self, tasks: list[SeenTask], by_name: dict[str, str]) -> list[dict[str, Any]]:
        found = []
        for ns, task, change in self._recording.changes:
            if task in by_name:
                at = {"at": format_ns(max(0, ns - self._begin_ns))}
                if "focus" in change:
                    found.append({**at, "focus": by_name[task]})
                else:
                    found.append({**at, "task": by_name[task], **change})
        for gone in tasks:
            if gone.removed_ns is not None and gone.removed_ns < self._end_ns:
                at = {"at": format_ns(gone.removed_ns - self._begin_ns)}
                found.append({**at, "kill": self._names[id(gone)]})
        return found

    def _task(self, task: SeenTask) -> dict[str, Any]:
        steps, repeat_ns = self._steps(task)
        program: dict[str, Any] = {"groups": [str(step) for step in steps]}
        if repeat_ns is not None:
            program["repeat"] = format_ns(repeat_ns)
        if task.period_ns is not None:
            program["period"] = format_ns(task.period_ns)
        table: dict[str, Any] = {"name": self._names[id(task)], "policy": task.policy}
        level = task.priority.lstrip("-").isdigit() and int(task.priority)
        if level is False:
            table["priority"] = task.priority
        elif abs(level) <= MAX_LEVEL:
            table["priority"] = level
        reserve = self._reserve(task)
        if reserve is not None:
            table["reserve"] = reserve
        table["recorded"] = program
        return table

    def _reserve(self, task: SeenTask) -> dict[str, Any] | str | None:
        found = None if task.reserve is None else self._recording.reserves.get(task.reserve)
        if found is None:
            return None
        if found.reserve.partition(" (GPU")[0] == POOL_MARK + BACKGROUND:
            return BACKGROUND
        table = {
            "policy": found.policy,
            "capacity": format_ns(found.capacity_ns),
            "period": format_ns(found.period_ns),
        }
        if found.shared:
            table["shared"] = found.reserve.removeprefix(POOL_MARK)
        if found.policy == "ae":
            table["predict"] = "exact" if self._predicts_exactly(found.reserve) else "history"
        return table

    def _predicts_exactly(self, reserve: str) -> bool:
        members = [task for task in self._recording.all_tasks() if task.reserve == reserve]
        done = [g for t in members for g in t.groups.values() if g.completed_ns is not None]
        return all(g.predicted_ns == (g.completed_ns or 0) - g.started_ns for g in done)

    # -- groups ------------------------------------------------------------------------------

    def _steps(self, task: SeenTask) -> tuple[list[Step], int | None]:
        """What the task did, and how long after its end it begins again, if it does."""
        costs = [g.completed_ns - g.started_ns for g in task.groups.values() if g.completed_ns]
        usual_ns = max(1, round(median(costs))) if costs else 1
        runs: list[Run] = []
        for group in task.groups.values():
            runs.extend(runs_of(group, usual_ns, self._end_ns))
        if not runs:
            return [], None
        paced = task.name in self._paced or self._names[id(task)] in self._paced or is_paced(runs)
        steps = []
        last: Run | None = None
        for run in runs:
            due_ns = None
            if last is None or paced:
                mark, when_ns = AT, max(0, run.ns - self._begin_ns)
                if run.deadline_ns is not None:  # with one of these it is paced
                    due_ns = max(0, run.deadline_ns - self._begin_ns)
            elif last.done_ns is not None and run.ns >= last.done_ns:
                mark, when_ns = AFTER, run.ns - last.done_ns
            else:
                mark, when_ns = BEHIND, max(0, run.ns - last.went_ns)
            steps.append(Step(mark, when_ns, run.cost_ns, run.frame, due_ns))
            last = run
        return steps, None if paced else self._repeat_ns(task, steps, runs[-1])

    def _repeat_ns(self, task: SeenTask, steps: list[Step], last: Run) -> int | None:
        """A task that was idle at its end for longer than ever before has done what it had to.
        Otherwise it is not before the end of the recording that it begins again."""
        end_ns = task.removed_ns or self._end_ns
        if len(steps) == 1:
            return None
        pauses = [step.when_ns for step in steps if step.mark == AFTER] or [0]
        if last.done_ns is None:  # it was not even done
            return round(median(pauses))
        idle_ns: int = max(0, end_ns - last.done_ns)
        if idle_ns > 2 * max(*pauses, last.cost_ns):
            return None
        return idle_ns + 1
