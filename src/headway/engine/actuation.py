"""Actuation: when a program is given another share, and since when jobs beside it say something.

Where another share takes nothing, every change is made. Where it takes a restart, as under MPS,
changes are fewer: a rise has to be worth a restart, and a program runs for a while between two.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headway.engine.shares import WHOLE_PERMILLE

NS_PER_S = 1_000_000_000
WORTH_A_RESTART = 100
"""A rise of less, in thousandths, is not worth one: a program gives a tenth more in ten times as
long at best."""
RESTART_PART = 10
"""A program runs at least so many times as long as its restart took before it is restarted for a
rise: so restarts cost it a tenth of its time at most."""
RESTARTS, RESTARTS_NS = 10, 60 * NS_PER_S
"""More restarts within this time are refused, whatever they are for: a controller that is at odds
with a program is not to wear it out."""
BETWEEN_NS = NS_PER_S
"""A program that was started so short a time ago is not restarted: it has hardly loaded what it
needs, and has said nothing yet."""
LOADS_NS = 60 * NS_PER_S
"""A program that says words says the first within this time after a restart, or never again."""


@dataclass(eq=False, kw_only=True)
class Actuation:
    """The share of one program, from the decision to the program having it."""

    restarts: bool
    """Another share takes a restart of the program."""
    told: int = WHOLE_PERMILLE
    """The share that it is to have, in thousandths,"""
    applied: int = WHOLE_PERMILLE
    """and the one that it has."""
    changed_ns: int = 0
    """When either changed."""
    took_ns: int = 0
    """How long it took the last time until the program had another share."""
    restarted: deque[int] = field(default_factory=lambda: deque(maxlen=RESTARTS))
    loads: bool = False
    """It was restarted, and has said nothing since."""
    loaded_ns: int = 0
    """When it did."""

    @property
    def is_pending(self) -> bool:
        """Whether the program is to have another share than it has."""
        return self.told != self.applied

    def tell(self, share: int, now_ns: int) -> None:
        """The program is to have this share."""
        if self.restarts:
            self.restarted.append(now_ns)
        self.told, self.changed_ns = share, now_ns

    def apply(self, share: int, now_ns: int) -> None:
        """The program has this share now."""
        if share != self.applied:
            self.took_ns = now_ns - self.changed_ns
            self.changed_ns = now_ns
            self.loads, self.loaded_ns = self.restarts, now_ns
        self.applied = share

    def speak(self, now_ns: int) -> None:
        """The program says something, so it has loaded."""
        if self.loads:
            self.loads, self.loaded_ns = False, now_ns

    def is_due(self, share: int, most: int, now_ns: int) -> bool:
        """Whether it is to be told this share now; `most` is the largest that it may have."""
        if share == self.told or self.is_pending:
            return False
        if not self.restarts:
            return True
        return self._is_worth(share, most) and not self._is_held_back(share, now_ns)

    def settled_ns(self, share: int, most: int, now_ns: int, *, speaks: bool) -> int:
        """Since when the program has the share that it is to have: a job beside it that began
        before says nothing of that share. `speaks`: it says what becomes of its own jobs."""
        if self.is_pending or (share != self.told and self._is_worth(share, most)):
            return now_ns + 1
        # One that never says anything is taken to have loaded after a while.
        loaded_ns = self.changed_ns + (LOADS_NS if speaks else BETWEEN_NS)
        return min(now_ns + 1, loaded_ns) if self.loads else self.loaded_ns

    def _is_worth(self, share: int, most: int) -> bool:
        """Whether the change is worth a restart."""
        enough = share - self.told >= WORTH_A_RESTART
        return share < self.told or enough or share == most

    def _is_held_back(self, share: int, now_ns: int) -> bool:
        """Whether a change that is worth a restart has to wait."""
        often = len(self.restarted) == RESTARTS
        if often and now_ns - self.restarted[0] < RESTARTS_NS:
            return True
        least_ns = BETWEEN_NS
        if share > self.told:
            least_ns = max(least_ns, RESTART_PART * self.took_ns)
        return now_ns - self.changed_ns < least_ns
