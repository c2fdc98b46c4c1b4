"""Budgets of live jobs, as the lock server sees them: early releasing and bandwidth inheritance.

The server counts the time for which a job owns units, or, under bandwidth inheritance, the time for
which it is among the c most important pending jobs of its CPU cluster. A job that has used its
budget takes its next period's at once and is due a period later (GPUSync, section 3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.engine.locks.budgets import Activations, Budget, draining
from headway.engine.locks.jobs import Job, LockError
from headway.engine.locks.system import LockSystem

LEVEL = 2**64
"""Levels of priority are so far apart that no deadline reaches the next one."""
LAST = 2**63
"""Jobs without a period come after those with one, within a level."""
LEAST_BUDGET_NS = 100_000
"""Each exhaustion costs the daemon a look at its locks; shorter budgets would be a load."""


@dataclass(slots=True, eq=False)
class Terms:
    """How a job ranks within its level, and what it may use."""

    level: int
    activations: Activations | None = None
    """None: the job has no period."""
    budget: Budget | None = None
    """None: nobody polices the job."""
    exhausted: int = 0


class Policing:
    """The budgets of all jobs of a lock server."""

    def __init__(self, system: LockSystem) -> None:
        budgets = system.budgets
        self._by_period = system.scheduler == "rm"
        self.enforced = budgets.policy in ("early", "bwi")
        """Whether the server acts on exhaustion; otherwise the program is told by a signal."""
        if self.enforced and budgets.drain == "cpu":
            raise LockError(
                "gpusync.budget.drain: found cpu, expected cpu+gpu or bwi: a daemon sees what jobs "
                "use of GPUs, not of CPUs"
            )
        self.virtual = budgets.policy == "bwi"
        """Whether a holder that overran makes room in its queue."""
        self._by_rank = budgets.drain == "bwi"
        self._top = system.clusters.cpus_each
        self._terms: dict[Job, Terms] = {}

    def terms(
        self, level: int, period_ns: int | None, budget_ns: int | None, release_ns: int
    ) -> Terms:
        """The terms of a job that is released now, or later if earlier jobs used its budget up."""
        if period_ns is None:
            if self.enforced and budget_ns is not None:
                raise LockError(
                    "budget: this daemon releases the next job early, for which it needs the "
                    "period, too; expected period= beside budget="
                )
            return Terms(level)
        activations = Activations(release_ns, period_ns, period_ns)
        if not self.enforced or budget_ns is None:
            return Terms(level, activations)
        if budget_ns < LEAST_BUDGET_NS:
            raise LockError(f"budget: found {budget_ns} ns, expected at least {LEAST_BUDGET_NS} ns")
        return Terms(level, activations, Budget(budget_ns))

    def priority(self, terms: Terms) -> int:
        """A job's base priority: its level, then its deadline, or its period under RM."""
        if terms.activations is None:
            return terms.level * LEVEL - LAST
        if self._by_period:
            return terms.level * LEVEL - terms.activations.period_ns
        return terms.level * LEVEL - terms.activations.deadline_ns

    # -- the life of a job -------------------------------------------------------------------

    def begin(self, job: Job, terms: Terms) -> None:
        """The job asks for its token."""
        self._terms[job] = terms

    def end(self, job: Job) -> Terms:
        """The job is over."""
        return self._terms.pop(job)

    def follow(self, pending: Sequence[Job], now_ns: int) -> None:
        """Start and stop budgets, after an event of the locks of a CPU cluster whose jobs are
        `pending`."""
        if self._by_rank:
            paying = set(draining(pending, self._top))
        else:
            paying = {job for job in pending if job.owned and job.claim is None}
        for job in pending:
            budget = self._terms[job].budget
            if budget is not None:
                (budget.start if job in paying else budget.stop)(now_ns)

    def due_ns(self) -> int | None:
        """When the first budget is exhausted if nothing happens."""
        if not self.enforced:
            return None
        dues = (t.budget.due_ns for t in self._terms.values() if t.budget is not None)
        return min((due for due in dues if due is not None), default=None)

    def exhausted(self, now_ns: int) -> list[Job]:
        """Jobs whose budgets are used up now. Each has its next period's budget already."""
        if not self.enforced:
            return []
        found = []
        for job, terms in self._terms.items():
            budget = terms.budget
            if budget is not None and budget.left_ns(now_ns) <= 0:
                assert terms.activations is not None
                budget.refill(now_ns)
                terms.activations.postpone()
                terms.exhausted += 1
                found.append(job)
        return found

    def priority_of(self, job: Job) -> int:
        """The base priority of a job, as its deadline is now."""
        return self.priority(self._terms[job])

    @staticmethod
    def next_release_ns(terms: Terms) -> int:
        """The earliest release of the task's next job: the ones that early releases used up are
        sacrificed. A job that stayed within its budget puts off nobody."""
        if terms.activations is None or not terms.exhausted:
            return 0
        return terms.activations.release_ns + terms.activations.period_ns
