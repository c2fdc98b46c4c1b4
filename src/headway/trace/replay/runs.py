"""The groups of a task as they ran, also those that nobody asked for, and the rhythm in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from headway.trace.replay.collecting import SeenGroup

_MANY = 8
"""So many groups tell something about a rhythm."""
_EVEN = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """One group: submitted, dispatched, done, and its cost."""

    ns: int
    went_ns: int
    done_ns: int | None
    cost_ns: int
    frame: bool = False
    deadline_ns: int | None = None


def runs_of(group: SeenGroup, usual_ns: int, end_ns: int) -> Iterable[Run]:
    """A group as it was; under a lease, the groups that passed, at even distances."""
    went_ns, done_ns = group.dispatched_ns, group.completed_ns
    usual_ns = group.predicted_ns or usual_ns
    if group.passed and went_ns is not None:
        yield from _passed_runs(group, went_ns)
    elif went_ns is None:  # it still waits
        yield Run(group.submitted_ns, end_ns, None, usual_ns, False, group.deadline_ns)
    elif done_ns is None:
        cost_ns = group.predicted_ns or max(usual_ns, end_ns - went_ns + 1)
        yield Run(group.submitted_ns, went_ns, None, cost_ns, False, group.deadline_ns)
    else:
        cost_ns = max(1, done_ns - group.started_ns)
        yield Run(
            group.submitted_ns, went_ns, done_ns, cost_ns, group.frame, group.deadline_ns
        )  # fmt: skip


def _passed_runs(group: SeenGroup, from_ns: int) -> Iterable[Run]:
    for until_ns, groups, frames, used_ns in group.passed:
        count = max(groups, 1)
        cost_ns = max(1, used_ns // count)
        each_ns = max(cost_ns, (until_ns - from_ns) // count)
        for number in range(count):
            ns = from_ns + number * each_ns + each_ns - cost_ns
            frame = (number + 1) * frames // count > number * frames // count
            yield Run(ns, ns, ns + cost_ns, cost_ns, frame)
        from_ns = until_ns


def is_paced(runs: list[Run]) -> bool:
    """Whether a clock, rather than its own completions, tells the program when to go on."""
    if any(run.deadline_ns is not None for run in runs):
        return True
    pairs = list(itertools.pairwise(runs))
    pauses = [b.ns - a.done_ns for a, b in pairs if a.done_ns is not None]
    if len(pauses) < _MANY or min(pauses) <= 0:
        return False
    uneven = _unevenness([b.ns - a.ns for a, b in pairs])
    return uneven < _EVEN and _unevenness(pauses) > 2 * uneven + _EVEN


def _unevenness(values: list[int]) -> float:
    ordered = sorted(values)
    spread = ordered[len(ordered) * 9 // 10] - ordered[len(ordered) // 10]
    return spread / max(1, ordered[len(ordered) // 2])
