"""History-based prediction (TimeGraph §5.3)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

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


class Mean:
    """A running mean of whole nanoseconds, and the largest of them."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.count = 0
        self.most_ns = 0

    def add(self, value_ns: int) -> None:
        self.total_ns += value_ns
        self.count += 1
        self.most_ns = max(self.most_ns, value_ns)

    @property
    def value_ns(self) -> int:
        return self.total_ns // self.count if self.count else 0


@cost_model("history")
class History(CostModel):
    """TimeGraph's table: a record of the average cost per matrix of methods and data sizes.

    - A hit expects the average, a miss the worst average on record.
    - A group that ran right after a context switch does not touch its average. The difference goes
      into a separate running mean, the preemption impact, which is added to a prediction when a
      switch is expected. A single preemption cost, measured beforehand, is where that mean starts.
    - A miss always makes a record, after a switch too: a task that is switched every time would
      otherwise never have one.
    - The table is bounded; the least recently used record goes first (the paper's bound is 100).
    - The bound, of which the paper has none, is the largest cost on the same record, or on any.
    - One table serves all tasks, whatever the device and its share.
    """

    def __init__(self, size: int = 100, preemption_ns: int = 0) -> None:
        if size < 1:
            raise ValueError("a history table needs room for at least one record")
        self.size = size
        self._records: OrderedDict[Signature, Mean] = OrderedDict()
        self._impact = Mean()
        if preemption_ns:
            self._impact.add(preemption_ns)

    @classmethod
    def read(cls, table: Table) -> History:
        return cls(
            table.integer("size", 100, least=1, most=1_000_000),
            table.duration("preemption", 0),
        )

    @property
    def impact_ns(self) -> int:
        """The average preemption impact; never below zero as a surcharge."""
        return max(0, self._impact.value_ns)

    def __len__(self) -> int:
        return len(self._records)

    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        record = self._records.get(work.signature)
        if record is not None:
            self._records.move_to_end(work.signature)
            expected_ns, bound_ns = record.value_ns, record.most_ns
        else:
            records = self._records.values()
            expected_ns = max((r.value_ns for r in records), default=0)
            bound_ns = max((r.most_ns for r in records), default=0)
        if conditions.switched:
            expected_ns += self.impact_ns
            bound_ns += max(0, self._impact.most_ns)
        return Prediction(expected_ns, bound_ns, known=record is not None)

    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        record = self._records.get(work.signature)
        if record is None:  # a miss, or evicted since it was predicted
            record = self._records[work.signature] = Mean()
            record.add(executed_ns)
            if len(self._records) > self.size:
                self._records.popitem(last=False)
        elif conditions.switched:
            self._impact.add(executed_ns - record.value_ns)
        else:
            record.add(executed_ns)
