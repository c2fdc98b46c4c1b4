"""History-based prediction (TimeGraph §5.3)."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from headway.engine.predictors import Context, Prediction, Predictor, Signature, predictor

if TYPE_CHECKING:
    from headway.engine.reading import Table


class Mean:
    """A running mean of whole nanoseconds."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.count = 0

    def add(self, value_ns: int) -> None:
        self.total_ns += value_ns
        self.count += 1

    @property
    def value_ns(self) -> int:
        return self.total_ns // self.count if self.count else 0


@predictor("history")
class History(Predictor):
    """A record per exact matrix of methods and data sizes, holding the average cost.

    - A hit predicts the average, a miss the worst average on record.
    - A group that ran right after a context switch does not touch its average. The difference goes
      into a separate running mean, the preemption impact, which is added to a prediction when a
      switch is expected. A single preemption cost, measured beforehand, is where that mean starts.
    - A miss always makes a record, after a switch too: a task that is switched every time would
      otherwise never have one.
    - The table is bounded; the least recently used record goes first (the paper's bound is 100).
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

    def predict(self, signature: Signature, context: Context) -> Prediction:
        record = self._records.get(signature)
        if record is not None:
            self._records.move_to_end(signature)
            cost_ns = record.value_ns
        else:
            cost_ns = max((r.value_ns for r in self._records.values()), default=0)
        if context.switched:
            cost_ns += self.impact_ns
        return Prediction(signature, cost_ns, hit=record is not None)

    def observe(self, prediction: Prediction, executed_ns: int, context: Context) -> None:
        record = self._records.get(prediction.signature)
        if record is None:  # a miss, or evicted since it was predicted
            record = self._records[prediction.signature] = Mean()
            record.add(executed_ns)
            if len(self._records) > self.size:
                self._records.popitem(last=False)
        elif context.switched:
            self._impact.add(executed_ns - record.value_ns)
        else:
            record.add(executed_ns)
