"""Groups as a scenario lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headway.engine.cost_models import NO_FEATURES
from headway.engine.model import Group
from headway.engine.reading import Table
from headway.sim.programs import BLOCKED, Program


class Listed(NamedTuple):
    """A group of a scenario's list."""

    due_ns: int
    cost_ns: int
    kind: str | None = None
    """Groups of one kind are the same, whosever they are. Those without one are the same as their
    own task's only."""
    features: Mapping[str, int] = NO_FEATURES
    """Named amounts that a cost model may go by."""


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
        return [listed.cost_ns for listed in self._groups]

    @classmethod
    def read(cls, table: Table, seed: int) -> Listing:
        groups = []
        for item in table.tables("groups"):
            due_ns = item.duration("at", required=True)
            cost_ns = item.duration("cost", required=True, least=1)
            kind = item.string("kind") or None
            groups.append(Listed(due_ns, cost_ns, kind, _read_features(item)))
            item.close()
        return cls(groups)

    def start(self) -> int:
        return self._groups[0].due_ns if self._groups else BLOCKED

    def resume(self, now_ns: int) -> Group:
        index = self._next
        self._next += 1
        _, cost_ns, kind, features = self._groups[index]
        signature = (self.kind, self.task.name) if kind is None else kind
        return Group(self.task, index, cost_ns, signature=signature, features=features)

    def dispatched(self, group: Group, now_ns: int) -> int:
        return self._groups[self._next].due_ns if self._next < len(self._groups) else BLOCKED


def _read_features(item: Table) -> Mapping[str, int]:
    """`features = { pixels = 1000 }`: whole numbers, by names of the writer's own."""
    inner = item.table("features")
    if inner is None:
        return NO_FEATURES
    found = {name: inner.integer(name, 0, least=0) for name, _ in list(inner.items())}
    inner.close()
    return found
