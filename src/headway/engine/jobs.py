"""Jobs: what a program does from its first GPU work after a rest until it rests again."""

from __future__ import annotations

from dataclasses import dataclass

from headway.engine.shares import Sharer


@dataclass(frozen=True, slots=True)
class Job:
    """One activation of a task that is over. Everybody who counts jobs or misses counts these."""

    task: Sharer
    number: int
    """Which of the task's jobs it is. Numbers that are left out were not seen by themselves."""
    begun_ns: int
    """When the program first wanted the GPU for it."""
    ended_ns: int
    """When the program had seen that all of its work was done."""
    deadline_ns: int | None = None
    """How long it may take."""
    waited_ns: int = 0
    """For how long the program waited for the GPU, or at its gate."""
    slowdown: float | None = None
    """How much longer it took than it would have alone, as a part of that; None: nobody knows."""
    missed: bool = False
    """It took longer than its deadline, or, without one, was slowed down more than it may be."""

    @property
    def response_ns(self) -> int:
        """How long it took."""
        return self.ended_ns - self.begun_ns
