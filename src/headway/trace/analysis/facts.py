"""What is known of the tasks, reserves, groups and waits of a run, in columns.

Tasks are numbers here, by the order in which they first appeared. A column can forget its oldest
entries, so that whoever watches a daemon for days needs memory for the last seconds only.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FRAME, DEADLINE, MISSED, LEASED = 1, 2, 4, 8
"""Flags of a group. A lease had the GPU like one, but is none: nobody waited for its response."""
NO_GPU = -1
GATE, SHORT, QUEUED = range(3)
"""Kinds of waiting: ready at the gate; at the gate with too little budget; dispatched."""


def _older(times_ns: Iterable[int], until_ns: int) -> int:
    """How many of the first of these instants are not after that one."""
    count = 0
    for ns in times_ns:
        if ns > until_ns:
            break
        count += 1
    return count


@dataclass(slots=True)
class TaskFacts:
    """What is known of a task."""

    name: str
    policy: str = ""
    priority: str = ""
    reserve: str | None = None
    holdoff_ns: int = 0
    frames_ns: array[int] = field(default_factory=lambda: array("q"))
    """When its frames were done."""
    rank_since_ns: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    share_since_ns: array[int] = field(default_factory=lambda: array("q"))
    shares: array[int] = field(default_factory=lambda: array("q"))
    """Its share of the multiprocessors from each of these instants on, in thousandths."""
    overdue: int = 0
    """Jobs past their deadlines that were not done at the end."""
    gone: bool = False
    """Whether it was removed, and did not come back."""

    def forget(self, until_ns: int) -> None:
        """Its frames, ranks and shares until that instant, but for the rank and share it had
        then."""
        del self.frames_ns[: _older(self.frames_ns, until_ns)]
        old = max(0, _older(self.rank_since_ns, until_ns) - 1)
        del self.rank_since_ns[:old], self.ranks[:old]
        old = max(0, _older(self.share_since_ns, until_ns) - 1)
        del self.share_since_ns[:old], self.shares[:old]


@dataclass(slots=True)
class ReserveFacts:
    """What is known of a reserve."""

    name: str
    kind: str
    capacity_ns: int
    period_ns: int
    since_ns: int
    budget_ns: int
    members: dict[int, None] = field(default_factory=dict)
    """Tasks that were ever charged to it."""
    points_ns: array[int] = field(default_factory=lambda: array("q"))
    budgets_ns: array[int] = field(default_factory=lambda: array("q"))
    """The budget from each of these instants on."""
    charges_ns: array[int] = field(default_factory=lambda: array("q"))
    charged_ns: array[int] = field(default_factory=lambda: array("q"))
    """What was charged, at each of these instants."""
    after_ns: array[int] = field(default_factory=lambda: array("q"))
    """The budget that each charge left."""

    def forget(self, until_ns: int) -> None:
        """Its charges until that instant, and its budgets but for the last of them."""
        old = max(0, _older(self.points_ns, until_ns) - 1)
        del self.points_ns[:old], self.budgets_ns[:old]
        old = _older(self.charges_ns, until_ns)
        del self.charges_ns[:old], self.charged_ns[:old], self.after_ns[:old]

    def budget_line(self, from_ns: int, to_ns: int) -> list[tuple[int, int]]:
        """The budget between two instants: when, counted from the first, and what it was then."""
        before: list[tuple[int, int]] = []
        inside: list[tuple[int, int]] = []
        for ns, budget_ns in zip(self.points_ns, self.budgets_ns, strict=True):
            if ns < from_ns:
                before = [(0, budget_ns)]
            elif ns <= to_ns:
                inside.append((ns - from_ns, budget_ns))
        return before + inside


class Groups:
    """Completed groups, and leases that ended, in the order of their completion."""

    def __init__(self) -> None:
        self.tasks, self.gpus, self.flags = array("l"), array("l"), array("l")
        self.submitted_ns, self.dispatched_ns = array("q"), array("q")
        self.released_ns = array("q")
        """From where a response counts: the submission, or the release of the job before it."""
        self.started_ns, self.finished_ns = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.tasks)

    def add(
        self,
        task: int,
        gpu: int,
        flags: int,
        dispatched_ns: int,
        started_ns: int,
        finished_ns: int,
        *,
        submitted_ns: int | None = None,
        released_ns: int | None = None,
    ) -> None:
        """What completed now; without other instants it was submitted when it was dispatched."""
        submitted_ns = dispatched_ns if submitted_ns is None else submitted_ns
        self.tasks.append(task)
        self.gpus.append(gpu)
        self.flags.append(flags)
        self.submitted_ns.append(submitted_ns)
        self.released_ns.append(submitted_ns if released_ns is None else released_ns)
        self.dispatched_ns.append(dispatched_ns)
        self.started_ns.append(started_ns)
        self.finished_ns.append(finished_ns)

    def forget(self, until_ns: int) -> None:
        """Those that were completed until that instant."""
        old = _older(self.finished_ns, until_ns)
        del self.tasks[:old], self.gpus[:old], self.flags[:old]
        del self.submitted_ns[:old], self.dispatched_ns[:old], self.released_ns[:old]
        del self.started_ns[:old], self.finished_ns[:old]

    def renumber(self, numbers: Mapping[int, int]) -> None:
        self.tasks = array("l", (numbers[task] for task in self.tasks))


class Segments:
    """Stretches of waiting: whose, of which kind, for which GPU (`NO_GPU`: for any), and when."""

    def __init__(self) -> None:
        self.tasks, self.kinds, self.gpus = array("l"), array("l"), array("l")
        self.starts_ns, self.ends_ns = array("q"), array("q")

    def add(self, task: int, kind: int, gpu: int, start_ns: int, end_ns: int) -> None:
        if start_ns < end_ns:
            self.tasks.append(task)
            self.kinds.append(kind)
            self.gpus.append(gpu)
            self.starts_ns.append(start_ns)
            self.ends_ns.append(end_ns)

    def forget(self, until_ns: int) -> None:
        """Those that were over until that instant."""
        old = _older(self.ends_ns, until_ns)
        del self.tasks[:old], self.kinds[:old], self.gpus[:old]
        del self.starts_ns[:old], self.ends_ns[:old]

    def renumber(self, numbers: Mapping[int, int]) -> None:
        self.tasks = array("l", (numbers[task] for task in self.tasks))
