"""The baseline that polls: a tick-driven manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.policies import Policy, policy

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group
    from headway.engine.reading import Table


@policy("germ")
class Germ(Policy):
    """PRT's order, but decisions only at ticks: TimeGraph §6.3's model of GERM, 1 ms by default."""

    needs_idle = True
    keeps_rank = True

    def __init__(self, tick_ns: int = 1_000_000) -> None:
        self.tick_ns = tick_ns

    @classmethod
    def read(cls, table: Table) -> Germ:
        return cls(table.duration("tick", 1_000_000, least=1))

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        return not gpu.online and engine.now_ns % self.tick_ns == 0

    def wake_ns(self, now_ns: int) -> int | None:
        return now_ns - now_ns % self.tick_ns + self.tick_ns
