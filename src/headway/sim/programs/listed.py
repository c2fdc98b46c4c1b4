"""Groups as a scenario lists them."""

from __future__ import annotations

from headway.engine.model import Group
from headway.engine.reading import Table
from headway.sim.programs import BLOCKED, Program

Listed = tuple[int, int, str | None]
"""When it is due, what it costs, and its kind: groups of one kind are the same, whosever they are.
Those that say none are the same as their own task's only."""


class Listing(Program):
    """Submits the given groups in order, each when it is due and its predecessor was dispatched."""

    kind = "groups"
    endless = False

    def __init__(self, groups: list[Listed]) -> None:
        self._groups = groups
        self._next = 0

    @property
    def costs_ns(self) -> list[int]:
        """What each group costs."""
        return [cost_ns for _, cost_ns, _ in self._groups]

    @classmethod
    def read(cls, table: Table, seed: int) -> Listing:
        groups = []
        for item in table.tables("groups"):
            due_ns = item.duration("at", required=True)
            cost_ns = item.duration("cost", required=True, least=1)
            groups.append((due_ns, cost_ns, item.string("kind") or None))
            item.close()
        return cls(groups)

    def start(self) -> int:
        return self._groups[0][0] if self._groups else BLOCKED

    def resume(self, now_ns: int) -> Group:
        index = self._next
        self._next += 1
        _, cost_ns, kind = self._groups[index]
        signature = (self.kind, self.task.name) if kind is None else kind
        return Group(self.task, index, cost_ns, signature=signature)

    def dispatched(self, group: Group, now_ns: int) -> int:
        return self._groups[self._next][0] if self._next < len(self._groups) else BLOCKED
