"""Controllers: how much others get beside a task's jobs, moved by what its jobs come to.

A controller hears of each job that ends and says for which part of the time of the next ones others
may be on the GPU: 1 is all of it, 0 none. Each task has a controller of its own. One file each,
found by the decorator.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from headway.engine.jobs import Job

C = TypeVar("C", bound="type[Controller]")
_REGISTRY: dict[str, type[Controller]] = {}


class Controller:
    """Lets nobody beside the task's jobs, whatever becomes of them."""

    name: ClassVar[str] = "alone"

    @property
    def level(self) -> float:
        """For which part of the time of a job others may be on the GPU beside it."""
        return 0.0

    def job_ended(self, job: Job, goal: float) -> None:
        """A job during which others could be beside it is over. `goal`: by which part of what a job
        takes alone it may take longer, if it has no deadline."""


def controller(name: str) -> Callable[[C], C]:
    """Register a controller under the name that people use."""

    def register(cls: C) -> C:
        known = _REGISTRY.get(name)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"two controllers are called {name!r}: {known} and {cls}")
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return register


def controllers() -> dict[str, type[Controller]]:
    """Every registered controller by name."""
    controller("alone")(Controller)
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _REGISTRY
