"""What happened in the last seconds: slots of one second each, used in turn, so memory is bounded.

Waits are counted in buckets a sixteenth of their value wide: percentiles of any number of samples
cost the same, and are at most that much too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

SLOT_NS = 1_000_000_000
SECONDS = 5
SLOTS = SECONDS + 1
"""Whole ones, and the one that is being filled."""
SHORT_SLOTS = 2
"""For what should follow a change quickly: the last second, and the one that is being filled."""
MAX_CAUSES = 32
"""What one task waited for in one second; more are put together."""


@dataclass(slots=True, eq=False)
class Cause:
    """What somebody waits for: the kind, and the task it concerns if any. Each is itself only: they
    are looked up so often that comparing their text would show."""

    kind: str
    task: str = ""
    total_ns: int = 0
    """For how long tasks waited for this, all together."""


OTHERS = Cause("others")


def bucket_of(value: int) -> int:
    """The bucket of a number; below 32 each has its own."""
    bits = value.bit_length()
    return value if bits <= 5 else (bits - 5 << 4) + (value >> bits - 5)


def bucket_top(bucket: int) -> int:
    """The largest number of a bucket."""
    if bucket < 16:
        return bucket
    shift = (bucket >> 4) - 1
    return ((bucket - (shift << 4)) + 1 << shift) - 1


class Slot:
    """One second of one task."""

    __slots__ = ("causes", "gpu_ns", "max_wait_ns", "number", "waits")

    def __init__(self) -> None:
        self.clear(-1)

    def clear(self, number: int) -> None:
        self.number = number
        self.gpu_ns = 0
        self.max_wait_ns = 0
        self.waits: dict[int, int] = {}
        self.causes: dict[Cause, int] = {}

    def add_wait(self, wait_ns: int) -> None:
        bits = wait_ns.bit_length()  # bucket_of, written out
        bucket = wait_ns if bits <= 5 else (bits - 5 << 4) + (wait_ns >> bits - 5)
        self.waits[bucket] = self.waits.get(bucket, 0) + 1
        if wait_ns > self.max_wait_ns:
            self.max_wait_ns = wait_ns

    def add_cause(self, cause: Cause, duration_ns: int) -> None:
        causes = self.causes
        if cause not in causes and len(causes) >= MAX_CAUSES:
            cause = OTHERS
        cause.total_ns += duration_ns
        causes[cause] = causes.get(cause, 0) + duration_ns


_NONE = Slot()
"""Of a second that never was."""


class Window:
    """The last slots of one task, or of the GPU."""

    __slots__ = ("_slots", "latest")

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        """By place; made when they are first used, because most programs use none."""
        self.latest = _NONE

    def slot(self, number: int) -> Slot:
        """The slot of this number, empty if it was another one's until now."""
        if self.latest.number == number:
            return self.latest
        slot = self._slots.get(number % SLOTS)
        if slot is None:
            slot = self._slots[number % SLOTS] = Slot()
        if slot.number != number:
            slot.clear(number)
        if number > self.latest.number:
            self.latest = slot
        return slot

    def last(self, number: int, count: int = SLOTS) -> Iterator[Slot]:
        """The slots up to this number that hold something."""
        if self.latest.number <= number - count:
            return
        for slot in self._slots.values():
            if number - count < slot.number <= number:
                yield slot

    def spend(self, start_ns: int, end_ns: int) -> None:
        """GPU time from when to when; what is older than the window is gone."""
        number = end_ns // SLOT_NS
        oldest = number - SLOTS
        while start_ns < end_ns and number > oldest:
            since_ns = max(start_ns, number * SLOT_NS)
            self.slot(number).gpu_ns += end_ns - since_ns
            end_ns = since_ns
            number -= 1

    def gpu_ns(self, number: int, count: int) -> int:
        return sum(slot.gpu_ns for slot in self.last(number, count))

    def waits_at(self, number: int, *fractions: float) -> list[int] | None:
        """Percentiles of the waits (nearest rank, then the top of its bucket); None without any."""
        if self.latest.number <= number - SLOTS:
            return None
        counts: Counter[int] = Counter()
        longest_ns = 0
        for slot in self.last(number):
            counts.update(slot.waits)
            longest_ns = max(longest_ns, slot.max_wait_ns)
        total = counts.total()
        if not total:
            return None
        ordered = sorted(counts)
        result = []
        for fraction in fractions:
            wanted = max(1, -int(-fraction * total // 1))
            for bucket in ordered:
                wanted -= counts[bucket]
                if wanted <= 0:
                    result.append(min(bucket_top(bucket), longest_ns))
                    break
        return result

    def causes(self, number: int) -> Counter[tuple[str, str]]:
        """What was waited for, by kind and task, and for how many ns."""
        total: Counter[tuple[str, str]] = Counter()
        for slot in self.last(number):
            for cause, duration_ns in slot.causes.items():
                total[cause.kind, cause.task] += duration_ns
        return total
