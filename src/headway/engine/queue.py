"""The ready queue: groups that may go as soon as their policy and a GPU allow it.

What is asked of the queue costs the logarithm of its length. The order alone is kept at first; ages
and ranks are kept beside it from when somebody asks for them, or a policy orders otherwise.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from headway.engine.model import Group, Rank, Task
from headway.engine.policies import Policy

Entry = tuple[int, int, int, int, int, Group]
"""The policy's key; since when the first and the second of the task's parties have waited;
submission time, the task's order, and the group."""
GROUP: Final = 5
"""The place of the group in an entry."""
SPARE = 64
"""Ages of groups that are ready no more may outnumber the others by so many."""


def _entry(task: Task, group: Group) -> Entry:
    since_ns, parties = group.submitted_ns, task.parties
    if not parties:
        return task.key, since_ns, since_ns, since_ns, task.order, group
    first_ns = max(since_ns, parties[0].last_ns)
    last_ns = max(since_ns, parties[-1].last_ns)
    return task.key, first_ns, last_ns, since_ns, task.order, group


class ReadyQueue:
    """Ready groups in the order in which they are asked; at most one of each task."""

    def __init__(self, key: Callable[[Task], int]) -> None:
        """`key` asks the policy of a task that does not go by rank for its place."""
        self._key = key
        self.entries: list[Entry] = []
        self.eager = 0
        """Groups that a busy GPU might admit: while there are none, a busy GPU asks nobody."""
        self.wakers: dict[Policy, int] = {}
        """Groups per policy that may want to be asked again at some later time."""
        self.short = True
        """Nothing but the order is kept: who needs no more may write to `entries` itself."""
        self.custom_keys = False
        """Whether some policy orders its tasks otherwise than by rank."""
        self._ranks: list[Rank] | None = None
        """Sorted, where the order does not tell."""
        self._ages: list[tuple[int, int, Group]] | None = None
        """A heap of when groups became ready, with a number; an entry counts only if its group
        still is, since then."""
        self._pushed = 0

    def add(self, policy: Policy) -> None:
        """Tasks have this policy from now on."""
        if policy.orders and self._ranks is None:
            self.custom_keys, self.short = True, False
            self._ranks = sorted(entry[GROUP].task.rank for entry in self.entries)

    def push(self, group: Group) -> None:
        """A group became ready."""
        task = group.task
        policy = task.policy
        task.key = self._key(task) if policy.orders else task.rank
        insort(self.entries, _entry(task, group))
        task.in_ready_queue = True
        for party in task.parties:
            party.ready += 1
        if not policy.takes_idle:
            self.wakers[policy] = self.wakers.get(policy, 0) + 1
        if not policy.needs_idle:
            self.eager += 1
        if self._ranks is not None:
            insort(self._ranks, task.rank)
        if self._ages is not None:
            self._pushed += 1
            heappush(self._ages, (group.ready_ns, self._pushed, group))
            if len(self._ages) > 2 * len(self.entries) + SPARE:
                self._keep_ages()

    def pull(self, task: Task) -> None:
        """The task's group is no longer ready, or changes its place."""
        if task.waiting is not None:
            self.take(self.place(task.waiting))

    def place(self, group: Group) -> int:
        """How many are asked before this ready group."""
        return bisect_left(self.entries, _entry(group.task, group))

    def move(self, task: Task) -> None:
        """The task may have another place now."""
        if task.in_ready_queue and task.waiting is not None:
            self.pull(task)
            self.push(task.waiting)

    def take(self, place: int) -> None:
        """Remove the group at this place."""
        task = self.entries.pop(place)[GROUP].task
        task.in_ready_queue = False
        for party in task.parties:
            party.ready -= 1
        policy = task.policy
        if not policy.takes_idle:
            self.wakers[policy] -= 1
            if not self.wakers[policy]:
                del self.wakers[policy]
        if not policy.needs_idle:
            self.eager -= 1
        if self._ranks is not None:
            del self._ranks[bisect_left(self._ranks, task.rank)]

    def had(self, task: Task, now_ns: int) -> None:
        """A group of the task is done: the others of its parties wait from here on."""
        for party in task.parties:
            party.last_ns = now_ns
        widest, closest = task.parties[0], task.parties[-1]
        if widest.ready:
            for place, entry in enumerate(self.entries):
                parties = entry[GROUP].task.parties
                if parties and parties[0] is widest:
                    key, _, second_ns, since_ns, order, group = entry
                    second_ns = now_ns if parties[-1] is closest else second_ns
                    self.entries[place] = key, now_ns, second_ns, since_ns, order, group
            self.entries.sort()

    def best_rank(self) -> Rank:
        """The rank of the most important ready task; ask only while there is one."""
        return self.entries[0][GROUP].task.rank if self._ranks is None else self._ranks[0]

    def oldest_ns(self) -> int:
        """Since when the group has been ready that was ready first; ask only while there is one."""
        if self._ages is None:
            self._keep_ages()
        ages = self._ages
        assert ages is not None
        while True:
            ready_ns, _, group = ages[0]
            task = group.task
            if task.waiting is group and task.in_ready_queue and group.ready_ns == ready_ns:
                return ready_ns
            heappop(ages)

    def _keep_ages(self) -> None:
        self.short = False
        self._ages = [(e[GROUP].ready_ns, n, e[GROUP]) for n, e in enumerate(self.entries)]
        self._pushed = max(self._pushed, len(self._ages))
        heapify(self._ages)
