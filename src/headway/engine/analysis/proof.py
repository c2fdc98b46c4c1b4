"""Admission by proof: a reserve is given only if nobody with a reserve may miss for it.

A task with a reserve of C every T is taken to have a job of one group of C every T, due within T.
A task without one may submit whenever it can, groups of a given length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.engine.analysis.groups import GroupTask, analyse_groups
from headway.engine.analysis.verdicts import HARD, Verdict
from headway.engine.model import BACKGROUND_LEVEL, Task
from headway.engine.reserves import BACKGROUND, ReserveSpec
from headway.engine.units import format_ns

MOST = 64
"""Tasks that one proof is about; more take longer than a decision may."""


def objection(tasks: Iterable[Task], newcomer: Task, spec: ReserveSpec, longest_ns: int) -> str:
    """Why the newcomer cannot have this reserve beside the others, which task would miss and by
    what; nothing if all deadlines are proven. `longest_ns`: the longest group of a task without a
    reserve."""
    others = [task for task in tasks if task is not newcomer]
    if len(others) >= MOST:
        return f"admission by analysis is for {MOST} tasks, and {len(others)} are there"
    for task in (newcomer, *others):
        if task.policy.name != "prt":
            return f"nothing is proven beside {task.name}, whose policy is {task.policy.name}"
    before = [_as_group(task, _reserve(task), longest_ns) for task in others]
    return objection_among(before, _as_group(newcomer, spec, longest_ns))


def objection_among(before: Sequence[GroupTask], newcomer: GroupTask) -> str:
    """The same of tasks as the analysis knows them. Tasks without a deadline cannot miss."""
    late = _late([*before, newcomer])
    if not late:
        return ""
    already = {verdict.task for verdict in _late(before)}
    blamed = [v for v in late if v.task == newcomer.name or v.task not in already]
    return _words(blamed[0], newcomer.name) if blamed else ""


def _reserve(task: Task) -> ReserveSpec | None:
    return None if task.reserve is None else task.reserve.spec


def _as_group(task: Task, spec: ReserveSpec | None, longest_ns: int) -> GroupTask:
    level, rule = task.rule.level, task.rule.name
    if spec is None:
        return GroupTask(task.name, level, rule, "prt", longest_ns)
    if spec.shared == BACKGROUND:
        return GroupTask(task.name, BACKGROUND_LEVEL, "fixed", "prt", longest_ns, reserve=spec)
    refused = ""
    if spec.shared is not None:
        refused = f"it shares its reserve ({spec.shared}) with tasks that may use all of it"
    elif spec.kind == "ae" and spec.predict != "exact":
        refused = "its reserve goes by predictions that may be wrong; expected pe"
    period_ns = spec.period_ns
    return GroupTask(
        task.name,
        level,
        rule,
        "prt",
        spec.capacity_ns,
        period_ns=period_ns,
        deadline_ns=period_ns,
        order_ns=task.period_ns or period_ns,
        reserve=spec,
        refused=refused,
    )


def _late(tasks: Sequence[GroupTask]) -> list[Verdict]:
    """Whose deadlines are not proven, the task that was added last first."""
    due = {task.name for task in tasks if task.deadline_ns is not None}
    verdicts = reversed(analyse_groups(tasks))
    return [v for v in verdicts if v.schedulable != HARD and v.task in due]


def _words(verdict: Verdict, newcomer: str) -> str:
    whose = "its own jobs" if verdict.task == newcomer else f"jobs of {verdict.task}"
    if verdict.bound_ns is None:
        return f"{whose} might miss their deadline: {verdict.why}"
    mostly = f", mostly {verdict.dominates}" if verdict.dominates else ""
    return (
        f"{whose} might miss their deadline: they may take {format_ns(verdict.bound_ns)}{mostly}, "
        f"and are due after {format_ns(verdict.deadline_ns)}"
    )
