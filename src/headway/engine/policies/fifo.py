"""The baseline: a driver without a manager."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.policies import Policy, policy

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group, Task

_FIRST = -(1 << 100)


@policy("fifo")
class Fifo(Policy):
    """Groups go online as they arrive, whoever sends them; priorities mean nothing."""

    takes_idle = True
    decides = False
    shares_gpu = True

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        return True

    def key(self, task: Task) -> int:
        return _FIRST
