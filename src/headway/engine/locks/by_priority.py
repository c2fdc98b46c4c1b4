"""Token order "priority": tokens go to the strongest request, and holders inherit in pairs.

The weakest holder runs with the priority of the strongest waiter, the second weakest with that of
the second strongest, and so on while the waiter outranks the holder.
"""

from __future__ import annotations

from headway.engine.locks.jobs import Base, Job
from headway.engine.locks.tokens import TokenAllocator


def _base(job: Job) -> Base:
    return job.base


class PriorityAllocator(TokenAllocator):
    """One queue by priority in front of the tokens; a FIFO queue holds more than its holder only
    behind one that was virtually unlocked."""

    def lender(self, job: Job) -> Job:
        if not self.holds(job):
            return job
        return self._pairs().get(id(job), job)

    def _pairs(self) -> dict[int, Job]:
        """Whose priority each paired holder has."""
        behind = [job for queue in self.queues for job in queue[1:]]
        if not behind and not self.overflow:
            return {}
        waiting = sorted([*behind, *self.overflow], key=_base, reverse=True)
        holders = sorted((queue[0] for queue in self.queues if queue), key=_base)
        pairs = {}
        for holder, waiter in zip(holders, waiting, strict=False):
            if waiter.base <= holder.base:
                break
            pairs[id(holder)] = waiter
        return pairs

    def _admit(self, job: Job) -> None:
        if self.in_queues < self.settings.tokens:
            self._enter(job, self.placement.queue(job, self))
        else:
            self._overflow(job)

    def _next(self, token: int, donor: Job | None) -> Job | None:
        return self.overflow.pop() if self.overflow else None
