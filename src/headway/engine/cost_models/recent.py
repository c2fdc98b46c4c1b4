"""What work of the same kind cost lately: the interposer's formula (`shim/core/follow.h`)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from headway.engine.cost_models import (
    Conditions,
    CostModel,
    Prediction,
    Signature,
    Work,
    cost_model,
)

if TYPE_CHECKING:
    from headway.engine.reading import Table

DOWN: Final = 2
"""A smaller cost takes 1/2 of the way: the first of a kind pays for compiling and loading."""
UP: Final = 8
"""A larger cost takes 1/8 of the way: the work may have met a busy machine."""
MOST: Final = 8
"""A cost counts as at most 8 times the known one: one long delay is not what work costs."""
KINDS: Final = 100
"""Kinds of work remembered of each task, as many as TimeGraph's table has records (§5.3)."""
CONDITIONS: Final = 16
"""Conditions remembered of each kind: a GPU or two, switched or not, and a few shares."""


def follow(known_ns: int, seen_ns: int) -> int:
    """The expected cost after one more observation; 0 is an unknown cost."""
    if not known_ns:
        return max(1, seen_ns)
    if seen_ns < known_ns:
        return max(1, (known_ns + seen_ns) // DOWN)
    return (known_ns * (UP - 1) + min(seen_ns, MOST * known_ns)) // UP


class _Record:
    __slots__ = ("bound_ns", "expected_ns")

    def __init__(self) -> None:
        self.expected_ns = self.bound_ns = 0

    def add(self, executed_ns: int) -> None:
        self.expected_ns = follow(self.expected_ns, executed_ns)
        # The largest cost lately: it sinks to what is seen as slowly as the expected cost rises.
        falling_ns = (self.bound_ns * (UP - 1) + executed_ns) // UP
        self.bound_ns = max(executed_ns, falling_ns, self.expected_ns)


@cost_model("recent")
class Recent(CostModel):
    """Expects what the task's work of the same signature cost lately under the same conditions.

    Work that was only seen under other conditions is expected to cost what it did there last; an
    unknown signature costs as much as what the task did last. Each task has a table of its own.
    """

    def __init__(self, kinds: int = KINDS) -> None:
        self._kinds = kinds
        self._records: OrderedDict[Signature, dict[Conditions, _Record]] = OrderedDict()

    @classmethod
    def read(cls, table: Table) -> Recent:
        return cls(table.integer("size", KINDS, least=1, most=1_000_000))

    def for_task(self) -> Recent:
        return Recent(self._kinds)

    def __len__(self) -> int:
        return len(self._records)

    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        known = self._records.get(work.signature)
        if known is not None:
            record = known.get(conditions) or next(reversed(known.values()))
            return Prediction(record.expected_ns, record.bound_ns)
        if not self._records:
            return Prediction(0, 0, known=False)
        record = next(reversed(next(reversed(self._records.values())).values()))
        return Prediction(record.expected_ns, record.bound_ns, known=False)

    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        known = self._records.get(work.signature)
        if known is None:
            known = self._records[work.signature] = {}
            if len(self._records) > self._kinds:
                self._records.popitem(last=False)
        else:
            self._records.move_to_end(work.signature)
        record = known.pop(conditions, None) or _Record()
        record.add(executed_ns)
        known[conditions] = record  # the latest stands last
        if len(known) > CONDITIONS:
            del known[next(iter(known))]
