"""Shares: which part of a device's multiprocessors a task may use while others run beside it.

People write a share as a percentage, or as the range within which a controller may move it:
`50%`, `25%..100%`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

LEAST_PERMILLE = 10
"""MPS takes whole percentages, and 0 would stop a program: 1 % is the least that can be given."""
WHOLE_PERMILLE = 1000
EXPECTED = 'a share such as "50%" or a range such as "25%..100%"'
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d)?)\s*%")


@dataclass(frozen=True, slots=True)
class Range:
    """The least and the most that a task may be given, in thousandths of the device."""

    least: int = LEAST_PERMILLE
    most: int = WHOLE_PERMILLE

    def bound(self, permille: int) -> int:
        """The share within the range that is nearest to this one."""
        return max(self.least, min(self.most, permille))

    def __str__(self) -> str:
        if self.least == self.most:
            return percent(self.least)
        return f"{percent(self.least)}..{percent(self.most)}"


ANY = Range()


class Sharer(Protocol):
    """A task as far as controllers look at it."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int:
        """A smaller one is more important."""

    @property
    def shares(self) -> Range:
        """What it may be given."""


def parse_share(text: str) -> Range:
    """Read `50%` or `25%..100%`; ValueError says what was expected."""
    first, dots, last = text.partition("..")
    least = _permille(first, text)
    most = _permille(last, text) if dots else least
    if least > most:
        raise ValueError(f"found {text!r}, expected the smaller share first, as in 25%..100%")
    return Range(least, most)


def _permille(part: str, text: str) -> int:
    match = _PERCENT.fullmatch(part.strip())
    if match is None:
        raise ValueError(f"found {text!r}, expected {EXPECTED}")
    permille = round(10 * float(match[1]))
    if not LEAST_PERMILLE <= permille <= WHOLE_PERMILLE:
        raise ValueError(f"found {text!r}, expected shares from 1% to 100%")
    return permille


def percent(permille: int) -> str:
    """A share as people read it: `50%`, `12.5%`."""
    return f"{permille / 10:g}%"
