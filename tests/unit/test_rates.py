"""Curves of frame rates: what is steady is steady, what changes is seen, what stops is zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.trace.analysis.rates import frame_rates

S = 1_000_000_000


def steady(rate: float, from_ns: int, to_ns: int) -> list[int]:
    step_ns = S / rate
    return [from_ns + round(step_ns * n) for n in range(1, int((to_ns - from_ns) / step_ns) + 1)]


@given(st.floats(10, 2000), st.integers(2 * S, 30 * S), st.integers(0, 10**18))
def test_a_steady_rate_is_drawn_as_steady(rate: float, length_ns: int, from_ns: int) -> None:
    points = frame_rates(steady(rate, from_ns, from_ns + length_ns), from_ns, from_ns + length_ns)
    assert 1 <= len(points) <= 40
    for at_ns, shown in points:
        assert 0 < at_ns < length_ns
        assert shown == pytest.approx(rate, rel=0.01)


def test_a_change_is_seen_where_it_was() -> None:
    frames = steady(20, 0, 4 * S) + steady(60, 4 * S, 8 * S)
    for at_ns, shown in frame_rates(frames, 0, 8 * S):
        if abs(at_ns - 4 * S) > S // 4:
            assert shown == pytest.approx(20 if at_ns < 4 * S else 60, rel=0.01)


def test_a_program_that_ended_shows_nothing_any_more() -> None:
    points = frame_rates(steady(30, 0, 2 * S), 0, 10 * S)
    assert all(shown == pytest.approx(30, rel=0.01) for at_ns, shown in points if at_ns < 1.7 * S)
    assert all(shown == 0 for at_ns, shown in points if at_ns > 2.3 * S)


def test_without_frames_there_is_no_curve_and_with_one_there_is() -> None:
    assert frame_rates([], 0, S) == []
    assert frame_rates([2 * S], 0, S) == []
    assert frame_rates([5], 5, 5) == []
    assert max(shown for _, shown in frame_rates([S // 2], 0, S)) > 0
