"""Reserves: capacity C every period T, with budget e (TimeGraph §5).

One formula replenishes both enforcement policies: e = min(max(C, x), e + C), where x is the
predicted cost of the group that waits (0 under PE). Under PE a group is let through if e > 0, under
AE if e >= x. A budget below zero is debt: the next replenishments pay it first.

A server that inherits (PIX/RIX §5) holds what its clients lent on top of its own capacity, so its
cap is C plus what it holds; `ledger.py` moves the budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headway.engine.inheritance import lent_ns
from headway.engine.units import DurationError, parse_duration

if TYPE_CHECKING:
    from headway.engine.inheritance import Request
    from headway.engine.model import Group, Task

KINDS: Final = ("pe", "ae")
BACKGROUND: Final = "background"
POOL_MARK: Final = "@"
"""What the names of shared reserves begin with, so that no task's own can have the same."""


@dataclass(frozen=True, slots=True)
class ReserveSpec:
    """What a person asks for."""

    kind: str
    capacity_ns: int
    period_ns: int
    shared: str | None = None
    """Name of the pool that several tasks share (TimeGraph §5.1, Shared reservation)."""
    predict: str = "exact"

    @property
    def share(self) -> Fraction:
        """The fraction of the GPU it stands for."""
        return Fraction(self.capacity_ns, self.period_ns)


DEFAULT_BACKGROUND = ReserveSpec("pe", 2_500_000, 25_000_000, shared=BACKGROUND)
"""A tenth of the GPU, the share TimeGraph's evaluation leaves to the unimportant (§6.1)."""


class Reserve:
    """A reserve in use, by one task or by the members of a pool."""

    def __init__(self, name: str, spec: ReserveSpec, now_ns: int) -> None:
        self.name = name
        self.spec = spec
        self.shared = spec.shared is not None
        self.budget_ns = spec.capacity_ns
        self.anchor_ns = now_ns
        """Replenishments come at this instant plus whole periods."""
        self.next_ns: int | None = None
        """When the next one is due; None while it would change nothing (full and idle)."""
        self.replenished_ns = now_ns
        """When the last one was due."""
        self.gpu: int | None = None
        """The GPU that admission promised it a part of; None while nobody counts."""
        self.members: list[Task] = []
        self.waiting: dict[Task, Group] = {}
        """Groups that are submitted and not yet dispatched, by the task that waits."""
        self.lent: list[Request] = []
        """Requests through which a server holds this reserve's budget."""
        self.inherited: dict[Request, int] = {}
        """What a server that owns this reserve holds of its clients' budgets, as it was lent."""

    @property
    def capacity_ns(self) -> int:
        return self.spec.capacity_ns

    @property
    def period_ns(self) -> int:
        return self.spec.period_ns

    @property
    def cap_ns(self) -> int:
        """What replenishment fills up to when nothing larger waits."""
        return self.spec.capacity_ns + sum(self.inherited.values())

    def lets_through(self, group: Group) -> bool:
        """Whether the budget allows this group now."""
        if self.spec.kind == "pe":
            return self.budget_ns > 0
        return self.budget_ns >= group.predicted_ns

    def to_lend_ns(self, client: Task) -> int:
        """What a request of this member lends to a server now (RIX rule 1)."""
        lending = {request.client for request in self.lent}
        if self.shared and client in lending:
            return 0
        others = [task for task in self.members if task.alive and task is not client]
        wanted_ns = 0
        if self.spec.kind == "ae":
            waiting = (g.predicted_ns for task, g in self.waiting.items() if task is not client)
            wanted_ns = max(waiting, default=0)
        return lent_ns(self.budget_ns, 1 + sum(t not in lending for t in others), wanted_ns)

    def replenish(self, periods: int = 1) -> None:
        """Add `periods` periods' worth; more than one where the driver was late."""
        wanted_ns = 0
        if self.spec.kind == "ae":
            wanted_ns = max((g.predicted_ns for g in self.waiting.values()), default=0)
        full_ns = max(self.cap_ns, wanted_ns)
        self.budget_ns = min(full_ns, self.budget_ns + periods * self.spec.capacity_ns)

    @property
    def is_settled(self) -> bool:
        """Whether a replenishment would change nothing."""
        return (
            self.budget_ns == self.spec.capacity_ns
            and not self.waiting
            and not self.lent
            and not self.inherited
        )

    def change(self, spec: ReserveSpec, now_ns: int) -> None:
        """Take new numbers while in use. Debt stays, and nothing is gained before a replenishment:
        otherwise a program could refill its budget by asking for a change."""
        if spec.period_ns != self.spec.period_ns:
            self.anchor_ns = now_ns
            self.next_ns = None
        self.spec = spec
        self.budget_ns = min(self.budget_ns, self.cap_ns)

    def __repr__(self) -> str:
        return f"<reserve {self.name}: {self.budget_ns} of {self.capacity_ns} ns>"


def parse_reserve(text: object, shared: str | None = None) -> ReserveSpec:
    """Read C/T or C/T:pe or C/T:ae; ValueError says what was expected."""
    numbers, _, kind = str(text).partition(":")
    capacity, slash, period = numbers.partition("/")
    kind = kind or "pe"
    expected = f'a reserve such as "5ms/20ms" or "5ms/20ms:ae", found {text!r}'
    if not slash or kind not in KINDS:
        raise ValueError(f"expected {expected}")
    try:
        capacity_ns, period_ns = parse_duration(capacity), parse_duration(period)
    except DurationError as error:
        raise ValueError(f"expected {expected} ({error})") from None
    if not 0 < capacity_ns <= period_ns:
        raise ValueError(f"expected a capacity above zero and at most the period, found {text!r}")
    if shared == BACKGROUND:
        raise ValueError(f"the pool {BACKGROUND!r} belongs to Headway: expected another name")
    return ReserveSpec(kind, capacity_ns, period_ns, shared)
