"""Predictable-Response-Time scheduling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.policies import HoldOff, policy

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group


@policy("prt")
class Prt(HoldOff):
    """Every group waits for an idle GPU; then the most important one goes (TimeGraph §4.1)."""

    needs_idle = True
    keeps_rank = True

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        return not gpu.online
