"""Admission control: how much of the GPU may be promised (TimeGraph §3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from headway.engine.reserves import ReserveSpec


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a reserve was granted, and in words why not."""

    accepted: bool
    why: str = ""
    gpu: int | None = None
    """The GPU that has room for it; None where nobody counts."""


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


def place(
    new: ReserveSpec,
    active: Sequence[Sequence[ReserveSpec]],
    limit: Fraction | None,
    home: int | None = None,
) -> Answer:
    """Which GPU has room for `new`? `active` is what was promised on each. A reserve stays where it
    is (`home`) if it can; else the GPU with the most room gets it. No reserve is divided: a program
    uses one GPU at a time."""
    answers = [(admit(new, specs, limit), gpu) for gpu, specs in enumerate(active)]
    rooms = [
        (gpu != home, sum((spec.share for spec in active[gpu]), Fraction(0)), gpu)
        for answer, gpu in answers
        if answer.accepted
    ]
    if rooms:
        return Answer(True, gpu=min(rooms)[2])
    if len(answers) == 1:
        return answers[0][0]
    least = min(sum((spec.share for spec in specs), Fraction(0)) for specs in active)
    return Answer(
        False,
        f"it asks for {percent(new.share)} of a GPU, {percent(least)} or more is reserved already "
        f"on each of {len(active)} and the limit is {percent(limit or Fraction(1))}",
    )
