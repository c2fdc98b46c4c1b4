"""What the checker holds a run to: the table of rules, and what a breach of one looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import fill
from typing import Final


@dataclass(frozen=True, slots=True)
class Violation:
    """At this instant the stream broke this rule."""

    ns: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.ns} ns: {self.rule}: {self.message}"


Report = Callable[[int, str, str], None]
"""How the parts of the checker tell of a violation: its instant, its rule and what happened."""

RULES: Final[dict[str, str]] = {
    "one-online": (
        "A group of a prt or germ task goes online only on a GPU whose online list is empty."
    ),
    "ht-order": (
        "An ht group goes online on a busy GPU only behind its own task's executing group, and only"
        " while no ready group of a strictly more important task waits, whatever its policy."
    ),
    "priority": (
        "An idle GPU takes the most important ready group: smallest rank, then earliest submission"
        " (or, if that is later, when a group of the task's user, and of its process, was done),"
        " then the order in which the tasks came. A prt or ht group is compared with the prt and ht"
        " groups, a germ group with the germ groups too."
    ),
    "work-conserving": (
        "No ready group waits over a stretch of time for a GPU that its policy lets it have: an"
        " idle one (prt, ht, fifo), one that executes its own task's group (ht, if nothing more"
        " important is ready), any (fifo)."
    ),
    "budget": (
        "A reserve starts full, falls by what its groups executed (of one that goes on, by parts:"
        " until a boundary, before that is replenished) and what it lends, and gains"
        " e = min(max(C + inherited, x), e + C) at its boundaries and at no other time. A group"
        " goes online only if e > 0 (pe) or e >= x (ae). No replenishment that would change"
        " something is left out while a group waits."
    ),
    "bandwidth": (
        "From any boundary on, a reserve is charged at most C for every period begun, plus what was"
        " online when it ran out (one group, unless its tasks have several online at once), plus"
        " what an ae group larger than C saved up for. What it lends counts as charged, what is"
        " lent to it as gained."
    ),
    "inheritance": (
        "A task's rank is its own unless clients wait for it; a server that follows PIX has the"
        " best of its own rank and theirs. Budget moves only with a request, as RIX says: all that"
        " is left of it to the server (of a shared one the client's part), and equation (1) of it"
        " back."
    ),
    "sequence": (
        "Time does not run backwards; groups are submitted, dispatched and completed in this order"
        " and one after the other (but one that overlap let go beside others may be done first);"
        " executions on one GPU do not overlap; what is charged of a group that goes on was"
        " executed, and not charged before; nothing follows the end."
    ),
}


def describe_rules(width: int = 100) -> str:
    """The table as help text."""
    indent = " " * (max(map(len, RULES)) + 4)
    return "\n".join(
        fill(text, width, initial_indent=f"  {name}".ljust(len(indent)), subsequent_indent=indent)
        for name, text in RULES.items()
    )
