"""The event stream: what happened, once for the simulator and the live daemon alike.

`Observer` is the fast side: the engine calls the methods an observer overrides, with its own
objects, and skips the others. `Recorder` is an observer that turns the calls into plain records,
which traces store and the checker, the exporter and the plots read. All times are integer ns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from headway.engine.inheritance import Request
    from headway.engine.jobs import Job
    from headway.engine.model import Group, Task
    from headway.engine.parties import Party
    from headway.engine.reserves import Reserve
    from headway.engine.shares import Sharer


class Observer:
    """Override what you want to hear of. Do not keep a group: its owner may use it again."""

    def began(self, gpus: int, now_ns: int) -> None: ...
    def task_added(self, task: Task, now_ns: int) -> None: ...
    def task_removed(self, task: Task, now_ns: int) -> None: ...
    def policy_set(self, task: Task, now_ns: int) -> None: ...
    def ranked(self, task: Task, now_ns: int) -> None: ...
    def stands_with(self, task: Task, party: Party, now_ns: int) -> None: ...
    def reserve_set(self, reserve: Reserve, now_ns: int) -> None: ...
    def joined(self, task: Task, now_ns: int) -> None: ...
    def submitted(self, group: Group, now_ns: int) -> None: ...
    def predicted(self, group: Group, now_ns: int) -> None: ...
    def withdrawn(self, group: Group, now_ns: int) -> None: ...
    def dispatched(self, group: Group, now_ns: int) -> None: ...
    def charged(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None: ...
    def overran(self, task: Task, amount_ns: int, now_ns: int) -> None: ...
    def completed(self, group: Group, now_ns: int) -> None: ...
    def replenished(self, reserve: Reserve, now_ns: int) -> None: ...
    def moved(self, giver: Reserve, taker: Reserve, amount_ns: int, now_ns: int) -> None: ...
    def entered(self, request: Request, now_ns: int) -> None: ...
    def left(self, request: Request, now_ns: int) -> None: ...
    def focused(self, task: Task | None, now_ns: int) -> None: ...
    def shown(self, task: Task, now_ns: int) -> None: ...
    def overdue(self, task: Task, jobs: int, now_ns: int) -> None: ...
    def passed(self, task: Task, groups: int, frames: int, used_ns: int, now_ns: int) -> None: ...
    def measured(self, what: Measured, now_ns: int) -> None: ...
    def job_ended(self, job: Job, now_ns: int) -> None: ...
    def share_set(self, task: Sharer, permille: int, now_ns: int) -> None: ...
    def ended(self, complete: bool, now_ns: int) -> None: ...


HOOKS = tuple(name for name in vars(Observer) if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at an instant."""

    kind: ClassVar[str]
    ns: int


@dataclass(frozen=True, slots=True)
class Began(Event):
    """The first event of a stream: how many GPUs there are."""

    kind = "began"
    gpus: int


@dataclass(frozen=True, slots=True)
class TaskAdded(Event):
    """A task is known from here on."""

    kind = "task_added"
    task: str
    policy: str
    priority: str
    rank: int
    holdoff_ns: int = 0
    patience_ns: int = 0
    gpu: int | None = None
    """The only GPU that its work goes to; None: any."""
    promises: tuple[str, ...] = ()
    """What its policy promises of the order; nothing: as its name says."""


@dataclass(frozen=True, slots=True)
class TaskRemoved(Event):
    """A task is gone; its groups that are online still finish."""

    kind = "task_removed"
    task: str


@dataclass(frozen=True, slots=True)
class PolicySet(Event):
    """A task goes on under another policy."""

    kind = "policy_set"
    task: str
    policy: str
    holdoff_ns: int = 0
    patience_ns: int = 0
    promises: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranked(Event):
    """A task's rank, or its own rank, changed: inheritance, focus, a deadline, a request."""

    kind = "ranked"
    task: str
    rank: int
    base_rank: int


@dataclass(frozen=True, slots=True)
class StandsWith(Event):
    """Among equals a task stands in the queue with the others of a party, a group of which was
    last done at `last_ns`. Of a task with two, its user's is told before its process's."""

    kind = "stands_with"
    task: str
    party: str
    last_ns: int


@dataclass(frozen=True, slots=True)
class ReserveSet(Event):
    """A reserve was made or changed."""

    kind = "reserve_set"
    reserve: str
    policy: str
    capacity_ns: int
    period_ns: int
    budget_ns: int
    anchor_ns: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Joined(Event):
    """A task's groups are charged to this reserve from here on (None: to nobody)."""

    kind = "joined"
    task: str
    reserve: str | None


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """A group waits at the gate."""

    kind = "submitted"
    task: str
    index: int
    predicted_ns: int
    deadline_ns: int | None


@dataclass(frozen=True, slots=True)
class Described(Event):
    """What a cost model knows of the group that was submitted just now: what identifies its kind,
    as text, and its features with their amounts. Groups without features are not described."""

    kind = "described"
    task: str
    index: int
    signature: str
    features: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Predicted(Event):
    """A group that waits is now expected to cost this much: its reserve has become AE."""

    kind = "predicted"
    task: str
    index: int
    predicted_ns: int


@dataclass(frozen=True, slots=True)
class Withdrawn(Event):
    """A group no longer waits, though it did not go online."""

    kind = "withdrawn"
    task: str
    index: int


@dataclass(frozen=True, slots=True)
class Dispatched(Event):
    """A group went online, or a lease: many groups may pass under it before it completes."""

    kind = "dispatched"
    task: str
    index: int
    gpu: int
    leased: bool = False


@dataclass(frozen=True, slots=True)
class Charged(Event):
    """A group goes on, and its reserve paid so much for what it executed until `until_ns`. While a
    run is taken up: it has paid so much already, whoever it was that did."""

    kind = "charged"
    task: str
    index: int
    until_ns: int
    amount_ns: int
    reserve: str | None
    budget_ns: int


@dataclass(frozen=True, slots=True)
class Overran(Event):
    """A group had lost the GPU, and went on for so long beside others: the reserve of its task
    pays. To the others it had completed before."""

    kind = "overran"
    task: str
    amount_ns: int
    reserve: str
    budget_ns: int


@dataclass(frozen=True, slots=True)
class Completed(Event):
    """A group is done; it executed from `started_ns` to `ns`. Its reserve paid for that, less what
    it had paid before (`Charged`)."""

    kind = "completed"
    task: str
    index: int
    gpu: int
    submitted_ns: int
    started_ns: int
    reserve: str | None
    budget_ns: int
    frame: bool
    deadline_ns: int | None
    released_ns: int | None = None
    """Since when the job had been due, if that was before its submission."""
    overhead_ns: int = 0
    """What was charged beside the execution: the decision and the switch of context before it."""


@dataclass(frozen=True, slots=True)
class Replenished(Event):
    """A reserve got its capacity for the period that begins at `due_ns`, and for those before it
    that were missed: a daemon may be late."""

    kind = "replenished"
    reserve: str
    budget_ns: int
    due_ns: int


@dataclass(frozen=True, slots=True)
class Moved(Event):
    """Budget went from one reserve to another (RIX)."""

    kind = "moved"
    giver: str
    taker: str
    amount_ns: int


@dataclass(frozen=True, slots=True)
class Entered(Event):
    """A client's request to a server is pending."""

    kind = "entered"
    request: int
    client: str
    server: str


@dataclass(frozen=True, slots=True)
class Left(Event):
    """A request was answered, or its client is gone."""

    kind = "left"
    request: int
    client: str
    server: str


@dataclass(frozen=True, slots=True)
class Focused(Event):
    """The foreground window belongs to this task now (None: to none of ours). For a program with
    several tasks there is one record each, at one instant."""

    kind = "focused"
    task: str | None


@dataclass(frozen=True, slots=True)
class Shown(Event):
    """A frame of this task reached the screen."""

    kind = "shown"
    task: str


@dataclass(frozen=True, slots=True)
class Overdue(Event):
    """The run is over, and so many jobs of this task are not done whose deadlines have passed:
    groups that wait or are online, and those that a program had no chance to submit."""

    kind = "overdue"
    task: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Passed(Event):
    """Under its lease, which is one group to the engine, a program let so many groups of its own
    through since it was last asked: what they showed, and the GPU time it says they took."""

    kind = "passed"
    task: str
    groups: int
    frames: int
    used_ns: int


@dataclass(frozen=True, slots=True)
class Measured(Event):
    """Launches that went under a task's lease were measured by themselves: their features, what the
    task's cost model expected before it learned from them, and what each of them took."""

    kind = "measured"
    task: str
    features: tuple[tuple[str, int], ...]
    predicted_ns: int
    bound_ns: int
    took_ns: int
    share_permille: int


@dataclass(frozen=True, slots=True)
class JobEnded(Event):
    """A job of this task is over: what it did from its first GPU work after a rest, at `begun_ns`,
    until it had seen that all of its work was done, at `ended_ns`. This is told some time later,
    when it is clear that the task rests."""

    kind = "job_ended"
    task: str
    number: int
    begun_ns: int
    ended_ns: int
    deadline_ns: int | None
    waited_ns: int
    slowdown_permille: int | None
    missed: bool


@dataclass(frozen=True, slots=True)
class ShareSet(Event):
    """A task has this share of the multiprocessors from here on, in thousandths. It may be one that
    is launched and sends no groups."""

    kind = "share_set"
    task: str
    permille: int


@dataclass(frozen=True, slots=True)
class TakenUp(Event):
    """The stream takes up a run that has been going on: at its begin, or after so many records were
    dropped. From here to `Found` the records say what there is, not what happens; a group that
    waits or is online is told with the times at which it was submitted and went online."""

    kind = "taken_up"
    dropped: int


@dataclass(frozen=True, slots=True)
class LastUsed(Event):
    """At this time the last group on this GPU was done, and it was this task's (only told while a
    run is taken up)."""

    kind = "last_used"
    gpu: int
    task: str


@dataclass(frozen=True, slots=True)
class Found(Event):
    """All that there is has been told; from here on the stream tells what happens."""

    kind = "found"


@dataclass(frozen=True, slots=True)
class Ended(Event):
    """The last event of a stream; without it a trace was cut off."""

    kind = "ended"
    complete: bool


EVENTS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        Began, TaskAdded, TaskRemoved, PolicySet, Ranked, ReserveSet, Joined, Submitted, Predicted,
        Withdrawn, Dispatched, Charged, Completed, Replenished, Moved, Entered, Left, Focused,
        Shown, Overdue, Passed, JobEnded, TakenUp, LastUsed, Found, Ended, Overran,
        StandsWith, Described, ShareSet, Measured,
    )
}  # fmt: skip


def _promises(task: Task) -> tuple[str, ...]:
    """What its policy promises. Where decisions are taken at ticks alone, none promises to take an
    idle GPU, nor to go without a decision."""
    promises = task.policy.promises()
    if not task.ticks:
        return promises
    return (*(name for name in promises if name not in ("takes_idle", "decides")), "decides")


class Recorder(Observer):
    """Turns what the engine says into records and hands each to `sink`."""

    def __init__(self, sink: Callable[[Event], None]) -> None:
        self._sink = sink

    def say(self, kind: Callable[..., Event], *values: object) -> None:
        """Pass on a record of this kind."""
        self._sink(kind(*values))

    def began(self, gpus: int, now_ns: int) -> None:
        self.say(Began, now_ns, gpus)

    def task_added(self, task: Task, now_ns: int) -> None:
        policy = task.policy
        self.say(
            TaskAdded,
            now_ns,
            task.name,
            policy.name,
            str(task.rule),
            task.rank,
            policy.holdoff_ns,
            policy.patience_ns,
            task.device,
            _promises(task),
        )

    def task_removed(self, task: Task, now_ns: int) -> None:
        self.say(TaskRemoved, now_ns, task.name)

    def policy_set(self, task: Task, now_ns: int) -> None:
        policy = task.policy
        times = policy.holdoff_ns, policy.patience_ns
        self.say(PolicySet, now_ns, task.name, policy.name, *times, _promises(task))

    def ranked(self, task: Task, now_ns: int) -> None:
        self.say(Ranked, now_ns, task.name, task.rank, task.base_rank)

    def stands_with(self, task: Task, party: Party, now_ns: int) -> None:
        self.say(StandsWith, now_ns, task.name, party.name, party.last_ns)

    def reserve_set(self, reserve: Reserve, now_ns: int) -> None:
        self.say(
            ReserveSet,
            now_ns,
            reserve.name,
            reserve.spec.kind,
            reserve.capacity_ns,
            reserve.period_ns,
            reserve.budget_ns,
            reserve.anchor_ns,
            reserve.shared,
        )

    def joined(self, task: Task, now_ns: int) -> None:
        self.say(Joined, now_ns, task.name, task.reserve.name if task.reserve else None)

    def submitted(self, group: Group, now_ns: int) -> None:
        self.say(
            Submitted, now_ns, group.task.name, group.index, group.predicted_ns, group.deadline_ns
        )
        if group.features:
            features = tuple(group.features.items())
            self.say(
                Described, now_ns, group.task.name, group.index, str(group.signature), features
            )

    def predicted(self, group: Group, now_ns: int) -> None:
        self.say(Predicted, now_ns, group.task.name, group.index, group.predicted_ns)

    def withdrawn(self, group: Group, now_ns: int) -> None:
        self.say(Withdrawn, now_ns, group.task.name, group.index)

    def dispatched(self, group: Group, now_ns: int) -> None:
        name, gpu = group.task.name, group.gpu.index
        self.say(Dispatched, now_ns, name, group.index, gpu, group.leased)

    def charged(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None:
        name, reserve = group.task.name, group.task.reserve
        paid = (reserve.name, reserve.budget_ns) if reserve else (None, 0)
        self.say(Charged, now_ns, name, group.index, until_ns, amount_ns, *paid)

    def overran(self, task: Task, amount_ns: int, now_ns: int) -> None:
        if task.reserve is not None:
            name, budget_ns = task.reserve.name, task.reserve.budget_ns
            self.say(Overran, now_ns, task.name, amount_ns, name, budget_ns)

    def completed(self, group: Group, now_ns: int) -> None:
        reserve = group.task.reserve
        self.say(
            Completed,
            now_ns,
            group.task.name,
            group.index,
            group.gpu.index,
            group.submitted_ns,
            group.started_ns,
            reserve.name if reserve else None,
            reserve.budget_ns if reserve else 0,
            group.frame,
            group.deadline_ns,
            group.released_ns,
            group.overhead_ns,
        )

    def replenished(self, reserve: Reserve, now_ns: int) -> None:
        self.say(Replenished, now_ns, reserve.name, reserve.budget_ns, reserve.replenished_ns)

    def moved(self, giver: Reserve, taker: Reserve, amount_ns: int, now_ns: int) -> None:
        self.say(Moved, now_ns, giver.name, taker.name, amount_ns)

    def entered(self, request: Request, now_ns: int) -> None:
        self.say(Entered, now_ns, request.number, request.client.name, request.server.name)

    def left(self, request: Request, now_ns: int) -> None:
        self.say(Left, now_ns, request.number, request.client.name, request.server.name)

    def focused(self, task: Task | None, now_ns: int) -> None:
        self.say(Focused, now_ns, task.name if task else None)

    def shown(self, task: Task, now_ns: int) -> None:
        self.say(Shown, now_ns, task.name)

    def overdue(self, task: Task, jobs: int, now_ns: int) -> None:
        self.say(Overdue, now_ns, task.name, jobs)

    def passed(self, task: Task, groups: int, frames: int, used_ns: int, now_ns: int) -> None:
        self.say(Passed, now_ns, task.name, groups, frames, used_ns)

    def measured(self, what: Measured, now_ns: int) -> None:
        self.say(
            Measured, what.ns, what.task, what.features, what.predicted_ns, what.bound_ns,
            what.took_ns, what.share_permille,
        )  # fmt: skip

    def job_ended(self, job: Job, now_ns: int) -> None:
        self.say(
            JobEnded,
            now_ns,
            job.task.name,
            job.number,
            job.begun_ns,
            job.ended_ns,
            job.deadline_ns,
            job.waited_ns,
            None if job.slowdown is None else round(1000 * job.slowdown),
            job.missed,
        )

    def share_set(self, task: Sharer, permille: int, now_ns: int) -> None:
        self.say(ShareSet, now_ns, task.name, permille)

    def ended(self, complete: bool, now_ns: int) -> None:
        self.say(Ended, now_ns, complete)
