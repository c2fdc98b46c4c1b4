"""Predictable-Response-Time scheduling."""

from __future__ import annotations

from headway.engine.policies import HoldOff, policy


@policy("prt")
class Prt(HoldOff):
    """Every group waits for an idle GPU; then the most important one goes (TimeGraph §4.1)."""

    keeps_rank = True
