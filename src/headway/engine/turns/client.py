"""A client: one program at the gate, as those see it who decide about turns."""

from __future__ import annotations

from headway.engine.model import Group, Task
from headway.engine.turns.arrivals import PeriodEstimator
from headway.engine.turns.port import Owner, Port


class Client:
    """One program's way onto the GPU. Until it has said who it is it has no task."""

    def __init__(self, process: int, now_ns: int) -> None:
        self.process = process
        """Clients of one process are not in each other's way."""
        self.task: Task | None = None
        self.port: Port | None = None
        self.seq = 0
        """The group it submitted last."""
        self.index = 0
        self.group: Group | None = None
        """What it waits with, or what is online for it."""
        self.online_since_ns: int | None = None
        self.bound_ns: int | None = None
        """When it loses the GPU, while others wait for it."""
        self.since_lease_ns = 0
        self.keep_ns: int | None = None
        """While others wait: when the lease has to be looked at again."""
        self.leased = False
        """The online group is a lease: everything it does until it is taken back."""
        self.revoked = False
        """The lease was taken back, and it is still busy."""
        self.revoked_ns: int | None = None
        self.asks = self.jobs = 0
        """What of its port the arbiter has seen: turns asked for, and jobs done."""
        self.asked = False
        """It waits for a message that it may go; else what it has on the GPU waits."""
        self.booked_ns = 0
        """Until when its turn is charged for: when it began, then ends of its reserve's periods."""
        self.used_before_ns = self.passed_before = self.jobs_before = 0
        """What it said when its lease began."""
        self.turns = False
        """A grant is a lease, and it says when it is done with it (ends.py)."""
        self.beside = False
        """Its work may run side by side with that of others, as under MPS, not in time slices."""
        self.job: int | None = None
        """Of one who takes turns: the job that began last, as a count of those before it; None: it
        has rested since."""
        self.period: PeriodEstimator | None = None
        self.held_until_ns = self.spared_ns = 0
        """Until when its pieces do not begin, and until when they are not held back again."""
        self.wanted_ns: int | None = None
        """Since when others wait for its turn to be over."""
        self.progress: tuple[int | bytes, ...] = ()
        self.progress_ns = now_ns
        self.deadline_ns: int | None = None
        """Of a job, from its first work on."""
        self.told_ns = 0
        self.told = (0, 0, 0)
        """Groups, frames and GPU time under a lease that observers have heard of, and when."""
        self.serves = False
        """Others wait for what it does, so it must not keep the GPU while it has nothing to do."""
        self.groups = 0
        self.overdue = 0
        """How often it kept the GPU too long."""

    @property
    def owner(self) -> Owner:
        """Whose its groups are: equal signatures of one owner mean the same work."""
        return (self.process,)
