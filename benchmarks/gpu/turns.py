"""Whose turn it is where several ways are measured in every round."""

from __future__ import annotations

from collections.abc import Sequence


def order(titles: Sequence[str], number: int) -> list[str]:
    """Whose turn it is in this round: each follows each other one about equally often.

    These are the rows of a Latin square that is balanced for neighbours (Williams 1949); for an odd
    number of ways every second one is read backwards.
    """
    many = len(titles)
    zigzag = [place // 2 if place % 2 == 0 else many - 1 - place // 2 for place in range(many)]
    turned = [titles[(place + number) % many] for place in zigzag]
    return turned[::-1] if many % 2 and number % 2 else turned
