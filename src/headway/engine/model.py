"""The things the engine talks about: tasks, groups and GPUs (vocabulary in docs/architecture.md).

Rank is the one number that orders tasks: smaller runs first. It packs the priority *level* a person
writes (larger is more important) above a *refinement* that a priority rule may add, such as a
period or a deadline, so that two tasks of one level can still differ.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headway.engine.cost_models import NO_FEATURES
from headway.engine.shares import ANY, WHOLE_PERMILLE

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from headway.engine.choice import Choice
    from headway.engine.cost_models import CostModel, Signature
    from headway.engine.parties import Party
    from headway.engine.policies import Policy
    from headway.engine.priorities import PriorityRule
    from headway.engine.reserves import Reserve

Rank = int

_REFINEMENT_BITS = 64
_REFINEMENT_MAX = (1 << _REFINEMENT_BITS) - 1
MAX_LEVEL = 1_000_000
"""Largest magnitude of a priority that a person may give."""
BACKGROUND_LEVEL = -MAX_LEVEL - 1
"""Below everything a person may give (TimeGraph §3: "the lowest GPU priority")."""
DEFAULT_LEVEL = 0
"""The default static level, at which automatic (`*`) tasks run (TimeGraph §3)."""


def make_rank(level: int, refinement: int = 0) -> Rank:
    """Rank of a task at `level`; a larger `refinement` is less important within the level."""
    return (-level << _REFINEMENT_BITS) + min(refinement, _REFINEMENT_MAX)


def behind_equals(rank: Rank) -> Rank:
    """Behind whoever is as important as this, and before all who are less important."""
    return rank | _REFINEMENT_MAX


BEHIND_ALL: Rank = behind_equals(make_rank(BACKGROUND_LEVEL))
"""Behind everybody, Background included."""


def level_of(rank: Rank) -> int:
    """The priority level a rank was made from."""
    return -(rank >> _REFINEMENT_BITS)


def refinement_of(rank: Rank) -> int:
    """What a priority rule added within the level."""
    return rank & _REFINEMENT_MAX


class Group:
    """The commands that go to the GPU as one unit and are not interrupted.

    Whoever drives the engine makes it and hands it to `Engine.submit`. Slots, all set at once: it
    is the object a long simulation makes millions of.
    """

    __slots__ = (
        "bound_ns",
        "charged_ns",
        "deadline_ns",
        "dispatched_ns",
        "exact_ns",
        "features",
        "finished_ns",
        "frame",
        "gpu",
        "index",
        "overhead_ns",
        "policy",
        "predicted_ns",
        "ready_ns",
        "released_ns",
        "signature",
        "started_ns",
        "submitted_ns",
        "switched",
        "task",
    )

    leased = False
    # Set on the way: by submission, dispatch, and execution.
    submitted_ns: int
    ready_ns: int
    dispatched_ns: int
    gpu: Gpu
    started_ns: int
    finished_ns: int

    def __init__(
        self,
        task: Task,
        index: int,
        exact_ns: int = 0,
        deadline_ns: int | None = None,
        signature: Signature = (),
        frame: bool = False,
        released_ns: int | None = None,
        features: Mapping[str, int] = NO_FEATURES,
    ) -> None:
        self.task = task
        self.index = index
        self.exact_ns = exact_ns
        """The true cost where the driver knows it, as the simulator does; `exact` looks at it."""
        self.deadline_ns = deadline_ns
        self.signature = signature
        """The kind of work: equal means the same. None: no kind; nobody predicts or learns it."""
        self.features = features
        """Named amounts, such as pixels or bytes, that a cost model may go by."""
        self.frame = frame
        """The program shows a frame when this group is done."""
        self.released_ns = released_ns
        """Since when the job has been due, from where its response counts; None: its submission."""
        self.switched = False
        """Another task's group ran on this GPU just before this one."""
        self.charged_ns = 0
        """What was charged of it while it went on; completion charges the rest."""
        self.policy: Policy | None = None
        """The policy that heard of the group's submission, and hears how it goes on."""
        self.overhead_ns = 0
        """Decision and switch of context just before it started, as far as they are charged."""
        self.predicted_ns = exact_ns
        """What the task's cost model expects; until a model was asked, the exact cost."""
        self.bound_ns = exact_ns
        """What the group will hardly exceed, by the same model."""

    def __repr__(self) -> str:
        return f"<group {self.task.name}#{self.index}>"


class Measurement:
    """Work of a task that was measured under its lease, so was never a group of its own."""

    __slots__ = ("features", "signature", "task")
    exact_ns = 0

    def __init__(self, task: Task, features: Mapping[str, int]) -> None:
        self.task = task
        self.features = features
        self.signature: Signature = tuple(features.items())
        """Equal features are equal work."""


class Lease(Group):
    """Stands for whatever a task sends until this is taken back; only drivers in real time make it.

    It takes its place on the GPU as a group does, but is none: its times say nothing of a response.
    """

    __slots__ = ()

    leased = True


class Task:
    """What has a priority, a policy and perhaps a reserve."""

    def __init__(
        self,
        name: str,
        order: int,
        policy: Policy,
        choice: Choice,
        rule: PriorityRule,
        cost_model: CostModel,
    ) -> None:
        self.name = name
        self.order = order
        """Place in the file, or order of arrival: the last tie-breaker."""
        self.policy = policy
        self.choice = choice
        """What was asked for: the policy's name, and what it is to know of this task."""
        self.rule = rule
        self.device: int | None = None
        """The number of the GPU that its work goes to; None: of any."""
        self.ticks = False
        """It is decided on at ticks alone."""
        self.period_ns: int | None = None
        self.reserve: Reserve | None = None
        self.debt_ns = 0
        """Debt of a reserve it no longer has; the next one takes it over."""
        self.own_model = cost_model
        """Predicts what the task's groups cost, unless an AE reserve names another cost model."""
        self.use_cost_model(cost_model)
        self.share_permille = WHOLE_PERMILLE
        """How many thousandths of the device's multiprocessors the task may use now."""
        self.base_rank: Rank = 0
        """From the task's own priority rule."""
        self.rank: Rank = 0
        """With what is inherited from clients; this is what schedules."""
        self.key: int = 0
        """Place in the ready queue: the rank, or what the policy said when it was asked last."""
        self.plain = False
        """No reserve, a rank that stays, and a policy that goes by rank, listens to
        nothing and takes any idle GPU and only an idle one: the engine may take the short way. It
        keeps this up to date."""
        self.waiting: Group | None = None
        self.in_ready_queue = False
        self.last_gpu: Gpu | None = None
        self.gpu_ns = 0
        self.alive = True
        self.foreground = False
        self.corun = 0.0
        """For which part of the time of its jobs less important work may be on the GPU beside it:
        while that is more than nothing, nobody there has to stop for it."""
        self.begins_job = False
        """What it waits for is the begin of a job: it did not lose the GPU in the middle of one."""
        self.mixes: Hashable | None = None
        """The hardware runs its work beside that of equals which mix with the same: they need not
        take turns. None: it mixes with nobody."""
        self.shares = ANY
        """Which share of the multiprocessors it may be given beside others."""
        self.parties: tuple[Party, ...] = ()
        """With whom it stands in the queue, at most two: its user's tasks, its process's."""
        self.steps_back = 0
        """1: it goes behind its equals; 2: behind everybody."""

    @property
    def parameters(self) -> Any:
        """What the policy's `read_task` made of the parameters, as in `wfq:weight=3`."""
        return self.choice.parameters

    def use_cost_model(self, model: CostModel) -> None:
        """Have this model predict what the task's groups cost."""
        self.cost_model = model
        self.learner = model if model.learns else None
        """The cost model, if it has to be asked about each group and told of each."""

    def may_mix(self, other: Task) -> bool:
        """Whether this task and an equal may be on the GPU together."""
        return self.mixes is not None and self.mixes == other.mixes and self.rank == other.rank

    @property
    def priority(self) -> int:
        """The effective priority level."""
        return level_of(self.rank)

    def __repr__(self) -> str:
        return f"<task {self.name}>"


class Gpu:
    """One GPU and its online list: groups run one after the other in the order of dispatch."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.online: deque[Group] = deque()
        self.idle_ns = 0
        """When the last group was done."""
        self.last_task: Task | None = None
        """Whose group was dispatched last: tells whether the context switches."""
        self.resting: Task | None = None
        """Who used it last and said that nothing more is coming: it is not kept for that task."""

    @property
    def executing(self) -> Group | None:
        """The group that executes now."""
        return self.online[0] if self.online else None

    def __repr__(self) -> str:
        return f"<gpu {self.index}: {len(self.online)} online>"
