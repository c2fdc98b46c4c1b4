"""What a run came to for each task, from its events alone: the same for recorded and simulated
runs, so that the two can stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.engine.events import Completed, Dispatched, Event, Passed, Shown, TaskAdded
from headway.trace.statistics import Quantiles


class TaskTally:
    """One task."""

    def __init__(self) -> None:
        self.groups = 0
        self.frames = 0
        self.gpu_ns = 0
        self.waits = Quantiles()
        """From submission to start; a group that passes under a lease does not wait."""
        self._leased: set[int] = set()
        self._online: int | None = None

    def dispatched(self, event: Dispatched) -> None:
        self._online = event.index

    def passed(self, event: Passed) -> None:
        if self._online is not None:
            self._leased.add(self._online)
        self.groups += event.groups
        self.frames += event.frames
        self._add_waits([0] * event.groups)

    def completed(self, event: Completed) -> None:
        self.gpu_ns += event.ns - event.started_ns
        if event.index in self._leased:
            self._leased.remove(event.index)
            return
        self.groups += 1
        self.frames += event.frame
        self._add_waits([max(0, event.started_ns - event.submitted_ns)])

    def shown(self, event: Shown) -> None:
        self.frames += 1

    def _add_waits(self, waits_ns: list[int]) -> None:
        self.waits.pending.extend(waits_ns)
        self.waits.fold()


class Tally:
    """All tasks, by name."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskTally] = {}
        self._handlers: dict[type[Event], Callable[[TaskTally, Any], None]] = {
            Dispatched: TaskTally.dispatched,
            Passed: TaskTally.passed,
            Completed: TaskTally.completed,
            Shown: TaskTally.shown,
        }

    def feed(self, event: Event) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(self._task(event.task), event)  # type: ignore[attr-defined]
        elif isinstance(event, TaskAdded):
            self._task(event.task)

    def _task(self, name: str) -> TaskTally:
        task = self.tasks.get(name)
        if task is None:
            task = self.tasks[name] = TaskTally()
        return task
