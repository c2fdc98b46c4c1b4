"""A policy in one file: whoever has had the least GPU time goes next."""

from __future__ import annotations

from headway.engine.core import Engine
from headway.engine.model import Gpu, Group
from headway.engine.policies import Policy, policy


@policy("fair")
class Fair(Policy):
    """Equal shares of the GPU, however long each task's groups are."""

    needs_idle = True

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        if gpu.online:
            return False
        rivals = [other.task for other in engine.ready() if other.task.policy is self]
        return group.task is min(rivals, key=lambda task: task.gpu_ns)
