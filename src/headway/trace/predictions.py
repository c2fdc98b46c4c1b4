"""Cost models judged on a recorded run: each predicts every group from what was known before it.

A trace whose programs ran with `headway run --predict` says each group's hash and features; of the
groups of other programs only the prediction is known that was made in the run itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from headway.engine.cost_models import NO_FEATURES, Conditions, CostModel
from headway.engine.events import Completed, Described, Dispatched, Event, Measured, Submitted
from headway.engine.shares import WHOLE_PERMILLE
from headway.trace.statistics import nearest_rank

RECORDED: Final = "as recorded"
"""The prediction of whichever cost model the run used."""
LEARNING: Final = 0.2
"""The first part of a task's groups, which teaches and is not judged."""
UNDER: Final = 0.05
"""A group is under-predicted if it took so much longer."""
WITHIN: Final = 0.15
"""TimeGraph's middle margin (Figure 14)."""
LAUNCHES: Final = ", launches"
"""Added to the name of a task whose launches were measured under its leases."""
FEWEST: Final = 10
"""Of fewer groups nothing is said."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A group that was asked for and done. It serves a cost model as `Work`."""

    signature: str
    features: Mapping[str, int]
    took_ns: int
    recorded_ns: int
    exact_ns: int = 0
    share_permille: int = WHOLE_PERMILLE

    @property
    def is_described(self) -> bool:
        return bool(self.features)


@dataclass(slots=True)
class Verdict:
    """What one cost model came to on one task's groups."""

    task: str
    model: str
    groups: int = 0
    errors: list[float] = field(default_factory=list)
    """Predicted less measured, over measured, of each: positive is pessimistic."""
    absolute_ns: list[int] = field(default_factory=list)
    """Predicted less measured."""
    over_bound: int = 0
    unknown: int = 0
    """Groups of a kind that the model had not seen before."""

    @property
    def mean(self) -> float:
        return sum(map(abs, self.errors)) / len(self.errors)

    @property
    def median(self) -> float:
        return sorted(map(abs, self.errors))[len(self.errors) // 2]

    @property
    def bias(self) -> float:
        return sum(self.errors) / len(self.errors)

    @property
    def under(self) -> float:
        """The part that took more than 5 % longer than expected."""
        return sum((1 + error) * (1 + UNDER) < 1 for error in self.errors) / len(self.errors)

    @property
    def over(self) -> float:
        """The part that took more than 5 % longer than the bound."""
        return self.over_bound / len(self.errors)

    @property
    def within(self) -> float:
        return sum(abs(error) <= WITHIN for error in self.errors) / len(self.errors)

    def quantile_ns(self, part: float) -> int:
        ordered = sorted(self.absolute_ns)
        return ordered[nearest_rank(part, len(ordered))]


def groups_of(events: Iterable[Event]) -> dict[str, list[Observed]]:
    """Of each task its groups, in the order in which they were done; leases are none, but launches
    that were measured under them are groups of their own."""
    waiting: dict[tuple[str, int], tuple[int, str, Mapping[str, int]]] = {}
    found: dict[str, list[Observed]] = {}
    for event in events:
        if isinstance(event, Submitted):
            waiting[event.task, event.index] = (event.predicted_ns, "", NO_FEATURES)
        elif isinstance(event, Described):
            predicted_ns, _, _ = waiting.get((event.task, event.index), (0, "", NO_FEATURES))
            waiting[event.task, event.index] = (
                predicted_ns, event.signature, dict(event.features),
            )  # fmt: skip
        elif isinstance(event, Dispatched) and event.leased:
            waiting.pop((event.task, event.index), None)
        elif isinstance(event, Completed):
            known = waiting.pop((event.task, event.index), None)
            took_ns = event.ns - event.started_ns
            if known is not None and took_ns > 0:
                predicted_ns, signature, features = known
                observed = Observed(signature, features, took_ns, predicted_ns)
                found.setdefault(event.task, []).append(observed)
        elif isinstance(event, Measured) and event.took_ns > 0:
            observed = Observed(
                str(event.features), dict(event.features), event.took_ns, event.predicted_ns,
                share_permille=event.share_permille,
            )  # fmt: skip
            found.setdefault(f"{event.task}{LAUNCHES}", []).append(observed)
    return found


def judge(
    groups: Mapping[str, Sequence[Observed]],
    models: Mapping[str, CostModel],
    learning: float = LEARNING,
) -> list[Verdict]:
    """Each model on each task, the tasks one after the other: what one teaches, a model that serves
    all tasks knows for the next. The first part of the groups, `learning`, is not judged."""
    verdicts = []
    for task, observed in groups.items():
        if len(observed) < FEWEST:
            continue
        skip = int(len(observed) * learning)
        recorded = Verdict(task, RECORDED)
        for group in observed[skip:]:
            if group.recorded_ns > 0:
                _count(recorded, group.recorded_ns, group.recorded_ns, group.took_ns)
        verdicts.append(recorded)
        if not all(group.is_described for group in observed):
            continue
        for name, model in models.items():
            verdicts.append(_run(Verdict(task, name), model.for_task(), observed, skip))
    return [verdict for verdict in verdicts if verdict.errors]


def _run(verdict: Verdict, model: CostModel, observed: Sequence[Observed], skip: int) -> Verdict:
    for number, group in enumerate(observed):
        conditions = Conditions(share_permille=group.share_permille)
        predicted = model.predict(group, conditions)
        model.observe(group, conditions, group.took_ns)
        if number >= skip:
            _count(verdict, predicted.expected_ns, predicted.bound_ns, group.took_ns)
            verdict.unknown += not predicted.known
    return verdict


def _count(verdict: Verdict, expected_ns: int, bound_ns: int, took_ns: int) -> None:
    verdict.groups += 1
    verdict.errors.append((expected_ns - took_ns) / took_ns)
    verdict.absolute_ns.append(expected_ns - took_ns)
    verdict.over_bound += took_ns > bound_ns * (1 + UNDER)


def cdf(verdicts: Iterable[Verdict], points: int = 400) -> list[list[float]]:
    """Of all these together: errors, and the part of the groups whose error is no larger."""
    ordered = sorted(chain.from_iterable(verdict.errors for verdict in verdicts))
    every = max(1, len(ordered) // points)
    places = sorted({*range(0, len(ordered), every), len(ordered) - 1})
    return [[round(ordered[n], 4), (n + 1) / len(ordered)] for n in places]
