"""High-Throughput scheduling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.policies import HoldOff, policy

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group


@policy("ht")
class Ht(HoldOff):
    """As PRT, but a task's next group may follow its own executing one at once (TimeGraph §4.1).

    The two conditions are the paper's: (i) the group that executes now is the task's own, and
    (ii) no ready task of higher priority waits.
    """

    takes_idle = True
    passes_equals = True
    keeps_rank = True
    follows_own = True

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        if not gpu.online:
            return True
        task = group.task
        return gpu.online[0].task is task and engine.best_ready_rank() >= task.rank
