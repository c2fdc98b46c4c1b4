"""Hold-off: an idle GPU is kept for a moment for the important task that used it last.

A program that submits again right after its completion would otherwise lose the GPU to a less
important one between every two of its groups. The policy of the task that used the GPU last says
for how long (`holdoff_ns`); until then only tasks at least as important get that GPU, whatever
their own policy is. Nobody starves: once a group has been ready for `patience_ns`, the GPU is kept
for nobody. A policy that takes no decisions (`decides = False`, a driver without a manager) does
not heed a hold-off.
"""

from __future__ import annotations

from headway.engine.model import Gpu, Group
from headway.engine.policies import Policy
from headway.engine.queue import ReadyQueue


class HoldOffs:
    """The idle GPUs that are kept, and until when."""

    def __init__(self) -> None:
        self.used = False
        """Whether any policy has a hold-off."""
        self.until_ns: dict[Gpu, int] = {}
        """When a group that is kept off a GPU has to be asked about again."""

    def add(self, policy: Policy) -> None:
        """Tasks may have this policy."""
        self.used = self.used or policy.holdoff_ns > 0

    def keep(self, gpu: Gpu, group: Group, queue: ReadyQueue, now_ns: int) -> bool:
        """Whether this idle GPU is kept for a task more important than the group's."""
        task, last = group.task, gpu.last_task
        if last is None or not last.policy.holdoff_ns or not task.policy.decides:
            return False
        if last.rank >= task.rank or last.waiting is not None:
            return False
        if not last.alive or last is gpu.resting:
            return False
        until_ns = gpu.idle_ns + last.policy.holdoff_ns
        if now_ns >= until_ns:
            return False
        until_ns = min(until_ns, queue.oldest_ns() + last.policy.patience_ns)
        if now_ns >= until_ns:
            return False
        self.until_ns[gpu] = until_ns
        return True

    def next_ns(self, now_ns: int) -> int | None:
        """The next time at which a GPU is no longer kept."""
        return min((time for time in self.until_ns.values() if time > now_ns), default=None)
