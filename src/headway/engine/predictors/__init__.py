"""Predictors: what will this group cost?

A predictor is two methods. `predict` is asked when a group is submitted, `observe` when it has run.
They are found by name, like policies; `history` is TimeGraph's, `exact` is for studies.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

if TYPE_CHECKING:
    from headway.engine.reading import Table

Signature = Hashable
"""The matrix of methods and data sizes of a group, in any hashable form: equal means equal."""

_REGISTRY: dict[str, type[Predictor]] = {}
P = TypeVar("P", bound="type[Predictor]")


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of the circumstances beside the signature."""

    switched: bool = False
    """The GPU's context was (or is about to be) switched to this task's from another's."""
    exact_ns: int = 0
    """The true cost, where a simulator knows it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted cost, and whether it came from a record of exactly this signature."""

    signature: Signature
    cost_ns: int
    hit: bool


class Predictor(ABC):
    """Predicts the cost of groups; one instance serves all tasks that name it."""

    name: ClassVar[str]

    @classmethod
    def read(cls, table: Table) -> Predictor:
        """Make one with the settings of a `[predict.NAME]` table; by default there are none."""
        return cls()

    @abstractmethod
    def predict(self, signature: Signature, context: Context) -> Prediction:
        """The cost this group will probably have."""

    @abstractmethod
    def observe(self, prediction: Prediction, executed_ns: int, context: Context) -> None:
        """Learn what it really cost."""


def predictor(name: str) -> Callable[[P], P]:
    """Register a predictor class under the name that files use."""

    def register(cls: P) -> P:
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return register


def predictors() -> dict[str, type[Predictor]]:
    """Every registered predictor by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return _REGISTRY
