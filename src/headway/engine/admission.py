"""Admission control: how much of the GPU may be promised (TimeGraph §3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from headway.engine.reserves import ReserveSpec


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a reserve was granted, and in words why not."""

    accepted: bool
    why: str = ""


def percent(share: Fraction) -> str:
    """A share as people write it."""
    return f"{float(share * 100):.4g} %"


def admit(new: ReserveSpec, active: Iterable[ReserveSpec], limit: Fraction | None) -> Answer:
    """Is there room for `new` beside the active reserves? `limit` 1 is the whole GPU.

    The sum is over C/T, in exact arithmetic. `active` holds each shared pool once.
    """
    by_period: Counter[int] = Counter()
    for spec in active:
        by_period[spec.period_ns] += spec.capacity_ns
    used = sum((Fraction(c, t) for t, c in by_period.items()), Fraction(0))
    if limit is None or used + new.share <= limit:
        return Answer(True)
    return Answer(
        False,
        f"it asks for {percent(new.share)} of the GPU, {percent(used)} is reserved already "
        f"and the limit is {percent(limit)}",
    )
