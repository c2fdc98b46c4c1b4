"""Budgets: what a job may use, what happens when it has used it, and which job comes next.

One budget covers CPU time and the time of the job's operations on devices; time counts once where
both overlap. GPU operations cannot be stopped, so an overrun is answered afterwards: by a signal to
the job, or by taking the next period's budget early and postponing the deadline with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.engine.locks.jobs import Job
from headway.engine.locks.settings import Mistake

POLICIES = ("none", "signal", "early", "bwi")
DRAINS = ("cpu", "cpu+gpu", "bwi")


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """How the budgets of a task set are policed."""

    policy: str = "none"
    """"signal": a job that overran is told once a refill. "early": as well, its next period's
    budget and deadline are its own at once. "bwi": as "early", with bandwidth inheritance."""
    drain: str = "cpu+gpu"
    """When a budget drains. "cpu": while the job is on a CPU. "cpu+gpu": also while it is suspended
    for its own operation on a device. "bwi": while its base priority is among the c strongest
    pending in its CPU cluster, in any state."""
    catch_up: bool = False
    """After an overrun, whether sacrificed jobs start at once until the backlog is worked off."""

    def mistakes(self) -> Iterator[Mistake]:
        """What is wrong with the settings, by the key that files use."""
        if self.policy not in POLICIES:
            yield "policy", self.policy, " or ".join(POLICIES)
        if self.drain not in DRAINS:
            yield "drain", self.drain, " or ".join(DRAINS)
        elif self.policy == "bwi" and self.drain != "bwi":
            yield "drain", self.drain, "bwi, which bandwidth inheritance needs"
        if self.catch_up and self.policy not in ("early", "bwi"):
            yield "catch_up", "catch_up", "the policy early or bwi with it"


class Budget:
    """The budget of one task's current job. It drains between `start` and `stop`."""

    __slots__ = ("_left_ns", "_since_ns", "capacity_ns")

    def __init__(self, capacity_ns: int) -> None:
        if capacity_ns < 1:
            raise ValueError(f"capacity: found {capacity_ns} ns, expected more than zero")
        self.capacity_ns = capacity_ns
        self._left_ns = capacity_ns
        self._since_ns: int | None = None

    def left_ns(self, now_ns: int) -> int:
        """What is left; never below zero if `refill` is called when the budget is due."""
        return self._left_ns - (0 if self._since_ns is None else now_ns - self._since_ns)

    @property
    def drains(self) -> bool:
        return self._since_ns is not None

    @property
    def due_ns(self) -> int | None:
        """When the budget is exhausted if nothing stops it."""
        return None if self._since_ns is None else self._since_ns + self._left_ns

    def start(self, now_ns: int) -> None:
        """The job begins to use what the budget covers."""
        if self._since_ns is None:
            self._since_ns = now_ns

    def stop(self, now_ns: int) -> None:
        """The job no longer uses it."""
        if self._since_ns is not None:
            self._left_ns -= now_ns - self._since_ns
            self._since_ns = None

    def refill(self, now_ns: int) -> None:
        """Full again: at a release, or at an exhaustion under early releasing. What was left is
        discarded; a budget that drains goes on draining."""
        self._left_ns = self.capacity_ns
        if self._since_ns is not None:
            self._since_ns = now_ns


class Activations:
    """Release and deadline of a task's current job."""

    __slots__ = ("backlog", "catch_up", "deadline_ns", "period_ns", "release_ns")

    def __init__(
        self, first_ns: int, period_ns: int, deadline_ns: int, *, catch_up: bool = False
    ) -> None:
        """`deadline_ns` is relative to the release."""
        self.period_ns = period_ns
        self.release_ns = first_ns
        self.deadline_ns = first_ns + deadline_ns
        self.catch_up = catch_up
        self.backlog = 0

    def postpone(self) -> None:
        """The budget was exhausted under early releasing: the next job is sacrificed."""
        self.release_ns += self.period_ns
        self.deadline_ns += self.period_ns
        self.backlog += 1

    def advance(self) -> bool:
        """The job ended; release and deadline are the next one's. True if that one starts at once,
        however far away its release is."""
        self.release_ns += self.period_ns
        self.deadline_ns += self.period_ns
        if self.backlog:
            self.backlog -= 1
        if not self.catch_up:
            self.backlog = 0
        return self.backlog > 0


class OverrunSignal:
    """Tells a job that it overran, at most once a refill, and not in the middle of a lock call, a
    driver call or a migration."""

    __slots__ = ("_held", "_pending", "_raised")

    def __init__(self) -> None:
        self._held = 0
        self._pending = False
        self._raised = False

    @property
    def raised(self) -> bool:
        """Whether this budget's exhaustion was posted."""
        return self._raised

    def post(self) -> bool:
        """The budget is exhausted: whether the job is to be told now."""
        if self._raised:
            return False
        self._raised = True
        self._pending = self._held > 0
        return not self._pending

    def hold(self) -> None:
        """The job enters what must not be interrupted; may be nested."""
        self._held += 1

    def let_go(self) -> bool:
        """The job leaves it: whether it is to be told now."""
        if not self._held:
            raise ValueError("let_go without hold")
        self._held -= 1
        if self._held or not self._pending:
            return False
        self._pending = False
        return True

    def refilled(self) -> None:
        """A new budget: what was not told yet is no longer true."""
        self._raised = self._pending = False


def draining(pending: Iterable[Job], cpus: int) -> list[Job]:
    """Whose budgets drain under bandwidth inheritance: the jobs of the c strongest base priorities
    that are pending in the CPU cluster, also those that are suspended or blocked."""
    return sorted(pending, key=lambda job: job.base, reverse=True)[:cpus]
