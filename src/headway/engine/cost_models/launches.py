"""Costs of kernels and copies, also in shapes that were never seen (CUDA and OpenCL)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import exp, log
from typing import TYPE_CHECKING, Final

from headway.engine.cost_models import Conditions, CostModel, Prediction, Work, cost_model
from headway.engine.cost_models.recent import Recent
from headway.engine.launch_laws import Law, Point, fitted
from headway.engine.launching import Shape, shape_of
from headway.engine.quantiles import Bound

if TYPE_CHECKING:
    from headway.engine.reading import Table

MEMORY: Final = 0.05
"""A new cost's weight in what is known of a shape: that of the last twenty launches or so."""
OUTLIER: Final = 0.25
"""A logarithm of a cost that is further off teaches no more: one delay is not what work costs."""
FIRST: Final = 1.25
"""The first launch in a shape compiles and loads: its cost counts if the second confirms it."""
SHAPES, KERNELS = 48, 128
"""Those seen least lately are forgotten."""
NEAR: Final = 0.1
"""How close, in logarithms, a known shape is that says as much of a new one as the law does."""
AGAIN: Final = 32
"""After so many costs of a shape the law is fitted again: devices warm up and clock down."""
UNSEEN, SEEN = 1.5, 1.15
"""Where the bounds of a kernel's new shapes, and of known ones, begin."""


class _Shape:
    __slots__ = ("bound", "cost", "noise", "seen")

    def __init__(self, cost: float) -> None:
        self.cost = cost
        """Its logarithm, in ns."""
        self.seen = 1
        self.noise = 0.03
        self.bound = Bound(SEEN)

    def learn(self, cost: float) -> None:
        self.seen += 1
        if self.seen == 2:
            agrees = abs(cost - self.cost) < log(FIRST)
            self.cost = (self.cost + cost) / 2 if agrees else min(self.cost, cost)
            return
        error = max(-OUTLIER, min(OUTLIER, cost - self.cost))
        self.cost += max(MEMORY, 1 / self.seen) * error
        self.noise += MEMORY * (abs(error) - self.noise)


class _Kernel:
    def __init__(self) -> None:
        self.shapes: OrderedDict[tuple[Shape, int], _Shape] = OrderedDict()
        self.law = Law()
        self.bound = Bound(UNSEEN)

    def points(self) -> list[Point]:
        return [
            Point(shape, share, known.cost)
            for (shape, share), known in self.shapes.items()
            if known.seen > 1
        ]

    def estimate(self, shape: Shape, share: int) -> float | None:
        """The logarithm of what a shape costs that was not seen; None: nothing is known."""
        points = self.points()
        return (
            self.law.cost(shape, share) + self._correction(points, shape, share) if points else None
        )

    def _correction(self, points: Sequence[Point], wanted: Shape, share: int) -> float:
        """By how much known shapes are off the law, the nearest first; the law itself counts."""
        total, weights = 0.0, 1.0
        for shape, at_share, cost in points:
            ways = [log(max(1, a) / max(1, b)) for a, b in zip(shape, wanted, strict=True)]
            ways.append(log(max(1, at_share) / max(1, share)))
            weight = NEAR * NEAR / (NEAR * NEAR / 10 + sum(way * way for way in ways))
            total += weight * (cost - self.law.cost(shape, at_share))
            weights += weight
        return total / weights


@cost_model("launches")
class Launches(CostModel):
    """Expects of a kernel in a known shape what it cost lately, and of a new shape what a law says
    that fits the known ones (launch_laws.py), corrected by how far the nearest are off it.

    - A shape is the number of threads, a block's threads, shared memory and the buffers' bytes; of
      a copy its bytes.
    - What a share of the multiprocessors does to a kernel is a part of its law.
    - Bounds are learned quantiles, one for each known shape and one for a kernel's new ones.
    - Work without such features, a turn say, is predicted as `recent` does.
    """

    def __init__(self, quantile: float = 0.98) -> None:
        self._quantile = quantile
        self._kernels: OrderedDict[str, _Kernel] = OrderedDict()
        self._others = Recent()

    @classmethod
    def read(cls, table: Table) -> Launches:
        return cls(table.integer("quantile_permille", 980, least=500, most=999) / 1000)

    def for_task(self) -> Launches:
        return Launches(self._quantile)

    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        found = shape_of(work.features)
        if found is None:
            return self._others.predict(work, conditions)
        kernel = self._kernels.get(found[0])
        if kernel is None:
            return Prediction(0, 0, known=False)
        share = conditions.share_permille
        known = kernel.shapes.get((found[1], share))
        if known is not None and known.seen > 1:
            expected_ns = exp(known.cost)
            return Prediction(round(expected_ns), round(expected_ns * known.bound.factor))
        cost = kernel.estimate(found[1], share)
        if cost is None:
            cost = known.cost if known is not None else None
        if cost is None:
            return Prediction(0, 0, known=False)
        expected_ns = exp(cost)
        return Prediction(round(expected_ns), round(expected_ns * kernel.bound.factor), known=False)

    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        found = shape_of(work.features)
        if found is None:
            self._others.observe(work, conditions, executed_ns)
        elif executed_ns > 0:
            self._learn(found[0], (found[1], conditions.share_permille), log(executed_ns))

    def _learn(self, name: str, key: tuple[Shape, int], cost: float) -> None:
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = _Kernel()
            if len(self._kernels) > KERNELS:
                self._kernels.popitem(last=False)
        self._kernels.move_to_end(name)
        shape = kernel.shapes.get(key)
        if shape is None:
            shape = kernel.shapes[key] = _Shape(cost)
            if len(kernel.shapes) > SHAPES:
                kernel.shapes.popitem(last=False)
        else:
            if shape.seen > 1:
                expected, took = exp(shape.cost), exp(cost)
                shape.bound.judge(took, expected, self._quantile, shape.noise)
            elif (estimate := kernel.estimate(*key)) is not None:
                error = abs(cost - estimate)
                kernel.bound.judge(exp(cost), exp(estimate), self._quantile, min(error, 1.0))
            shape.learn(cost)
            if shape.seen == 2 or shape.seen % AGAIN == 0:
                kernel.law = fitted(kernel.points())
        kernel.shapes.move_to_end(key)
