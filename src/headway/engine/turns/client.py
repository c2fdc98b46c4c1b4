"""A client: one program at the gate, as those see it who decide about turns.

Each part of what is known of a client is written to by one module alone, which is named with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.engine.controllers import Controller
from headway.engine.cost_models import NO_FEATURES
from headway.engine.model import Group, Task
from headway.engine.turns.jobs import Jobs
from headway.engine.turns.port import Owner, Port

if TYPE_CHECKING:
    from headway.engine.turns.conduct import Record


@dataclass(slots=True)
class Request:
    """What a client asks for (arbiter.py)."""

    seq: int = 0
    """The number that the program gave its last group."""
    index: int = 0
    """How many groups the engine was given for it."""
    asks: int = 0
    """Of the turns that its port shows as asked for, the last that was seen."""
    awaited: bool = False
    """The program waits for a message that it may go. Else what it has on the GPU waits."""
    groups: int = 0
    """How often it was let go."""


@dataclass(slots=True)
class LeaseState:
    """A grant that lasts until it is taken back (leases.py)."""

    held: bool = False
    """What the client has online is a lease."""
    revoked: bool = False
    """The lease was taken back, and the program may still be using the GPU."""
    revoked_ns: int | None = None
    since_ns: int = 0
    review_ns: int | None = None
    """When the lease has to be looked at again."""
    wanted_ns: int | None = None
    """Since when others wait for its end."""
    passed: int = 0
    """Groups that had passed when it began,"""
    paused: int = 0
    """pauses that there had been,"""
    jobs: int = 0
    """and jobs that had begun."""
    left: int = 0
    """Jobs that had begun when it ended."""
    reported_ns: int = 0
    reported: tuple[int, int, int] = (0, 0, 0)
    """Groups, frames and GPU time under leases that were reported to observers, and when."""


@dataclass(slots=True)
class Account:
    """What a client has on the GPU, and is charged for (online.py)."""

    since_ns: int | None = None
    """When it went online; None: it is not."""
    bound_since_ns: int | None = None
    """Since when others wait for what it has there."""
    bound_ns: int | None = None
    """When it loses the GPU, while others wait for it."""
    booked_ns: int = 0
    """Until when its turn is charged for: when it began, then ends of its reserve's periods."""
    used_ns: int = 0
    """GPU time that the program had said it used before what is charged now."""
    overdue: int = 0
    """How often it kept the GPU too long."""


@dataclass(slots=True)
class SignsOfLife:
    """What was last seen to change in what a program says (ends.py)."""

    seen: tuple[int | bytes, ...] = ()
    ns: int = 0


@dataclass(slots=True)
class Held:
    """When a client's pieces do not begin though it has a lease (hold_back.py)."""

    until_ns: int = 0
    spared_ns: int = 0
    """Until when they are not held back again."""


@dataclass(slots=True)
class Company:
    """Who is on the GPU beside the client, and how many it stands (corunning.py)."""

    controller: Controller
    until_ns: int | None = -1
    """When it last had others beside it; None: it has."""
    lost_ns: int = -1
    """When it last lost its turn to others."""
    settled_ns: int = -1
    """Since when others have what they have beside the client's jobs."""
    side_by_side: bool = False
    """The hardware runs its work beside that of others, as under MPS, not in time slices."""
    in_space: bool = False
    """Less important programs are confined to shares of the multiprocessors, so they need not stop
    as well."""


class Client:
    """One program's way onto the GPU. Until it has said who it is it has no task."""

    def __init__(self, process: int, now_ns: int, controller: Controller | None = None) -> None:
        self.process = process
        """Clients of one process are not in each other's way."""
        self.task: Task | None = None
        self.port: Port | None = None
        self.group: Group | None = None
        """What it waits with, or what is online for it."""
        self.turns = False
        """A grant is a lease to it, and it says when it is done with that."""
        self.serves = False
        """Others wait for what it does, so it must not keep the GPU while it has nothing to do."""
        self.deadline_ns: int | None = None
        """How long a job may take."""
        self.slowdown: float | None = None
        """By which part of what a job takes alone it may take longer; None: as the daemon's default
        has it."""
        self.request = Request()
        self.lease = LeaseState()
        self.account = Account()
        self.signs = SignsOfLife(ns=now_ns)
        self.jobs = Jobs()
        self.held = Held()
        self.company = Company(controller or Controller())
        self.record: Record | None = None
        """How its process behaves (conduct.py)."""

    def features(self) -> Mapping[str, int]:
        """What is known of the group that it asks for, beside its hash."""
        return NO_FEATURES

    @property
    def user(self) -> Hashable:
        """Whose process it is of."""
        return None

    @property
    def identity(self) -> Hashable:
        """Its process, told from another that gets the same number."""
        return self.process

    @property
    def owner(self) -> Owner:
        """Whose its groups are: equal signatures of one owner mean the same work."""
        return (self.process,)

    @property
    def leased(self) -> bool:
        """What it has online is a lease: everything it does until that is taken back."""
        return self.lease.held

    @property
    def revoked(self) -> bool:
        """Its lease was taken back, and it may still be using the GPU."""
        return self.lease.revoked

    @property
    def goes_on(self) -> bool:
        """It has a lease that was not taken back."""
        return self.lease.held and not self.lease.revoked
