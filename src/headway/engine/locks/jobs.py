"""A job as the locks see it: its priorities, its place at the token allocator, its units."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headway.engine.locks.unit_locks import Claim, Unit

Base = tuple[int, int]
"""A base priority: the number a scheduler gives (larger is more important), then minus the order
of the task, so that no two jobs are equal."""


class LockError(ValueError):
    """A call that the rules forbid. The state of every lock is what it was before the call."""


class Place(IntEnum):
    """Where a job stands at its token allocator."""

    NOWHERE = 0
    QUEUE = 1
    """In a FIFO queue: it holds the queue's token if it is the first, else it waits."""
    OVERFLOW = 2
    """In the priority queue, which is used only while the FIFO queues are full."""
    DONOR = 3
    """In no queue: it lends its priority to a job in one, and takes that job's place."""


class Job:
    """One activation of a task, from the first lock it asks for to the last it gives back."""

    __slots__ = (
        "base", "claim", "cost_ns", "donee", "donor", "in_operation", "name", "owned", "place",
        "task", "token", "virtual",
    )  # fmt: skip

    def __init__(self, name: str | int, priority: int, order: int, task: int | None = None) -> None:
        self.name = name
        self.task = order if task is None else task
        """By which predictions and the home device are kept; one task has many jobs."""
        self.base: Base = (priority, -order)
        """Changed only through the allocator once the job has asked for a token."""
        self.place = Place.NOWHERE
        self.token = -1
        """The FIFO queue in which the job stands, which is also the token it holds or will."""
        self.virtual = False
        """Whether the job holds a token that was virtually unlocked."""
        self.donor: Job | None = None
        self.donee: Job | None = None
        self.cost_ns = 0
        """The predicted cost with which the job entered its queue."""
        self.owned: list[Unit] = []
        self.claim: Claim | None = None
        """The units for which the job waits."""
        self.in_operation = False
        """Whether the job is suspended for an operation on units that it owns."""

    @property
    def priority(self) -> int:
        return self.base[0]

    def __repr__(self) -> str:
        return f"<job {self.name}: {self.base[0]}>"


class Grant(NamedTuple):
    """A job holds a token from this instant."""

    token: int
    job: Job
