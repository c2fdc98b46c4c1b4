"""Jobs that come at a fixed rate."""

from __future__ import annotations

from headway.engine.model import Group
from headway.engine.reading import Table
from headway.sim.programs import BLOCKED, Program, program

MAX_COUNT = 10**12


@program("periodic")
class Periodic(Program):
    """One group every period, due a deadline after its release (by default, a period)."""

    def __init__(
        self,
        period_ns: int,
        cost_ns: int,
        offset_ns: int = 0,
        deadline_ns: int | None = None,
        count: int = MAX_COUNT,
    ) -> None:
        self.period_ns: int = period_ns
        self.cost_ns = cost_ns
        self.deadline_ns = period_ns if deadline_ns is None else deadline_ns
        self._count = count
        self._index = 0
        self._release_ns = offset_ns

    @classmethod
    def read(cls, table: Table, seed: int) -> Periodic:
        period_ns = table.duration("period", required=True, least=1)
        return cls(
            period_ns,
            table.duration("cost", required=True, least=1),
            table.duration("offset", 0),
            table.duration("deadline", period_ns, least=1),
            table.integer("count", MAX_COUNT, least=1, most=MAX_COUNT),
        )

    def start(self) -> int:
        return self._release_ns

    def resume(self, now_ns: int) -> Group:
        index, release_ns = self._index, self._release_ns
        self._index = index + 1
        self._release_ns = release_ns + self.period_ns
        deadline_ns = release_ns + self.deadline_ns
        signature = (self.kind, self.task.name)
        return Group(self.task, index, self.cost_ns, deadline_ns, signature, released_ns=release_ns)

    def unsent(self, now_ns: int) -> int:
        late_ns = now_ns - self.deadline_ns - self._release_ns
        due = late_ns // self.period_ns + 1 if late_ns >= 0 else 0
        return min(due, self._count - self._index)

    def dispatched(self, group: Group, now_ns: int) -> int:
        return self._release_ns if self._index < self._count else BLOCKED
