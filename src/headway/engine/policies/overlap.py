"""The important group goes beside the one that is draining."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.engine.policies import HoldOff, policy

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group


@policy("overlap")
class Overlap(HoldOff):
    """As PRT, but a group does not wait for less important ones that are on the GPU.

    Those get no more work through their gates; what they have in flight and the important group
    share the GPU as the hardware does it (time slices, or MPS). So the wait is bounded by the
    hardware's slice where PRT waits for the end of one long kernel. A device that runs groups one
    after the other, such as the simulator's, shows the same order as PRT. Beside a more important
    task that stands others (`Task.corun`) a group does not wait either, nor beside equals whose
    work the hardware mixes with its own (`Task.mixes`).
    """

    takes_idle = True
    shares_gpu = True
    at_once = True

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        if not gpu.online:
            return True
        rank = group.task.rank
        return all(
            other.task.rank > rank or other.task.corun or group.task.may_mix(other.task)
            for other in gpu.online
        )
