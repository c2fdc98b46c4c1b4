"""Cost models predict how long a group will execute, and learn from how long groups executed.

A cost model is one class in one file, known by the decorator, or loaded with `--load FILE`:

    @cost_model("pixels")
    class Pixels(CostModel):
        def predict(self, work, conditions): ...        # Prediction(expected_ns, bound_ns)
        def observe(self, work, conditions, executed_ns): ...

The engine asks `predict` when a group is submitted and tells `observe` when the group is done, for
every task: an AE reserve goes by the expected cost (TimeGraph §5.1), everybody else may look.
`history` is TimeGraph's (§5.3), `recent` is the interposer's, `exact` is for studies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

from headway.engine.registry import Registry
from headway.engine.shares import WHOLE_PERMILLE

if TYPE_CHECKING:
    from headway.engine.reading import Table

Signature = Hashable
"""Identifies a kind of work, such as a hash of methods and data sizes: equal means the same."""

NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class Work(Protocol):
    """The work whose cost is in question; a `Group` is one."""

    @property
    def signature(self) -> Signature:
        """Equal signatures mean the same kind of work."""

    @property
    def features(self) -> Mapping[str, int]:
        """Named amounts, such as pixels or bytes, that the cost may depend on."""

    @property
    def exact_ns(self) -> int:
        """The true cost, where a simulator knows it; else 0."""


class Conditions(NamedTuple):
    """Where and how the work executes."""

    device: int = 0
    """The index of the GPU."""
    share_permille: int = WHOLE_PERMILLE
    """How many thousandths of the GPU's multiprocessors the work may use."""
    switched: bool = False
    """The GPU switches its context from another task's to this one's just before."""


class Prediction(NamedTuple):
    """How long the work will execute."""

    expected_ns: int
    """The probable cost; 0 where nothing is known."""
    bound_ns: int
    """The cost that the work will hardly exceed."""
    known: bool = True
    """Whether work of exactly this signature was observed before."""


class CostModel(ABC):
    """Predicts the costs of groups."""

    name: ClassVar[str]
    learns: ClassVar[bool] = True
    """False promises that `predict` returns `work.exact_ns` and `observe` does nothing."""

    @classmethod
    def read(cls, table: Table) -> CostModel:
        """Make a model with the settings of a `[predict.NAME]` table; by default there are none."""
        return cls()

    def for_task(self) -> CostModel:
        """The model that another task uses: this one, if what one task does teaches about all."""
        return self

    @abstractmethod
    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        """Say what the work will cost under these conditions."""

    @abstractmethod
    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        """Learn what the work did cost under these conditions."""


cost_model = Registry[type[CostModel]]("cost model", __name__, "name")
"""The decorator that makes a cost model known by the name that files use (`predict = NAME`)."""


def cost_models() -> dict[str, type[CostModel]]:
    """Every known cost model by name."""
    return cost_model.all()
