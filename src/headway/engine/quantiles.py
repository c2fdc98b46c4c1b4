"""Upper bounds that are learned: so many of a hundred predictions shall stay below them."""

from __future__ import annotations

from typing import Final

STEP: Final = 0.02
"""How far a bound's factor goes at a time, of the usual error's size times fifty."""


class Bound:
    """Of so many times the expected cost the wanted part of the groups stays below."""

    __slots__ = ("factor",)

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def judge(self, took_ns: float, expected_ns: float, quantile: float, noise: float) -> None:
        """Stochastic approximation of a quantile: up seldom and far, down often and a little."""
        step = STEP * max(0.01, 50 * STEP * noise)
        over = took_ns > self.factor * expected_ns
        self.factor += step * (quantile if over else quantile - 1) * 50
        self.factor = max(1.0, self.factor)
