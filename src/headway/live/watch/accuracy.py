"""How good the predictions of each task's costs are, over its last groups."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headway.engine.events import Measured, Observer

if TYPE_CHECKING:
    from headway.engine.model import Group, Task

GROUPS: Final = 256
"""As many groups as a program shows in some seconds."""
UNDER: Final = 0.05
"""A group that took so much more than predicted was under-predicted."""


class Errors:
    """Of one task's last groups: how far off they were, relative to what they took."""

    def __init__(self) -> None:
        self.last: deque[tuple[float, bool]] = deque(maxlen=GROUPS)
        """The error, positive if pessimistic, and whether the group exceeded its bound."""

    def describe(self) -> dict[str, Any]:
        errors = sorted(abs(error) for error, _ in self.last)
        return {
            "groups": len(errors),
            "median": errors[len(errors) // 2],
            "mean": sum(errors) / len(errors),
            "bias": sum(error for error, _ in self.last) / len(errors),
            "over_bound": sum(over for _, over in self.last) / len(errors),
        }


class Accuracy(Observer):
    """Compares predicted with measured costs of groups that were asked for, and of launches that
    were measured under a lease; a lease itself has none."""

    def __init__(self) -> None:
        self._tasks: dict[Task, Errors] = {}
        self._launches: dict[str, Errors] = {}
        """Of launches under leases that were measured by themselves, by task."""

    def completed(self, group: Group, now_ns: int) -> None:
        took_ns = now_ns - group.started_ns
        if group.leased or group.signature is None or group.predicted_ns <= 0 or took_ns <= 0:
            return
        errors = self._tasks.setdefault(group.task, Errors())
        over = group.bound_ns > 0 and took_ns > group.bound_ns * (1 + UNDER)
        errors.last.append(((group.predicted_ns - took_ns) / took_ns, over))

    def measured(self, what: Measured, now_ns: int) -> None:
        if what.predicted_ns > 0:
            errors = self._launches.setdefault(what.task, Errors())
            over = what.took_ns > what.bound_ns * (1 + UNDER)
            errors.last.append(((what.predicted_ns - what.took_ns) / what.took_ns, over))

    def task_removed(self, task: Task, now_ns: int) -> None:
        self._tasks.pop(task, None)
        self._launches.pop(task.name, None)

    def began(self, gpus: int, now_ns: int) -> None:
        self._tasks.clear()
        self._launches.clear()

    def describe(self, task: Task) -> dict[str, Any] | None:
        """Facts for people; None while nothing was predicted."""
        errors = self._tasks.get(task) or self._launches.get(task.name)
        return None if errors is None else errors.describe()
