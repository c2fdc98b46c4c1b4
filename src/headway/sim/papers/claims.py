"""Claims: what a paper says of a figure, beside what the simulation gives.

One set of rules judges every figure, so that no figure has a yardstick of its own:

- a single number holds within 20 % of it, or within 2 percentage points if it is a percentage
  (the papers round to whole points and say "about");
- a range holds when every one of our numbers lies inside it, ends included;
- a bound ("within 3 %", "over 25 fps") holds when no number of ours is beyond it;
- a statement without a number holds by the rule that its reason states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TOLERANCE = 0.20
"""How far from a single number of the paper ours may be, as a fraction of it."""
POINTS = 2.0
"""The same for percentages, in percentage points, where that is more."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of a paper and whether the simulation bears it out."""

    text: str
    paper: str
    """The paper's number."""
    ours: str
    """Our number."""
    holds: bool
    reason: str
    """The rule by which it holds; where it does not, what in the model explains that."""


def percent(part: float, whole: float) -> float:
    """By how many percent `part` is above `whole`."""
    return 100.0 * (part / whole - 1.0) if whole else 0.0


def loss(part: float, whole: float) -> float:
    """By how many percent `part` is below `whole`."""
    return -percent(part, whole)


def shown(values: float | Iterable[float], unit: str) -> str:
    """Numbers as a person reads them: 138 fps, 11 / 24 %, 3.6x."""
    many = [values] if isinstance(values, int | float) else list(values)
    digits = 0 if unit == "fps" and all(value >= 100 for value in many) else 1
    text = " / ".join(f"{value + 0.0:.{digits}f}" for value in many)
    return text + (unit if unit in ("", "x") else f" {unit}")


def near(text: str, expected: float, ours: float, unit: str, *, otherwise: str = "") -> Claim:
    """The paper gives one number."""
    allowed = abs(expected) * TOLERANCE
    if unit == "%":
        allowed = max(allowed, POINTS)
    rule = f"within {shown(allowed, unit)} of the paper's number"
    paper = f"{expected:g}{unit if unit == 'x' else ' ' + unit}"
    return judged(text, paper, shown(ours, unit), abs(ours - expected) <= allowed, rule, otherwise)


def between(
    text: str, low: float, high: float, ours: Sequence[float], unit: str, *, otherwise: str = ""
) -> Claim:
    """The paper gives a range."""
    paper = f"{low:g}-{high:g}{unit if unit == 'x' else ' ' + unit}"
    inside = all(low <= value <= high for value in ours)
    rule = "inside the paper's range" if len(ours) == 1 else "all inside the paper's range"
    return judged(text, paper, shown(ours, unit), inside, rule, otherwise)


def at_most(
    text: str, bound: float, ours: Sequence[float], unit: str, *, otherwise: str = ""
) -> Claim:
    """The paper gives an upper bound."""
    paper = f"at most {bound:g} {unit}"
    inside = all(value <= bound for value in ours)
    return judged(text, paper, shown(ours, unit), inside, "not above the bound", otherwise)


def at_least(
    text: str, bound: float, ours: Sequence[float], unit: str, *, otherwise: str = ""
) -> Claim:
    """The paper gives a lower bound."""
    paper = f"over {bound:g} {unit}"
    inside = all(value > bound for value in ours)
    return judged(text, paper, shown(ours, unit), inside, "above the bound", otherwise)


def judged(text: str, paper: str, ours: str, holds: bool, rule: str, otherwise: str = "") -> Claim:
    """A statement with a rule of its own. `otherwise` explains, from the model, why it fails."""
    if holds:
        return Claim(text, paper, ours, True, rule)
    missed = f"missed: {rule}"
    return Claim(text, paper, ours, False, f"{missed}; {otherwise}" if otherwise else missed)
