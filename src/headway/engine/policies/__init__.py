"""Scheduling policies: one file each, found by the decorator (docs/write-a-policy.md).

A policy orders the ready groups (`key`), says whether one may go onto a GPU now (`admits`), and
hears what becomes of them (`submitted`, `started`, `finished`, `removed`). The engine asks about
the groups in the order of `key`, then submission time, then the task's order; the first that is
admitted goes, and the question is put again until nobody is admitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from headway.engine.registry import Registry

if TYPE_CHECKING:
    from headway.engine.core import Engine
    from headway.engine.model import Gpu, Group, Task
    from headway.engine.reading import Table

DEFAULT_PATIENCE_NS = 50_000_000


class Policy:
    """Decides when a task's groups go online. One instance serves every task that names it."""

    name: ClassVar[str]
    holdoff_ns: int = 0
    """How long an idle GPU is kept for the task of this policy that used it last."""
    patience_ns: int = 0
    """No GPU is kept for its tasks once another task's group has been ready for so long."""
    needs_idle: bool = True
    """A promise: `admits` is never true while the GPU's online list holds something."""
    takes_idle: bool = True
    """A promise: `admits` is always true for the first ready group when the GPU is idle."""
    passes_equals: bool = False
    """Whether a task may go on past ready tasks that are as important as it is."""
    keeps_rank: bool = False
    """A promise: its groups are asked in the order of rank, and none goes onto a busy GPU while a
    more important one is ready. Users to whom a spec gives no other right may choose it."""
    follows_own: bool = False
    """A promise: onto a busy GPU a group goes only behind one of its own task."""
    shares_gpu: bool = False
    """Whether its groups may be on a GPU at the same time as others, where the device runs several:
    they may be done before those that went first."""
    at_once: bool = False
    """Whether a group that `admits` would let go may go with the asking, before the answer."""
    decides: bool = True
    """Whether a dispatch costs a scheduling decision (a driver without a manager makes none)."""
    orders: ClassVar[bool] = False
    """Whether `key` is another than the rank; the engine sees that."""
    listens: ClassVar[bool] = False
    """Whether it wants to hear what becomes of groups; the engine sees that."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.orders = cls.key is not Policy.key
        cls.listens = any(
            getattr(cls, hook) is not getattr(Policy, hook)
            for hook in ("submitted", "started", "finished", "removed")
        )
        # Promises are about `admits`: who has an own one makes own promises.
        for promise in ("needs_idle", "takes_idle"):
            if "admits" in vars(cls) and promise not in vars(cls):
                setattr(cls, promise, False)

    @classmethod
    def promises(cls) -> tuple[str, ...]:
        """What the checker may hold its tasks to, by the names of the attributes."""
        return tuple(name for name in PROMISES if getattr(cls, name))

    @classmethod
    def read(cls, table: Table) -> Policy:
        """Make one with the settings of a `[policy.NAME]` table; by default there are none."""
        return cls()

    @classmethod
    def read_task(cls, table: Table) -> Any:
        """What one task says of itself beside the policy's name, as in `wfq:weight=3`; it is kept
        at `task.parameters`. By default there is nothing to say."""
        return None

    def admits(self, group: Group, gpu: Gpu, engine: Engine) -> bool:
        """May this ready group go online on this GPU now (`engine.now_ns`)? By default: if nothing
        else is there."""
        return not gpu.online

    def key(self, task: Task) -> int:
        """Place of the task among the ready ones; smaller is asked first. It is asked whenever a
        group becomes ready, when the task's rank or parameters change, and after one of the task's
        groups has finished; between those the place stays."""
        return task.rank

    def quantum_ns(self, task: Task, usual_ns: int, engine: Engine) -> int:
        """For how long a program that takes turns (CUDA, OpenCL) keeps its turn while others as
        important wait."""
        return usual_ns

    def wake_ns(self, now_ns: int) -> int | None:
        """When to ask again though no event happened, while one of its groups is ready."""
        return None

    def submitted(self, group: Group, engine: Engine) -> None:
        """A group was submitted. It may yet be withdrawn, which no hook tells."""

    def started(self, group: Group, engine: Engine) -> None:
        """A group went online: it executes now, or after what is online on its GPU."""

    def finished(self, group: Group, engine: Engine) -> None:
        """A group is done: it executed from `group.started_ns` to `group.finished_ns`."""

    def removed(self, task: Task, engine: Engine) -> None:
        """A task is gone, or has another policy now; nothing more is said of it or its groups."""


PROMISES = ("needs_idle", "takes_idle", "keeps_rank", "follows_own", "shares_gpu", "decides")
"""Attributes of a policy that say how its tasks may be ordered."""


class HoldOff(Policy):
    """A policy whose tasks may have an idle GPU kept for them for a moment (engine/holdoff.py)."""

    def __init__(self, holdoff_ns: int = 0, patience_ns: int = DEFAULT_PATIENCE_NS) -> None:
        self.holdoff_ns = holdoff_ns
        self.patience_ns = patience_ns

    @classmethod
    def read(cls, table: Table) -> HoldOff:
        return cls(table.duration("holdoff", 0), table.duration("patience", DEFAULT_PATIENCE_NS))


policy = Registry[type[Policy]]("policy", __name__, "name")
"""The decorator that makes a policy class known by the name that scenario and spec files use."""


def policies() -> dict[str, type[Policy]]:
    """Every known policy by name."""
    return policy.all()
