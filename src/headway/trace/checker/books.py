"""The checker's own books: what the events said so far, apart from anything the engine keeps.

They hold what is alive now, never the past, so they do not grow with the length of a run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class GroupBook:
    """A group from its submission to its completion."""

    task: TaskBook
    index: int
    submitted_ns: int
    predicted_ns: int = 0
    dispatched_ns: int = 0
    corun: bool = False
    """It went beside others, so it may be done before they are."""
    charged_ns: int = 0
    """What was paid for it while it goes on."""
    reserve: ReserveBook | None = None
    """The reserve that let it through; its task may have another one by the time it completes."""

    def __str__(self) -> str:
        return f"{self.task.name}#{self.index}"


@dataclass(eq=False, slots=True)
class RequestBook:
    """A client's pending request to a server."""

    number: int
    client: TaskBook
    server: TaskBook
    held_ns: int = 0
    """What the server holds of the client's budget through it, as it was lent."""


@dataclass(eq=False, slots=True)
class TaskBook:
    """A task as the events describe it."""

    name: str
    order: int
    policy: str
    rank: int
    base_rank: int
    promises: frozenset[str] = frozenset()
    """What its policy promises, by the names of the policy's attributes."""
    gone: bool = False
    gpu: int | None = None
    """The only GPU that its work goes to."""
    holdoff_ns: int = 0
    patience_ns: int = 0
    reserve: ReserveBook | None = None
    joined_ns: int = 0
    """When it was given that reserve, or none."""
    debt_ns: int = 0
    """Debt of a reserve of its own that it left; the next one takes it over."""
    waiting: GroupBook | None = None
    last_index: int | None = None
    asking: dict[int, RequestBook] = field(default_factory=dict)
    serving: dict[int, RequestBook] = field(default_factory=dict)
    pix: bool | None = None
    """Whether its rank follows its clients'. Events do not say; None until it has shown."""
    rix: bool | None = None
    """Whether its clients lend it their budgets. None until it has shown."""
    stuck_since_ns: int | None = None
    """Since when it has waited for a GPU that it could have had."""
    stuck_told: bool = False
    parties: tuple[str, ...] = ()
    """With whom it stands in the queue: its user's tasks, its process's."""

    def uses(self, gpu: GpuBook) -> bool:
        """Whether its work may go to this GPU."""
        return self.gpu is None or self.gpu == gpu.index

    @property
    def is_ready(self) -> bool:
        """Whether a group waits that the task's reserve, if there is one, lets through."""
        if self.waiting is None:
            return False
        return self.reserve is None or self.reserve.lets_through(self.waiting)


@dataclass(eq=False, slots=True)
class GpuBook:
    """One GPU and the groups that are online on it, the executing one first."""

    index: int
    online: deque[GroupBook] = field(default_factory=deque)
    free_ns: int = 0
    """When its last execution ended."""
    last: TaskBook | None = None
    """Whose group went online last."""


@dataclass(eq=False, slots=True)
class ReserveBook:
    """A reserve: its numbers, its budget, and where it stands between its boundaries.

    Boundary k is the instant `anchor_ns + k * period_ns`; the counters below are such k.
    """

    name: str
    kind: str
    capacity_ns: int
    period_ns: int
    budget_ns: int
    anchor_ns: int
    shared: bool
    members: set[TaskBook] = field(default_factory=set)
    gained_ns: int = 0
    """When its budget last grew."""
    lent: list[RequestBook] = field(default_factory=list)
    """Requests through which servers hold this reserve's budget, in the order of lending."""
    inherited: set[RequestBook] = field(default_factory=set)
    """Requests through which this reserve holds the budget of others."""
    passed: int = 0
    """Boundaries up to here are dealt with: replenished, or nothing would have changed."""
    replenished: int = 0
    """The boundary of the last replenishment that the stream told of."""

    begun: int = 0
    """Periods up to here count in `ahead_ns`."""
    ahead_ns: int = 0
    """By how much the charges exceed C per period begun, on the worst stretch from a boundary."""
    longest_ns: int = 0
    """The longest execution charged."""
    most_online: int = 1
    """The most groups that were let through and not yet charged at one time."""
    saved_ns: int = 0
    """The most that a waiting group's cost exceeded the capacity."""

    def __post_init__(self) -> None:
        self.ahead_ns = -self.capacity_ns

    def lets_through(self, group: GroupBook) -> bool:
        """PE looks at the budget alone, AE at what the group will probably cost."""
        if self.kind == "pe":
            return self.budget_ns > 0
        return self.budget_ns >= group.predicted_ns

    @property
    def inherited_ns(self) -> int:
        return sum(request.held_ns for request in self.inherited)

    @property
    def wanted_ns(self) -> int:
        """The largest cost predicted for a group that waits; PE predicts none."""
        if self.kind == "pe":
            return 0
        waiting = (task.waiting for task in self.members)
        return max((group.predicted_ns for group in waiting if group is not None), default=0)

    def to_lend_ns(self, client: TaskBook) -> int:
        """What a request of this member lends: all there is, or its part of what several share,
        which leaves the others what they wait with."""
        lending = {request.client for request in self.lent}
        if self.shared and client in lending:
            return 0
        others = [task for task in self.members if task is not client and not task.gone]
        sharers = 1 + len([task for task in others if task not in lending])
        if sharers == 1:
            return max(self.budget_ns, 0)
        waiting = [] if self.kind == "pe" else [task.waiting for task in others]
        wanted_ns = max((group.predicted_ns for group in waiting if group is not None), default=0)
        return max(0, min(self.budget_ns // sharers, self.budget_ns - wanted_ns))

    @property
    def full_ns(self) -> int:
        """What replenishment fills up to: C with what is held of others, or x if that is more."""
        return max(self.capacity_ns + self.inherited_ns, self.wanted_ns)

    def budget_after_ns(self, periods: int) -> int:
        """The budget after a replenishment of so many periods."""
        return min(self.full_ns, self.budget_ns + periods * self.capacity_ns)

    @property
    def would_change(self) -> bool:
        """Whether a replenishment now would change something: this budget, or a server's."""
        if any(request.held_ns for request in self.lent):
            return True
        return self.budget_after_ns(1) != self.budget_ns

    @property
    def due_ns(self) -> int:
        """The first boundary that is not dealt with."""
        return self.anchor_ns + (self.passed + 1) * self.period_ns

    def boundary(self, ns: int) -> int:
        """The last boundary up to and including an instant."""
        return (ns - self.anchor_ns) // self.period_ns

    def pass_boundaries(self, until_ns: int) -> None:
        """Put the boundaries up to an instant behind us where they need no replenishment.

        A reserve that is full needs none, however many periods pass. One without members stands
        still: a pool that went into debt and was left finds it unchanged when somebody joins.
        """
        last = self.boundary(until_ns)
        if last > self.passed and not (self.members and self.would_change):
            self.passed = last

    def begin_periods(self, last: int) -> None:
        """Count the periods up to boundary `last` as begun.

        A stretch may start at every boundary, with C and with what is held of others at that time;
        only the worst of all stretches so far can break the rule first, so only it is kept.
        """
        if last > self.begun:
            gained_ns = (last - self.begun) * self.capacity_ns
            fresh_ns = -self.inherited_ns - self.capacity_ns
            self.ahead_ns = max(self.ahead_ns - gained_ns, fresh_ns)
            self.begun = last

    def note_wanted(self) -> None:
        """Who waits changed, or the capacity: what a group may save up for beyond it."""
        self.saved_ns = max(self.saved_ns, self.wanted_ns - self.capacity_ns)

    @property
    def allowed_ahead_ns(self) -> int:
        return self.saved_ns + self.longest_ns * self.most_online


class Books:
    """Everything that is alive, by the names the events use."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskBook] = {}
        self.waiting: dict[TaskBook, GroupBook] = {}
        self.gpus: dict[int, GpuBook] = {0: GpuBook(0)}
        """A stream does not say how many GPUs there are: one, and those that are used."""
        self.reserves: dict[str, ReserveBook] = {}
        self.requests: dict[int, RequestBook] = {}
        self.last_ns: dict[str, int] = {}
        """When a group of each party was last done."""
        self._order = 0

    def add_task(self, name: str, policy: str, rank: int) -> TaskBook:
        task = TaskBook(name, self._order, policy, rank, rank)
        self._order += 1
        self.tasks[name] = task
        return task

    def find_online(self, task: str, index: int) -> tuple[GpuBook, GroupBook] | None:
        """A group that is on a GPU now."""
        for gpu in self.gpus.values():
            for group in gpu.online:
                if group.task.name == task and group.index == index:
                    return gpu, group
        return None

    def gpu(self, index: int) -> GpuBook:
        if index not in self.gpus:
            self.gpus[index] = GpuBook(index)
        return self.gpus[index]
