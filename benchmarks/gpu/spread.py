"""What noisy rounds say of their median, whatever the noise looks like.

The true median lies between the k-th smallest and the k-th largest of n independent rounds, unless
fewer than k of them fell on one side of it: as likely as fewer than k heads, or fewer than k tails,
when a coin is thrown n times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

WANTED = 0.95
COLUMN = f"{WANTED * 100:.0f} % interval of the median"


@dataclass(frozen=True)
class Spread:
    """Rounds, from the smallest to the largest."""

    median: float
    low: float
    high: float
    """The interval of the median."""
    confidence: float
    """Less than wanted where rounds are too few for it: then the interval holds all of them."""
    quarter: float
    three_quarters: float
    smallest: float
    largest: float
    rounds: int

    def interval(self, shown: Callable[[float], str]) -> str:
        said = f"{shown(self.low)} - {shown(self.high)}"
        return said if self.confidence >= WANTED else f"{said} (only {self.confidence * 100:.0f} %)"

    def middle_half(self, shown: Callable[[float], str]) -> str:
        return f"{shown(self.quarter)} - {shown(self.three_quarters)}"

    def whole(self, shown: Callable[[float], str]) -> str:
        return f"{shown(self.smallest)} - {shown(self.largest)}"


def spread(samples: Sequence[float]) -> Spread:
    """Of two rounds or more."""
    ordered, rank = sorted(samples), 1
    while rank < len(ordered) // 2 and confidence(len(ordered), rank + 1) >= WANTED:
        rank += 1
    quarter, median, three_quarters = statistics.quantiles(ordered, method="inclusive")
    return Spread(
        median=median,
        low=ordered[rank - 1],
        high=ordered[-rank],
        confidence=confidence(len(ordered), rank),
        quarter=quarter,
        three_quarters=three_quarters,
        smallest=ordered[0],
        largest=ordered[-1],
        rounds=len(ordered),
    )


def confidence(rounds: int, rank: int) -> float:
    """How likely the median lies between the samples of this rank from below and from above."""
    return 1 - 2 * sum(comb(rounds, heads) for heads in range(rank)) * 0.5**rounds
