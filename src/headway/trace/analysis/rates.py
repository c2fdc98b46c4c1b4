"""Frames per second over time, as an eye sees them: steady where frames come steadily."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

POINTS = 40
"""A curve's points, at most."""
WINDOW_NS = 500_000_000
"""A rate is the mean of half a second: a shorter one would show the clock's steps."""
LEAST_NS = 100_000_000
"""No two points are closer."""


def frame_rates(frames_ns: Sequence[int], from_ns: int, to_ns: int) -> list[tuple[int, float]]:
    """Instants, from `from_ns` on, and the rate around each; none if no frame was shown. Between
    two frames a part of the next counts, so the rate is not rounded to whole frames."""
    first, last = bisect_left(frames_ns, from_ns), bisect_right(frames_ns, to_ns)
    length_ns = to_ns - from_ns
    if first == last or length_ns <= 0:
        return []
    known = frames_ns[first:last]
    step_ns = min(length_ns, max(-(-length_ns // POINTS), LEAST_NS))
    half_ns = max(step_ns, min(WINDOW_NS, length_ns // 4)) / 2
    points = []
    for place in range(max(1, length_ns // step_ns)):
        middle_ns = step_ns * place + step_ns // 2
        at_ns = from_ns + middle_ns
        begin_ns, end_ns = max(from_ns, at_ns - half_ns), min(to_ns, at_ns + half_ns)
        points.append((middle_ns, _mean(known, begin_ns, end_ns)))
    return points


def _mean(known: Sequence[int], begin_ns: float, end_ns: float) -> float:
    """Frames per second in a stretch; of its part between the first frame and the last."""
    a_ns, b_ns = max(begin_ns, known[0]), min(end_ns, known[-1])
    if b_ns - a_ns < (end_ns - begin_ns) / 4:
        inside = bisect_right(known, end_ns) - bisect_left(known, begin_ns)
        return inside * 1e9 / (end_ns - begin_ns)
    return (_count(known, b_ns) - _count(known, a_ns)) * 1e9 / (b_ns - a_ns)


def _count(known: Sequence[int], at_ns: float) -> float:
    """How many frames were shown by then, the part of the next one included."""
    place = bisect_right(known, at_ns)
    if place == len(known):
        return place
    before_ns, after_ns = known[place - 1], known[place]
    return place + (at_ns - before_ns) / (after_ns - before_ns)
