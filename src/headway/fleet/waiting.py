"""Claims that wait for a GPU, in lines of like ones: who is first in each line is found at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from headway.fleet.books import Shape, shape_of
from headway.fleet.claims import Claim

Kind = tuple[Shape, tuple[tuple[str, str], ...], bool]


@dataclass(slots=True)
class Waiting:
    """A claim without a GPU."""

    claim: Claim
    number: int
    """In the order of submissions."""
    lost: str = ""
    """Why the claim lost the GPU that it had, if it had one."""
    problem: str = ""
    """Why no GPU can take it now."""

    @property
    def why(self) -> str:
        return "; ".join(filter(None, (self.lost, self.problem)))


class WaitingClaims(dict[str, Waiting]):
    """Waiting claims by ticket. Claims of one kind are alike to the placement: where the first of
    them finds no place, none of them does."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[Kind, dict[str, None]] = {}

    def __setitem__(self, ticket: str, waiting: Waiting) -> None:
        if ticket in self:
            del self[ticket]
        super().__setitem__(ticket, waiting)
        self._lines.setdefault(_kind(waiting.claim), {})[ticket] = None

    def __delitem__(self, ticket: str) -> None:
        kind = _kind(self[ticket].claim)
        super().__delitem__(ticket)
        del self._lines[kind][ticket]
        if not self._lines[kind]:
            del self._lines[kind]

    def take(self, ticket: str) -> bool:
        """The claim waits no longer; whether it did."""
        if ticket not in self:
            return False
        del self[ticket]
        return True

    def candidates(self) -> Iterator[str]:
        """Tickets to try, the most important first and then the oldest. A ticket that still waits
        when the next one is asked for ends its line."""
        heap = [(*self._order(line), kind) for kind, line in self._lines.items()]
        heapify(heap)
        while heap:
            *_, ticket, kind = heappop(heap)
            if ticket in self:
                yield ticket
            if ticket not in self and (line := self._lines.get(kind)):
                heappush(heap, (*self._order(line), kind))

    def _order(self, line: dict[str, None]) -> tuple[int, int, str]:
        ticket = next(iter(line))
        return -self[ticket].claim.effective_level, self[ticket].number, ticket


def _kind(claim: Claim) -> Kind:
    return shape_of(claim), claim.labels, claim.preemptible
