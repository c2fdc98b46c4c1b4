"""Priority rules: how a task's rank comes from what is known of it.

Any policy can be combined with any rule. A rule is one class with one method, found by its
decorator; `parse_priority` reads what files and commands say: `5`, `"*"`, `"rm"`, `"edf@3"`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from headway.engine.model import DEFAULT_LEVEL, MAX_LEVEL, Rank, make_rank
from headway.engine.units import MAX_NS

if TYPE_CHECKING:
    from headway.engine.model import Group, Task

_RULES: dict[str, type[PriorityRule]] = {}
R = TypeVar("R", bound="type[PriorityRule]")


class PriorityRule(ABC):
    """Gives a task its rank within a priority level."""

    name: ClassVar[str] = "fixed"
    per_group: ClassVar[bool] = False
    """Whether the rank depends on the group that waits, so that it is asked at every submission."""

    def __init__(self, level: int = DEFAULT_LEVEL) -> None:
        self.level = level

    @abstractmethod
    def rank(self, task: Task, group: Group | None) -> Rank:
        """The task's own rank, before inheritance."""

    def __str__(self) -> str:
        return self.name if self.level == DEFAULT_LEVEL else f"{self.name}@{self.level}"


def rule(name: str) -> Callable[[R], R]:
    """Register a priority rule under the name that files use."""

    def register(cls: R) -> R:
        cls.name = name
        _RULES[name] = cls
        return cls

    return register


def rules() -> dict[str, type[PriorityRule]]:
    """Every registered priority rule by name."""
    return _RULES


class Fixed(PriorityRule):
    """An integer; larger is more important."""

    def rank(self, task: Task, group: Group | None) -> Rank:
        return make_rank(self.level)

    def __str__(self) -> str:
        return str(self.level)


@rule("rm")
class RateMonotonic(PriorityRule):
    """The shorter the period of the reserve, else of the task, the more important."""

    def rank(self, task: Task, group: Group | None) -> Rank:
        period_ns = task.reserve.period_ns if task.reserve is not None else task.period_ns
        return make_rank(self.level, MAX_NS if period_ns is None else period_ns)


@rule("edf")
class EarliestDeadline(PriorityRule):
    """The earlier the deadline of the waiting group, the more important."""

    per_group = True

    def rank(self, task: Task, group: Group | None) -> Rank:
        deadline_ns = None if group is None else group.deadline_ns
        return make_rank(self.level, MAX_NS if deadline_ns is None else deadline_ns)


@rule("*")
class Automatic(PriorityRule):
    """The task in the foreground window first among the automatic ones (AGPA, TimeGraph §3)."""

    def rank(self, task: Task, group: Group | None) -> Rank:
        return make_rank(self.level, 0 if task.foreground else 1)


ON_TIME = 5
"""The upper half of the levels that people use: 0 for the rest to 9 for what must be on time."""


def is_on_time(rule: PriorityRule | None) -> bool:
    """Whether a program of this priority must be on time, where hardware knows two levels only, and
    asks when the program starts: before anybody knows who else will be there."""
    return rule is not None and (type(rule) is not Fixed or rule.level >= ON_TIME)


_SYNTAX = re.compile(r"(?P<rule>\*|[a-z]+)(?:@(?P<level>-?\d{1,9}))?")


def expected_priority() -> str:
    """What a priority may be, for error messages."""
    names = ", ".join(f'"{name}"' for name in _RULES)
    return f'an integer from -{MAX_LEVEL} to {MAX_LEVEL}, or {names} (with a level: "rm@5")'


def parse_priority(value: object) -> PriorityRule:
    """Read a priority as files and commands give it; ValueError says what was expected."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_LEVEL:
        return Fixed(value)
    match = _SYNTAX.fullmatch(value) if isinstance(value, str) else None
    if match is not None and match["rule"] in _RULES:
        level = int(match["level"] or DEFAULT_LEVEL)
        if abs(level) <= MAX_LEVEL:
            return _RULES[match["rule"]](level)
    raise ValueError(expected_priority())
