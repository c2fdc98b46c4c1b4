"""Predictors: what will this group cost?

A predictor is two methods. `predict` is asked when a group is submitted, `observe` when it has run.
They are found by name, like policies; `history` is TimeGraph's, `exact` is for studies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headway.engine.registry import Registry

if TYPE_CHECKING:
    from headway.engine.reading import Table

Signature = Hashable
"""The matrix of methods and data sizes of a group, in any hashable form: equal means equal."""


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


predictor = Registry[type[Predictor]]("predictor", __name__, "name")
"""The decorator that makes a predictor class known by the name that files use."""


def predictors() -> dict[str, type[Predictor]]:
    """Every known predictor by name."""
    return predictor.all()
