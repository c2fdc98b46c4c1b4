"""What an analysis says of a task, and of a task set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HARD, SOFT, NO = "yes", "bounded", "no"
"""Every job meets its deadline; jobs are late by a bounded time; no bound is known."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One task: its response time in the worst case, and what that consists of."""

    task: str
    deadline_ns: int
    bound_ns: int | None
    """None: the analysis gives no bound."""
    parts: Mapping[str, int]
    """What the bound consists of, in nanoseconds: own work, waiting, interference."""
    why: str = ""
    """Why there is no bound."""

    @property
    def slack_ns(self) -> int | None:
        """How much earlier than the deadline every job ends; negative: how late it may be."""
        return None if self.bound_ns is None else self.deadline_ns - self.bound_ns

    @property
    def schedulable(self) -> str:
        """HARD, SOFT or NO."""
        if self.bound_ns is None:
            return NO
        return HARD if self.bound_ns <= self.deadline_ns else SOFT

    @property
    def dominates(self) -> str:
        """The largest part that is not the task's own work."""
        others = {name: part for name, part in self.parts.items() if name != OWN and part > 0}
        return max(others, key=lambda name: others[name], default="")


OWN = "own"


def overall(verdicts: list[Verdict]) -> str:
    """The worst of all tasks."""
    found = {verdict.schedulable for verdict in verdicts}
    return NO if NO in found else SOFT if SOFT in found else HARD
