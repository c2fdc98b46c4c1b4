"""Costs that are linear in a group's features, learned as a program runs (libETP, section VII)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import sqrt
from typing import TYPE_CHECKING, Final

from headway.engine.cost_models import Conditions, CostModel, Prediction, Work, cost_model
from headway.engine.quantiles import Bound

if TYPE_CHECKING:
    from headway.engine.reading import Table

EACH: Final = "group"
"""The constant part of every group: its feature is 1."""
NOISE: Final = 0.05
"""Standard deviation of costs that no feature explains, of the cost, until it is known."""
DRIFT: Final = 0.01
"""So much, of itself, a coefficient may change from one group to the next: coverage does with a
model's turning."""
OUTLIER: Final = 3.0
"""What is further off than so many standard deviations teaches no more than that far."""
MEMORY: Final = 0.05
"""A new error's weight in what is remembered of errors: that of the last twenty groups or so."""
SIDE: Final = 0.1
"""How much of a cost that nothing explains goes to a number of commands, of what goes to an amount,
such as pixels: by libETP's models costs go by amounts."""
DOUBT: Final = 4.0
"""A second surprise of the same kind, and each further one, multiplies the coefficients' variances,
which were learned elsewhere and too small."""
FEW, FIRST = 3, 2.0
"""So many groups of a kind have the bound of new kinds, which begins at so many times the expected
cost and is learned as the others are."""
SHAPES: Final = 64
"""Kinds of groups that are told apart, by which features they have."""
COEFFICIENTS: Final = 1024
"""Those used least lately are forgotten, and begin again at what their like are at."""


class _Coefficient:
    """Nanoseconds per unit of a feature, and how uncertain that is."""

    __slots__ = ("value", "variance", "weight")

    def __init__(self, value: float, variance: float, weight: float = 1.0) -> None:
        self.value = value
        self.variance = variance
        self.weight = weight
        """How much of a cost that nothing explains is taken to be its own."""


class _Shape:
    """Groups with the same features, whatever their amounts: how well they were predicted."""

    __slots__ = ("bound", "last_ns", "linear", "noise", "plain", "seen", "surprises")

    def __init__(self) -> None:
        self.seen = 0
        self.last_ns = 0.0
        """What they cost lately, whatever their amounts."""
        self.linear = self.plain = 0.0
        """The usual error, of the cost, of the linear model and of `last_ns`."""
        self.noise = NOISE
        self.surprises = 0
        """How often in a row a cost was far above what is likely, or, if below 0, below it."""
        self.bound = Bound(1.0 + 3 * NOISE)


@cost_model("adaptive")
class Adaptive(CostModel):
    """Expects the sum of a group's features, each times a coefficient that is learned.

    - A coefficient begins at its calibrated value (`start`), or else at that of its like: the name
      `draw.PROGRAM.STATE.MESH.fragments` begins as the last one seen of another mesh, of another
      state or of another program.
    - Each measured cost corrects the coefficients by a Kalman filter with a diagonal covariance,
      so a mesh's coverage, blending and depth tests are learned as coefficients of their own.
    - Of groups that are mispredicted again and again the model falls back on what groups with the
      same features cost lately.
    - The bound is a learned quantile: the wanted part of the groups stays below it. Groups with
      features that were not seen together before have a bound of their own, learned from the like.
    """

    def __init__(self, quantile: float = 0.98, start: Mapping[str, float] | None = None) -> None:
        self._quantile = quantile
        self._start = dict(start or {})
        self._known: OrderedDict[str, _Coefficient] = OrderedDict()
        self._likes: dict[str, float] = {}
        self._first = Bound(FIRST)
        self._shapes: OrderedDict[int, _Shape] = OrderedDict()

    @classmethod
    def read(cls, table: Table) -> Adaptive:
        return cls(table.integer("quantile_permille", 980, least=500, most=999) / 1000)

    def for_task(self) -> Adaptive:
        return Adaptive(self._quantile, self._start)

    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        terms, shape = self._terms(work.features), self._shape(work.features)
        linear_ns = sum(amount * c.value for c, amount in terms)
        expected_ns = linear_ns
        if shape.seen == 0 and not linear_ns:
            return Prediction(0, 0, known=False)
        if shape.plain < shape.linear:
            expected_ns = shape.last_ns
        factor = shape.bound.factor
        if shape.seen < FEW:
            factor = max(factor, self._first.factor)
        return Prediction(round(expected_ns), round(expected_ns * factor), shape.seen > 0)

    def coefficients(self, names: Iterable[str]) -> dict[str, float]:
        """Nanoseconds per unit of these features, where they are known."""
        return {name: self._known[name].value for name in names if name in self._known}

    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        if executed_ns <= 0:
            return
        terms, shape = self._terms(work.features), self._shape(work.features)
        linear_ns = sum(amount * c.value for c, amount in terms)
        if not linear_ns:
            self._begin(terms, executed_ns)
            linear_ns = float(executed_ns)
        expected_ns = shape.last_ns if shape.plain < shape.linear else linear_ns
        if shape.seen < FEW:
            error = min(1.0, abs(executed_ns - expected_ns) / executed_ns)
            self._first.judge(executed_ns, expected_ns, self._quantile, error)
        self._judge(shape, linear_ns, expected_ns, executed_ns)
        self._correct(shape, terms, linear_ns, executed_ns)
        for name in (*work.features, EACH):
            like = _like(name)
            if like and name in self._known:
                self._likes[like] = self._known[name].value
        while len(self._known) > COEFFICIENTS:
            self._known.popitem(last=False)

    def _terms(self, features: Mapping[str, int]) -> list[tuple[_Coefficient, int]]:
        terms = [(self._coefficient(EACH), 1)]
        terms += [(self._coefficient(name), amount) for name, amount in features.items() if amount]
        return terms

    def _coefficient(self, name: str) -> _Coefficient:
        known = self._known.get(name)
        if known is None:
            value = self._start.get(name)
            like = name
            while value is None and (like := _like(like)):
                value = self._start.get(like, self._likes.get(like))
            weight = SIDE if name.endswith(".count") else 1.0
            known = self._known[name] = _Coefficient(value or 0.0, (value or 0.0) ** 2, weight)
        self._known.move_to_end(name)
        return known

    def _shape(self, features: Mapping[str, int]) -> _Shape:
        key = hash(frozenset(features))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape()
            if len(self._shapes) > SHAPES:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(key)
        return shape

    def _begin(self, terms: list[tuple[_Coefficient, int]], executed_ns: int) -> None:
        """Nothing is known of any of these: each has a part in the cost."""
        weights = sum(coefficient.weight for coefficient, _ in terms)
        for coefficient, amount in terms:
            coefficient.value = executed_ns * coefficient.weight / weights / amount
            coefficient.variance = coefficient.value**2

    def _correct(
        self,
        shape: _Shape,
        terms: list[tuple[_Coefficient, int]],
        linear_ns: float,
        executed_ns: int,
    ) -> None:
        for coefficient, amount in terms:  # what is new beside what is known: it may cost anything
            if not coefficient.value:
                part_ns = executed_ns * coefficient.weight / len(terms)
                coefficient.variance = (part_ns / amount) ** 2
        error, total = executed_ns - linear_ns, self._spread(shape, terms, executed_ns)
        if abs(error) <= OUTLIER * sqrt(total):
            shape.surprises = 0
        else:
            above = error > 0
            again = shape.surprises > 0 if above else shape.surprises < 0
            shape.surprises = (shape.surprises if again else 0) + (1 if above else -1)
            if again:
                for c, _ in terms:
                    least, most = (0.1 * c.value) ** 2, max(c.value**2, c.variance)
                    c.variance = min(max(DOUBT * c.variance, least), most)
                total = self._spread(shape, terms, executed_ns)
        furthest = OUTLIER * sqrt(total)
        error = max(-furthest, min(furthest, error))
        for c, amount in terms:
            gain = c.variance * amount / total
            c.value = max(0.0, c.value + gain * error)
            c.variance = c.variance * max(0.0, 1 - gain * amount) + (DRIFT * c.value) ** 2

    def _spread(
        self, shape: _Shape, terms: list[tuple[_Coefficient, int]], executed_ns: int
    ) -> float:
        """The variance of what such a group costs, by what is known."""
        spread = sum(c.variance * amount * amount for c, amount in terms)
        return spread + (shape.noise * executed_ns) ** 2

    def _judge(self, shape: _Shape, linear_ns: float, expected_ns: float, executed_ns: int) -> None:
        """Learn how far off the predictions of such groups are."""
        weight = max(MEMORY, 1 / (shape.seen + 1))
        shape.seen += 1
        if shape.seen > 1:
            linear, plain = (
                abs(executed_ns - ns) / executed_ns for ns in (linear_ns, shape.last_ns)
            )
            shape.linear += weight * (min(linear, 1.0) - shape.linear)
            shape.plain += weight * (min(plain, 1.0) - shape.plain)
            shape.noise += weight * (min(linear, 3 * shape.noise + 0.01) - shape.noise)
            shape.bound.judge(executed_ns, expected_ns, self._quantile, shape.noise)
        least = executed_ns if not shape.last_ns else min(executed_ns, 2 * shape.last_ns)
        shape.last_ns += max(0.2, weight) * (least - shape.last_ns)


def _like(name: str) -> str:
    """The name without what tells it from its like; empty: it has none.

    Of `draw.PROGRAM.STATE.MESH.fragments` first the mesh goes, then the state, then the program.
    """
    *path, amount = name.split(".")
    return ".".join((*path[:-1], amount)) if len(path) > 1 else ""
