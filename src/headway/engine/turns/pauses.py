"""Pauses: how long a program has nothing on the GPU, and which of its pauses end a job.

A *pause* begins when a program has seen that all of its work is done, and ends with its next work.
Inside a job, where a program reads a value back or thinks, pauses are short; the *rest* between two
jobs is long. Which is which is learned from the program's own pauses: in their distribution, on a
logarithmic scale, inner pauses and rests are two heaps with a valley in between. Nothing has to be
regular for that. Where there is one heap only, pauses do not differ: then each of them is a rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BINS = 48
"""Two for each doubling, from 1 us to 17 s; the first and the last are open."""
FIRST_OCTAVE = 10
"""The first bin begins at 2**10 ns."""
MEMORY = 512
"""So many pauses are remembered, about: at twice as many all counts are halved."""
ENOUGH = 3
"""A heap is made of at least so many inner pauses,"""
RESTS = 1.5
"""and so many rests, which may be rare beside the former, and are halved as they are."""
APART = 4
"""Bins that the valley is wide, at least: rests are four times as long as inner pauses."""
STRAY = 0.2
"""A bin of the valley has no more than such a part of the highest bin of the smaller heap, in the
mean: a busy machine makes some pauses longer."""
OVERDUE = 4
"""Heaps are a thing of the past, as of a program's start, when no rest came for so many times the
pauses that there used to be from one to the next."""
MARGIN = 4
"""A turn is kept for such a part longer than the longest pause that it is kept through."""
LONGEST_INNER_NS = 100_000_000
"""A pause that is longer is never an inner one, whatever comes after it."""


def bin_of(pause_ns: int) -> int:
    """Which bin a pause belongs to; the shim counts in the same way."""
    octave = max(pause_ns, 1).bit_length() - 1
    if octave < FIRST_OCTAVE:
        return 0
    return min(2 * (octave - FIRST_OCTAVE) + (pause_ns >> octave - 1 & 1), BINS - 1)


def begins_ns(number: int) -> int:
    """The shortest pause of a bin."""
    octave, half = divmod(number, 2)
    return (2 + half) << FIRST_OCTAVE + octave - 1


def _middle_of(low: int, high: int) -> int:
    """The bin in the middle of the valley between these two."""
    return (low + 1 + high) // 2


@dataclass(frozen=True, slots=True)
class Split:
    """What tells inner pauses from rests."""

    first: int
    """The first bin of rests: the one in the middle of the valley, for pauses become shorter and
    longer with what others do to the jobs between them."""
    rest_ns: int
    """Rests are longer than this: where that bin begins."""


class Pauses:
    """The distribution of one program's pauses, of which old ones are forgotten."""

    def __init__(self) -> None:
        self.counts = [0.0] * BINS
        self.total = 0.0
        self._seen: list[int] = [0] * BINS
        self._last = [0.0] * BINS
        """What the total was when a bin got its last pause."""
        self._span_ns = 0.0
        self._split: Split | None = None
        self._next = 0.0
        """With so many pauses the split is worked out anew."""

    def add(self, pause_ns: int) -> None:
        """One more."""
        self._count(bin_of(pause_ns), 1)

    def observe(self, counters: Sequence[int], span_ns: int) -> None:
        """Counters of each bin that only grow (and wrap at 32 bits), as a port shows them after so
        much time."""
        for number, (now, before) in enumerate(zip(counters, self._seen, strict=True)):
            if now != before:
                self._count(number, (now - before) & 0xFFFFFFFF)
        self._seen[:] = counters
        self._span_ns += span_ns

    def _count(self, number: int, more: int) -> None:
        self.counts[number] += min(more, MEMORY)
        self.total += min(more, MEMORY)
        self._last[number] = self.total
        if self.total > 2 * MEMORY:
            factor = MEMORY / self.total
            self.counts = [count * factor for count in self.counts]
            self._last = [total * factor for total in self._last]
            self._span_ns *= factor
            self.total = float(MEMORY)
            self._next = 0.0

    def split(self, period_ns: int | None = None) -> Split | None:
        """What tells inner pauses from rests; None if they do not differ. Of several valleys the
        widest; where a person said how often jobs come, the one that makes as many jobs."""
        if self.total >= self._next or period_ns is not None:
            self._next = self.total + max(4.0, self.total / 8)
            self._split = self._find(period_ns)
        if self._split is not None and self._is_overdue(self._split.first):
            return None
        return self._split

    def _is_overdue(self, first: int) -> bool:
        last, rests = max(self._last[first:]), sum(self.counts[first:])
        return self.total - last > OVERDUE * (last / rests) + ENOUGH

    def _find(self, period_ns: int | None) -> Split | None:
        below = [0.0]
        for count in self.counts:
            below.append(below[-1] + count)
        filled = [number for number, count in enumerate(self.counts) if count]
        best: tuple[float, int] | None = None
        for low in filled:
            if begins_ns(low) >= LONGEST_INNER_NS:
                break
            inner, left = below[low + 1], max(self.counts[: low + 1])
            for high in filled:
                width, rests = high - low - 1, self.total - below[high]
                if width < APART or inner < ENOUGH or rests < RESTS:
                    continue
                strays = (below[high] - inner) / width
                heap = min(left, max(self.counts[high:]))
                flat = max(self.counts[low + 1 : high]) <= heap / 2
                first = _middle_of(low, high)
                if flat and strays <= STRAY * heap and not self._is_overdue(first):
                    worth = self._worth(width * (1 - strays / heap), rests, period_ns)
                    if best is None or worth > best[0]:
                        best = worth, first
        if best is None:
            return None
        first = min(best[1], bin_of(LONGEST_INNER_NS))
        return Split(first, begins_ns(first))

    def _worth(self, width: float, rests: float, period_ns: int | None) -> float:
        if period_ns is None or not self._span_ns:
            return width
        wanted = self._span_ns / period_ns
        return min(rests, wanted) / max(rests, wanted)

    @property
    def _middle(self) -> int:
        """The bin in which the pause of medium length is."""
        left = self.total / 2
        for number, count in enumerate(self.counts):
            left -= count
            if count and left <= 1e-9:
                return number
        return BINS - 1

    def keep_ns(self, split: Split | None, preemption_ns: int, loss_ns: int) -> int:
        """For how long a program that pauses keeps its turn: so long that least is lost.

        While the program keeps its turn the GPU idles. Giving the turn away in an inner pause costs
        the program a preemption, `preemption_ns`, which counts as `loss_ns` of idling. Where pauses
        do not differ each is taken for a rest, unless most are over before a preemption pays: then
        the program never rests."""
        first = BINS if split is None else split.first
        if split is None and begins_ns(self._middle) > preemption_ns:
            return 0
        inner, rests = sum(self.counts[:first]), sum(self.counts[first:])
        best_ns, least, idled = 0, inner * loss_ns, 0.0
        for number in range(first):
            end_ns = begins_ns(number + 1)
            if end_ns > loss_ns:
                break
            inner -= self.counts[number]
            idled += self.counts[number] * end_ns
            lost = idled + inner * (end_ns + loss_ns) + rests * end_ns
            if self.counts[number] and lost < least:
                best_ns, least = end_ns, lost
        return best_ns + best_ns // MARGIN
