"""What a stream of events tells of its tasks, group by group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headway.engine import events
from headway.engine.model import MAX_LEVEL, level_of, refinement_of
from headway.engine.priorities import RateMonotonic
from headway.engine.units import MAX_NS


@dataclass(slots=True)
class SeenGroup:
    submitted_ns: int
    predicted_ns: int = 0
    deadline_ns: int | None = None
    dispatched_ns: int | None = None
    started_ns: int = 0
    completed_ns: int | None = None
    frame: bool = False
    passed: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Under a lease: until when, groups, frames, GPU time."""


@dataclass(slots=True)
class SeenTask:
    order: int
    name: str
    policy: str
    priority: str
    added_ns: int
    period_ns: int | None = None
    """What rate-monotonic priorities went by."""
    removed_ns: int | None = None
    reserve: str | None = None
    groups: dict[int, SeenGroup] = field(default_factory=dict)
    withdrawn: tuple[int, int, SeenGroup] | None = None
    """The last group that went without its grant, and when."""


class Recording:
    """Collects what a stream tells of its tasks."""

    def __init__(self) -> None:
        self.gpus = 1
        self.begin_ns: int | None = None
        self.end_ns = 0
        self.tasks: dict[str, SeenTask] = {}
        self.gone: list[SeenTask] = []
        self.reserves: dict[str, events.ReserveSet] = {}
        self.holdoffs: dict[str, tuple[int, int]] = {}
        self.changes: list[tuple[int, str, dict[str, Any]]] = []
        self.notes: dict[str, None] = {}
        self._free_ns: dict[int, tuple[int, str]] = {}
        self.overheads: dict[bool, list[int]] = {True: [], False: []}
        """What was lost before groups, on an idle GPU, after another task's and the same task's."""
        self._taking_up = False
        self._handlers: dict[type[events.Event], Callable[[Any], None]] = {
            events.Began: self._began,
            events.TakenUp: self._taken_up,
            events.Found: self._found,
            events.TaskAdded: self._task_added,
            events.TaskRemoved: self._task_removed,
            events.PolicySet: self._policy_set,
            events.Ranked: self._ranked,
            events.ReserveSet: self._reserve_set,
            events.Joined: self._joined,
            events.Submitted: self._submitted,
            events.Withdrawn: self._withdrawn,
            events.Dispatched: self._dispatched,
            events.Completed: self._completed,
            events.Passed: self._passed,
            events.Entered: self._entered,
            events.Focused: self._focused,
        }

    def feed(self, event: events.Event) -> None:
        if self.begin_ns is None:
            self.begin_ns = event.ns
        self.end_ns = max(self.end_ns, event.ns)
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    def all_tasks(self) -> list[SeenTask]:
        """In the order in which they came."""
        return sorted([*self.gone, *self.tasks.values()], key=lambda task: task.order)

    def _began(self, event: events.Began) -> None:
        self.gpus = event.gpus

    def _taken_up(self, event: events.TakenUp) -> None:
        self._taking_up = True
        if event.dropped:
            self.notes[f"{event.dropped} records were dropped; what happened there is left out"] = (
                None
            )

    def _found(self, event: events.Found) -> None:
        self._taking_up = False

    def _task_added(self, event: events.TaskAdded) -> None:
        if event.task not in self.tasks:
            order = len(self.tasks) + len(self.gone)
            self.tasks[event.task] = SeenTask(
                order, event.task, event.policy, event.priority, event.ns, _period_ns(event)
            )
        self.holdoffs[event.policy] = event.holdoff_ns, event.patience_ns

    def _task_removed(self, event: events.TaskRemoved) -> None:
        task = self.tasks.pop(event.task, None)
        if task is None:
            return
        task.removed_ns = event.ns
        self.gone.append(task)
        if task.withdrawn is not None and task.withdrawn[0] == event.ns:
            _, index, group = task.withdrawn  # not given up: it would have gone on to wait
            task.groups[index] = group

    def _policy_set(self, event: events.PolicySet) -> None:
        if event.task in self.tasks:
            self.tasks[event.task].policy = event.policy

    def _ranked(self, event: events.Ranked) -> None:
        task = self.tasks.get(event.task)
        if task is None or not task.priority.lstrip("-").isdigit() or self._taking_up:
            return
        level = level_of(event.base_rank)
        if abs(level) <= MAX_LEVEL:
            self.changes.append((event.ns, event.task, {"priority": level}))

    def _reserve_set(self, event: events.ReserveSet) -> None:
        before = self.reserves.get(event.reserve)
        if before is not None and (before.capacity_ns, before.period_ns, before.policy) != (
            event.capacity_ns, event.period_ns, event.policy,
        ):  # fmt: skip
            self.notes[f"the reserve {event.reserve} changed; its last numbers count"] = None
        self.reserves[event.reserve] = event

    def _joined(self, event: events.Joined) -> None:
        if event.task in self.tasks:
            self.tasks[event.task].reserve = event.reserve

    def _entered(self, event: events.Entered) -> None:
        self.notes["requests to servers are not repeated: nothing is inherited"] = None

    def _focused(self, event: events.Focused) -> None:
        if event.task is not None:
            self.changes.append((event.ns, event.task, {"focus": True}))

    # -- groups ------------------------------------------------------------------------------

    def _group(self, name: str, index: int) -> SeenGroup | None:
        for task in (self.tasks.get(name), *reversed(self.gone)):
            if task is not None and task.name == name and index in task.groups:
                return task.groups[index]
        return None

    def _submitted(self, event: events.Submitted) -> None:
        task = self.tasks.get(event.task)
        if task is None or (self._taking_up and event.index in task.groups):
            return
        group = SeenGroup(event.ns, event.predicted_ns, event.deadline_ns)
        task.groups[event.index] = group

    def _withdrawn(self, event: events.Withdrawn) -> None:
        task = self.tasks.get(event.task)
        if task is not None and event.index in task.groups:
            task.withdrawn = event.ns, event.index, task.groups.pop(event.index)

    def _dispatched(self, event: events.Dispatched) -> None:
        group = self._group(event.task, event.index)
        if group is not None:
            group.dispatched_ns = event.ns

    def _completed(self, event: events.Completed) -> None:
        group = self._group(event.task, event.index)
        if group is None or group.dispatched_ns is None:
            return
        if event.started_ns == event.ns and not group.passed:  # a lease that nobody used
            self.tasks[event.task].groups.pop(event.index)
            return
        group.started_ns, group.completed_ns = event.started_ns, event.ns
        group.frame = event.frame
        free_ns, last = self._free_ns.get(event.gpu, (0, event.task))
        if not group.passed:
            overhead_ns = event.started_ns - max(group.dispatched_ns, free_ns)
            self.overheads[last != event.task].append(max(0, overhead_ns))
        self._free_ns[event.gpu] = event.ns, event.task

    def _passed(self, event: events.Passed) -> None:
        task = self.tasks.get(event.task)
        for group in reversed((task.groups if task is not None else {}).values()):
            if group.dispatched_ns is not None and group.completed_ns is None:
                group.passed.append((event.ns, event.groups, event.frames, event.used_ns))
                return


def _period_ns(event: events.TaskAdded) -> int | None:
    refinement = refinement_of(event.rank)
    is_rm = event.priority.partition("@")[0] == RateMonotonic.name
    return refinement if is_rm and 0 < refinement < MAX_NS else None
