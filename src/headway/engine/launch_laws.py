"""Laws of what a kernel costs by its shape: a constant and a power of an amount, by its share.

A kernel's threads may each do the same, or more the more there are (a matrix product with a thread
for each element costs the power 3/2 of the threads); or a fixed number of threads walks over a
buffer. Which it is, is fitted for each kernel from the shapes that were seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Final, NamedTuple

from headway.engine.launching import Shape
from headway.engine.shares import WHOLE_PERMILLE

POWERS: Final = (1.0, 1.5, 2.0, 0.5)
"""The likeliest first."""
BETTER: Final = 0.7
"""A less likely law counts if its error is so much smaller."""
EXACT: Final = 0.01
"""Errors below that are measurement: no law is better than another."""
BELIEF: Final = 0.02
"""The weight of the belief that a cost is inverse to the share, beside that of a point seen under
1/e of the multiprocessors."""


class Point(NamedTuple):
    """A shape that was seen under a share, and the logarithm of its cost in ns."""

    shape: Shape
    share: int
    cost: float


class Law(NamedTuple):
    """cost = (constant + slope amount^power) / share^loss."""

    constant_ns: float = 0.0
    slope_ns: float = 0.0
    power: float = 1.0
    by_buffers: bool = False
    """The amount is the size of the buffers, not the number of threads."""
    loss: float = 1.0

    def cost(self, shape: Shape, share: int) -> float:
        """Its logarithm."""
        ns = self.constant_ns + self.slope_ns * _amount(shape, self.by_buffers) ** self.power
        return log(max(ns, 1.0)) + self.loss * _slowdown(share)


def fitted(points: Sequence[Point]) -> Law:
    """The likeliest law that fits what was seen."""
    loss = _loss(points)
    return _best(points, loss)._replace(loss=loss)


def _best(points: Sequence[Point], loss: float) -> Law:
    best, least = Law(), float("inf")
    for by_buffers in (False, True):
        amounts = [_amount(p.shape, by_buffers) for p in points]
        costs = [exp(p.cost - loss * _slowdown(p.share)) for p in points]
        if best.slope_ns and len(set(amounts)) == 1:
            continue  # it explains nothing
        for power in POWERS:
            law = _line([amount**power for amount in amounts], costs)
            law = law._replace(power=power, by_buffers=by_buffers)
            error = sum(
                abs((law.constant_ns + law.slope_ns * amount**power) / cost - 1)
                for amount, cost in zip(amounts, costs, strict=True)
            ) / len(points)
            same = len(set(amounts)) < 3  # two points are on every law
            if error < (least if same else BETTER * least) - EXACT or least == float("inf"):
                best, least = law, error
    return best


def _line(amounts: Sequence[float], costs: Sequence[float]) -> Law:
    """The constant and the slope with the least relative errors, none of them below 0."""
    n = len(amounts)
    if len(set(amounts)) == 1:
        return Law(0.0, sum(costs) / n / amounts[0])
    of_1 = sum(1 / c for c in costs)
    of_x = sum(x / c for x, c in zip(amounts, costs, strict=True))
    of_11 = sum(1 / c**2 for c in costs)
    of_1x = sum(x / c**2 for x, c in zip(amounts, costs, strict=True))
    of_xx = sum(x * x / c**2 for x, c in zip(amounts, costs, strict=True))
    determinant = of_11 * of_xx - of_1x * of_1x
    if determinant > 0:
        constant = (of_1 * of_xx - of_x * of_1x) / determinant
        slope = (of_x * of_11 - of_1 * of_1x) / determinant
        if constant >= 0 and slope >= 0:
            return Law(constant, slope)
        if slope < 0:
            return Law(of_1 / of_11, 0.0)
    return Law(0.0, of_x / of_xx)


def _loss(points: Sequence[Point]) -> float:
    """How costs grow as the share shrinks, from shapes that were seen under several: 1 is
    inversely, 0 not at all."""
    shapes: dict[Shape, list[tuple[float, float]]] = {}
    for shape, share, cost in points:
        shapes.setdefault(shape, []).append((_slowdown(share), cost))
    products = squares = BELIEF
    for seen in shapes.values():
        middle, usual = (sum(values) / len(seen) for values in zip(*seen, strict=True))
        products += sum((slowdown - middle) * (cost - usual) for slowdown, cost in seen)
        squares += sum((slowdown - middle) ** 2 for slowdown, _ in seen)
    return max(0.0, products / squares)


def _amount(shape: Shape, by_buffers: bool) -> float:
    return float(max(1, shape.buffers if by_buffers else shape.items))


def _slowdown(share: int) -> float:
    return log(WHOLE_PERMILLE / max(1, share))
