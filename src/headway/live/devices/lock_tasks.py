"""What the lock server remembers of tasks between their tokens: homes, costs, early releases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

MAX_TASKS = 4096
"""Tasks that are remembered; of the user with the most, the oldest makes room."""
Key = tuple[int, int, int, str]
"""User, process, cluster of devices, and the task's name."""


@dataclass(slots=True, eq=False)
class LockTask:
    """A task of a process, as its tokens know it."""

    number: int
    key: Key
    home: int | None = None
    """The device, within the cluster, that holds the task's state."""
    release_ns: int = 0
    """The earliest release of the next job: budgets taken early have sacrificed jobs before it."""
    jobs: int = 0
    """Tokens that are held or waited for now."""


class LockTasks:
    """All tasks that are remembered."""

    def __init__(self) -> None:
        self._tasks: dict[Key, LockTask] = {}
        self._users: Counter[int] = Counter()
        self._numbers = 0
        self._forgotten: list[LockTask] = []

    def find(self, key: Key) -> LockTask:
        """The task of this key, a new one if there is none."""
        task = self._tasks.get(key)
        if task is None:
            if len(self._tasks) >= MAX_TASKS:
                self._make_room()
            self._numbers += 1
            task = self._tasks[key] = LockTask(self._numbers, key)
            self._users[key[0]] += 1
        return task

    def forgotten(self) -> list[LockTask]:
        """Tasks that made room since the last call."""
        gone, self._forgotten = self._forgotten, []
        return gone

    def _make_room(self) -> None:
        ((user, _),) = self._users.most_common(1)
        idle = (t for t in self._tasks.values() if t.key[0] == user and not t.jobs)
        oldest = next(idle, None)
        if oldest is not None:
            del self._tasks[oldest.key]
            self._users[user] -= 1
            self._forgotten.append(oldest)
