"""The ready queue: groups that may go as soon as their policy and a GPU allow it."""

from __future__ import annotations

from bisect import bisect_left, insort

from headway.engine.model import Group, Rank, Task
from headway.engine.policies import Policy

Entry = tuple[int, int, int, Group]
"""The policy's key, submission time, the task's order, and the group."""


class ReadyQueue:
    """Ready groups in the order in which they are asked; at most one of each task."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.eager = 0
        """Groups that a busy GPU might admit: while there are none, a busy GPU asks nobody."""
        self.wakers: dict[Policy, int] = {}
        """Groups per policy that may want to be asked again at some later time."""
        self.custom_keys = False
        """Whether some policy orders its tasks otherwise than by rank."""

    def push(self, group: Group) -> None:
        """A group became ready."""
        task = group.task
        insort(self.entries, (task.key, group.submitted_ns, task.order, group))
        task.in_ready_queue = True
        policy = task.policy
        if not policy.takes_idle:
            self.wakers[policy] = self.wakers.get(policy, 0) + 1
        if not policy.needs_idle:
            self.eager += 1

    def pull(self, task: Task) -> None:
        """The task's group is no longer ready, or changes its place."""
        group = task.waiting
        if group is not None:
            entry = (task.key, group.submitted_ns, task.order, group)
            self.take(bisect_left(self.entries, entry))

    def take(self, place: int) -> None:
        """Remove the group at this place."""
        task = self.entries.pop(place)[3].task
        task.in_ready_queue = False
        policy = task.policy
        if not policy.takes_idle:
            self.wakers[policy] -= 1
            if not self.wakers[policy]:
                del self.wakers[policy]
        if not policy.needs_idle:
            self.eager -= 1

    def best_rank(self) -> Rank:
        """The rank of the most important ready task; ask only while there is one."""
        if self.custom_keys:
            return min(entry[3].task.rank for entry in self.entries)
        return self.entries[0][3].task.rank

    def next_wake_ns(self, now_ns: int) -> int | None:
        """The earliest time at which a policy wants to be asked again."""
        times = [policy.wake_ns(now_ns) for policy in self.wakers]
        return min((time for time in times if time is not None), default=None)
