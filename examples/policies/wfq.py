"""Weighted fair queueing: equals share the GPU in proportion to their weights."""

from __future__ import annotations

from headway.engine.core import Engine
from headway.engine.model import Group, Task
from headway.engine.policies import Policy, policy
from headway.engine.reading import Table

MOST = 1000
"""The largest weight; virtual time counts in thousandths of a nanosecond, so it stays whole."""


@policy("wfq")
class Wfq(Policy):
    """Shares of the GPU by weight, among tasks of one priority: wfq:weight=3."""

    def __init__(self) -> None:
        self.now = 0
        """Virtual time: that of the task that was let go last."""
        self.times: dict[Task, int] = {}
        """Each task's own: it runs slower the larger the weight is."""

    @classmethod
    def read_task(cls, table: Table) -> int:
        return table.integer("weight", 1, least=1, most=MOST)

    def key(self, task: Task) -> int:
        return task.rank + self.times.get(task, self.now)

    def submitted(self, group: Group, engine: Engine) -> None:
        # Who rested gets no credit for it.
        self.times[group.task] = max(self.now, self.times.get(group.task, 0))

    def started(self, group: Group, engine: Engine) -> None:
        self.now = max(self.now, self.times[group.task])

    def finished(self, group: Group, engine: Engine) -> None:
        executed_ns = group.finished_ns - group.started_ns
        self.times[group.task] += executed_ns * MOST // int(group.task.parameters)

    def removed(self, task: Task, engine: Engine) -> None:
        self.times.pop(task, None)

    def quantum_ns(self, task: Task, usual_ns: int, engine: Engine) -> int:
        # Until its clock is half a usual turn ahead of whoever is furthest behind.
        others = [self.times[g.task] for g in engine.ready() if g.task in self.times]
        ahead = self.times[task] - min(others, default=self.times[task])
        return max(usual_ns // 8, (usual_ns * MOST // 2 - ahead) * int(task.parameters) // MOST)
