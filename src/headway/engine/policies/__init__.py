"""Scheduling policies: one file each, found by the decorator.

A policy answers one question: may this ready group go onto this GPU now? Groups are asked in the
order of `key` (by default the task's rank), then submission time, then the task's order; the first
that is admitted is dispatched, and the question is put again until nobody is admitted.
docs/write-a-policy.md is the tutorial.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group, Task
    from headway.engine.reading import Table

DEFAULT_PATIENCE_NS = 50_000_000
_REGISTRY: dict[str, type[Policy]] = {}
P = TypeVar("P", bound="type[Policy]")


class Policy(ABC):
    """Decides when a task's groups go online. One instance serves every task that names it."""

    name: ClassVar[str]
    holdoff_ns: int = 0
    """How long an idle GPU is kept for the task of this policy that used it last."""
    patience_ns: int = 0
    """No GPU is kept for its tasks once another task's group has been ready for so long."""
    needs_idle: bool = False
    """A promise: `admits` is never true while the GPU's online list holds something."""
    takes_idle: bool = False
    """A promise: `admits` is always true for the first ready group when the GPU is idle."""
    passes_equals: bool = False
    """Whether a task may go on past ready tasks that are as important as it is."""
    keeps_rank: bool = False
    """A promise: its groups are asked in the order of rank, and none goes onto a busy GPU while a
    more important one is ready. Users to whom a spec gives no other right may choose it."""
    at_once: bool = False
    """Whether a group that `admits` would let go may go with the asking, before the answer."""
    decides: bool = True
    """Whether a dispatch costs a scheduling decision (a driver without a manager makes none)."""

    @classmethod
    def read(cls, table: Table) -> Policy:
        """Make one with the settings of a `[policy.NAME]` table; by default there are none."""
        return cls()

    @abstractmethod
    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        """May this ready group go online on this GPU now (`engine.now_ns`)?"""

    def key(self, task: Task) -> int:
        """Place of the task among the ready ones; smaller is asked first."""
        return task.rank

    def wake_ns(self, now_ns: int) -> int | None:
        """When to ask again though no event happened, while one of its groups is ready."""
        return None


class HoldOff(Policy):
    """A policy whose tasks may have an idle GPU kept for them for a moment (engine/holdoff.py)."""

    takes_idle = True

    def __init__(self, holdoff_ns: int = 0, patience_ns: int = DEFAULT_PATIENCE_NS) -> None:
        self.holdoff_ns = holdoff_ns
        self.patience_ns = patience_ns

    @classmethod
    def read(cls, table: Table) -> HoldOff:
        return cls(table.duration("holdoff", 0), table.duration("patience", DEFAULT_PATIENCE_NS))


def policy(name: str) -> Callable[[P], P]:
    """Register a policy class under the name that scenario and spec files use."""

    def register(cls: P) -> P:
        known = _REGISTRY.get(name)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"two policies are called {name!r}: {known} and {cls}")
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return register


def policies() -> dict[str, type[Policy]]:
    """Every registered policy by name; the files of this package are imported on the way."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _REGISTRY
