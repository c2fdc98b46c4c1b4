"""What a recording of another tool is reduced to: named tracks of slices that do not overlap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MONOTONIC, WALL, UNKNOWN = "monotonic", "wall", "unknown"
"""Clocks: CLOCK_MONOTONIC, which is the daemon's; the time of day; one that the file leaves out."""

Slice = tuple[int, int, str]
"""When it began and ended, in nanoseconds, and what it was."""


@dataclass(frozen=True, slots=True)
class Track:
    """What one CUDA stream, CPU or thread did."""

    name: str
    gpu: bool
    slices: list[Slice]

    def moved(self, shift_ns: int) -> Track:
        slices = [(start + shift_ns, end + shift_ns, name) for start, end, name in self.slices]
        return Track(self.name, self.gpu, slices)

    @property
    def busy_ns(self) -> int:
        return sum(end - start for start, end, _ in self.slices)


@dataclass(frozen=True, slots=True)
class Recording:
    """The tracks of a file, and the clock that they are by."""

    clock: str
    tracks: list[Track]

    def bounds(self) -> tuple[int, int]:
        first = min(track.slices[0][0] for track in self.tracks)
        return first, max(track.slices[-1][1] for track in self.tracks)


def flattened(slices: Iterable[Slice]) -> list[Slice]:
    """Of slices that stand in each other, at each time the innermost. One that ends after the one
    it stands in is cut off there."""
    result: list[Slice] = []
    around: list[tuple[int, str]] = []
    """Ends and names of slices that go on, the outermost first."""
    at = 0

    def until(ns: int, name: str) -> None:
        nonlocal at
        if ns > at:
            if result and result[-1][1] == at and result[-1][2] == name:
                result[-1] = (result[-1][0], ns, name)
            else:
                result.append((at, ns, name))
        at = max(at, ns)

    for start, end, name in sorted(slices, key=lambda s: (s[0], -s[1])):
        while around and around[-1][0] <= start:
            until(*around.pop())
        if around:
            until(start, around[-1][1])
            end = min(end, around[-1][0])
        at = start
        if end > start:
            around.append((end, name))
    while around:
        until(*around.pop())
    return result
