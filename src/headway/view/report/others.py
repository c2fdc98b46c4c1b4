"""Tracks of another tool beside a run, of bounded size: as many as fit, the busiest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.view.traces.others import Track

MAX_TRACKS = 16
MAX_SLICES = 1500
"""Of a track: what a screen is wide, or a little more."""
MANY = "several"


def data_of_others(tracks: Sequence[Track], from_ns: int, to_ns: int) -> dict[str, Any]:
    """What the page shows of them between two times: GPUs, CPUs, and then threads."""
    shown = [_part(track, from_ns, to_ns) for track in tracks]
    busy = sorted((t for t in shown if t.slices), key=lambda t: (_kind(t), -t.busy_ns))
    names: dict[str, int] = {}
    rows = []
    for track in sorted(busy[:MAX_TRACKS], key=lambda t: (_kind(t), _natural(t.name))):
        steps: list[int] = []
        last = 0
        for start, end, name in _thinned(track.slices):
            steps += (start - from_ns - last, end - start, names.setdefault(name, len(names)))
            last = start - from_ns
        rows.append({"name": track.name, "gpu": track.gpu, "slices": steps})
    return {"tracks": rows, "names": list(names), "left_out": max(0, len(busy) - MAX_TRACKS)}


def _kind(track: Track) -> int:
    return 0 if track.gpu else 1 if track.name.startswith("CPU ") else 2


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in names by their value."""
    return [(int(w), "") if w.isdecimal() else (-1, w) for w in name.split()]


def _part(track: Track, from_ns: int, to_ns: int) -> Track:
    inside = [
        (max(start, from_ns), min(end, to_ns), name)
        for start, end, name in track.slices
        if start < to_ns and end > from_ns
    ]
    return Track(track.name, track.gpu, inside)


def _thinned(slices: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Where there are too many, those that are close together become one."""
    result = list(slices)
    gap_ns = 1000
    while len(result) > MAX_SLICES:
        joined: list[tuple[int, int, str]] = []
        for start, end, name in result:
            if joined and start - joined[-1][1] <= gap_ns and end - joined[-1][0] <= 8 * gap_ns:
                before = joined[-1]
                joined[-1] = (before[0], end, name if name == before[2] else MANY)
            else:
                joined.append((start, end, name[:200]))
        result = joined
        gap_ns *= 2
    return result
