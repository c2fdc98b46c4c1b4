"""Shares and gate together beside each alone, for a library program with a deadline: simulated."""

from __future__ import annotations

import pytest

from benchmarks import frontier


def test_no_way_of_sharing_beats_both_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier, "PERCENT", (40, 80))
    found = frontier.measure(frontier.CASES["detection, 30 fps"], jobs=60, seed=2)
    most = max(cost.steps for cost in found.values())
    both = found["both"]
    hand = found.pop("MPS, 80 % by hand")  # which need not search first
    assert both.steps > 0.95 * hand.steps
    assert [how for how, cost in found.items() if cost.beats(both, most)] == []
    assert found["MPS, nobody manages"].missed > 0.9
    assert both.missed < 0.1 < 0.5 < found["time slices, nobody manages"].missed
    assert both.steps > 0.5 * found["MPS, nobody manages"].steps


def test_the_gate_alone_ends_misses_too_and_costs_others_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs that may not be given less of the multiprocessors get less of the time."""
    monkeypatch.setattr(frontier, "PERCENT", (80,))
    found = frontier.measure(frontier.CASES["detection, 30 fps"], jobs=60, seed=2)
    assert found["gate only"].missed < 0.4
    assert found["gate only"].steps < found["MPS, nobody manages"].steps
