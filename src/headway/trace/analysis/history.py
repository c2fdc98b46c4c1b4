"""The facts of a run, kept in columns: a few hundred thousand groups take some tens of megabytes.

Tasks are numbers here, by the order in which they first appear; a name that comes back is the same
task. Times are as in the events. What is open when the events stop is closed there.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headway.engine import events
from headway.trace.analysis.facts import (
    DEADLINE,
    FRAME,
    GATE,
    LEASED,
    MISSED,
    NO_GPU,
    QUEUED,
    SHORT,
    Groups,
    ReserveFacts,
    Segments,
    TaskFacts,
)
from headway.trace.analysis.leases import Leases

MOST_FRAMES = 100_000
"""Of one count: no program shows more between two heartbeats."""
COUNTED_NS = 100_000_000
"""Between two counts, about."""


@dataclass(slots=True)
class _Waiting:
    """A group at the gate."""

    index: int
    since_ns: int
    predicted_ns: int
    short: bool = False
    """Its budget does not let it through."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A group that was online when the events stopped."""

    task: int
    gpu: int
    since_ns: int


class History:
    """Feed it every event, then call `close`."""

    def __init__(self) -> None:
        self.gpus = 1
        self.begin_ns = 0
        self.end_ns = 0
        self.complete: bool | None = None
        """What the last event said; None if there was none: the trace is cut off."""
        self.events = 0
        self.tasks: list[TaskFacts] = []
        self.reserves: dict[str, ReserveFacts] = {}
        self.groups = Groups()
        self.segments = Segments()
        self.unfinished: list[Unfinished] = []
        self.marks: list[tuple[int, str]] = []
        """What a person did or the system changed: focus, policies, tasks that come and go."""
        self._numbers: dict[str, int] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._waiting_on: defaultdict[str | None, dict[int, None]] = defaultdict(dict)
        """The same by reserve: a budget concerns only those who wait on it now."""
        self._online: dict[tuple[int, int], events.Dispatched] = {}
        self._paid_ns: dict[tuple[int, int], int] = {}
        """What groups that are online were charged already."""
        self._taking_up = False
        self._leases = Leases()
        self._idle_since_ns: dict[int, int] = {}
        self._counted_ns: dict[int, int] = {}
        """When frames under a lease were last counted, by task."""
        self._feeders: dict[type[events.Event], Callable[[Any], None]] = {
            events.Began: self._began,
            events.TaskAdded: self._task_added,
            events.TaskRemoved: self._task_removed,
            events.PolicySet: self._policy_set,
            events.Ranked: self._ranked,
            events.ReserveSet: self._reserve_set,
            events.Joined: self._joined,
            events.Submitted: self._submitted,
            events.Predicted: self._predicted,
            events.Withdrawn: self._withdrawn,
            events.Dispatched: self._dispatched,
            events.Charged: self._charged,
            events.Overran: self._overran,
            events.Completed: self._completed,
            events.Replenished: self._replenished,
            events.Moved: self._moved,
            events.Focused: self._focused,
            events.Shown: self._shown,
            events.ShareSet: self._share_set,
            events.Overdue: self._overdue,
            events.Passed: self._passed,
            events.TakenUp: self._taken_up,
            events.Found: self._found,
            events.Ended: self._ended,
        }

    def feed(self, event: events.Event) -> None:
        self.events += 1
        if self.events <= 2:  # a live stream begins before its clock is known: at zero
            self.begin_ns = event.ns
        self.end_ns = max(self.end_ns, event.ns)
        feeder = self._feeders.get(type(event))
        if feeder is not None:
            feeder(event)

    def close(self) -> None:
        """Whatever is open ends where the events end. Of groups that are online only the first of
        each GPU can be executing; the others wait behind it."""
        for number in list(self._waiting):
            self._leave_gate(number, self.end_ns)
        first: dict[int, int] = {}
        for (number, _), dispatched in self._online.items():
            since_ns, gpu = dispatched.ns, dispatched.gpu
            if gpu not in first:
                first[gpu] = number
                since_ns = max(since_ns, self._idle_since_ns.get(gpu, since_ns))
                self.unfinished.append(Unfinished(number, gpu, since_ns))
            else:
                self.segments.add(number, QUEUED, gpu, since_ns, self.end_ns)
        self._online.clear()

    def until(self, now_ns: int) -> History:
        """What is known now, closed at this instant. Events go on to be fed to this history."""
        known = copy.deepcopy(self)
        known.end_ns = max(known.end_ns, now_ns)
        known.close()
        return known

    def forget(self, until_ns: int) -> None:
        """What was over at that instant, and tasks that were gone. An instant belongs to the
        stretch that it ends."""
        if until_ns <= self.begin_ns:
            return
        self.groups.forget(until_ns)
        self.segments.forget(until_ns)
        for task in self.tasks:
            task.forget(until_ns)
        for reserve in self.reserves.values():
            reserve.forget(until_ns)
        self.marks = [mark for mark in self.marks if mark[0] > until_ns]
        self.begin_ns = min(until_ns, self.end_ns)
        used = {*self.groups.tasks, *self.segments.tasks, *(number for number, _ in self._online)}
        kept = [
            number
            for number, task in enumerate(self.tasks)
            if not task.gone or number in used or task.frames_ns
        ]
        if len(kept) < len(self.tasks):
            self._renumber({number: place for place, number in enumerate(kept)})

    def _renumber(self, numbers: dict[int, int]) -> None:
        """Keep these tasks only, under other numbers."""

        def kept(entries: dict[int, Any]) -> dict[int, Any]:
            return {numbers[n]: value for n, value in entries.items() if n in numbers}

        self.tasks = [self.tasks[number] for number in numbers]
        self._numbers = {task.name: number for number, task in enumerate(self.tasks)}
        self.groups.renumber(numbers)
        self.segments.renumber(numbers)
        for name, reserve in list(self.reserves.items()):
            members = kept(reserve.members)
            if reserve.members and not members:  # of tasks that are gone
                del self.reserves[name]
            reserve.members = members
        for pool, waiting in self._waiting_on.items():
            self._waiting_on[pool] = kept(waiting)
        self._waiting, self._counted_ns = kept(self._waiting), kept(self._counted_ns)
        self._online = {(numbers[n], i): v for (n, i), v in self._online.items()}
        self._leases.renumber(numbers)
        self._paid_ns = {(numbers[n], i): v for (n, i), v in self._paid_ns.items() if n in numbers}

    def number(self, name: str) -> int:
        """The number of the task of this name."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.tasks)
            self.tasks.append(TaskFacts(name))
        return number

    # -- tasks -------------------------------------------------------------------------------

    def _began(self, event: events.Began) -> None:
        self.gpus = event.gpus

    def _task_added(self, event: events.TaskAdded) -> None:
        task = self.tasks[self.number(event.task)]
        task.policy, task.priority, task.gone = event.policy, event.priority, False
        task.holdoff_ns = event.holdoff_ns
        self._rank(task, event.ns, event.rank)
        if event.ns > self.begin_ns:
            self.marks.append((event.ns, f"{event.task} begins"))

    def _task_removed(self, event: events.TaskRemoved) -> None:
        number = self.number(event.task)
        self.tasks[number].gone = True
        self._leave_gate(number, event.ns)
        self.marks.append((event.ns, f"{event.task} is gone"))

    def _policy_set(self, event: events.PolicySet) -> None:
        task = self.tasks[self.number(event.task)]
        task.policy = event.policy
        task.holdoff_ns = event.holdoff_ns
        self.marks.append((event.ns, f"{event.task}: policy {event.policy}"))

    def _ranked(self, event: events.Ranked) -> None:
        self._rank(self.tasks[self.number(event.task)], event.ns, event.rank)

    def _rank(self, task: TaskFacts, ns: int, rank: int) -> None:
        task.rank_since_ns.append(ns)
        task.ranks.append(rank)

    def _focused(self, event: events.Focused) -> None:
        where = "elsewhere" if event.task is None else f"on {event.task}"
        self.marks.append((event.ns, f"focus {where}"))

    def _overdue(self, event: events.Overdue) -> None:
        self.tasks[self.number(event.task)].overdue += event.jobs

    def _shown(self, event: events.Shown) -> None:
        self.tasks[self.number(event.task)].frames_ns.append(event.ns)

    def _share_set(self, event: events.ShareSet) -> None:
        facts = self.tasks[self.number(event.task)]
        facts.share_since_ns.append(event.ns)
        facts.shares.append(event.permille)

    def _passed(self, event: events.Passed) -> None:
        """Frames under a lease are counted now and then: they were shown one after the other since
        the last one that is known."""
        number = self.number(event.task)
        times = self.tasks[number].frames_ns
        since_ns = max(
            self._counted_ns.get(number, event.ns - COUNTED_NS), times[-1] if times else 0
        )
        frames = min(event.frames, MOST_FRAMES)
        step_ns = max(0, event.ns - since_ns) / max(1, frames)
        times.extend(int(since_ns + step_ns * n) for n in range(1, frames + 1))
        self._counted_ns[number] = event.ns
        told = self._leases.tell(number, event.used_ns, event.ns)
        if told is not None:
            index, gpu, started_ns = told
            dispatched_ns = self._online[number, index].ns
            self.groups.add(number, gpu, LEASED, dispatched_ns, started_ns, event.ns)

    def _taken_up(self, event: events.TakenUp) -> None:
        """What was open before records were dropped may be over: it is told again if it is not."""
        if event.dropped:
            self.marks.append((event.ns, f"{event.dropped} records were dropped here"))
        for number in list(self._waiting):
            self._leave_gate(number, event.ns)
        self._online.clear()
        self._leases.forget()
        self._paid_ns.clear()
        self._taking_up = True

    def _found(self, event: events.Found) -> None:
        self._taking_up = False

    def _ended(self, event: events.Ended) -> None:
        self.complete = event.complete

    # -- budgets -----------------------------------------------------------------------------

    def _reserve_set(self, event: events.ReserveSet) -> None:
        known = self.reserves.get(event.reserve)
        if known is None:
            known = self.reserves[event.reserve] = ReserveFacts(
                event.reserve,
                event.policy,
                event.capacity_ns,
                event.period_ns,
                event.ns,
                event.budget_ns,
            )
        else:
            known.kind, known.capacity_ns = event.policy, event.capacity_ns
            known.period_ns = event.period_ns
        self._budget(known, event.budget_ns, event.ns)

    def _joined(self, event: events.Joined) -> None:
        number = self.number(event.task)
        if number in self._waiting:
            del self._waiting_on[self.tasks[number].reserve][number]
            self._waiting_on[event.reserve][number] = None
        self.tasks[number].reserve = event.reserve
        reserve = self.reserves.get(event.reserve or "")
        if reserve is not None:
            reserve.members[number] = None
        self._look_again(number, event.ns)

    def _replenished(self, event: events.Replenished) -> None:
        reserve = self.reserves.get(event.reserve)
        if reserve is not None:
            self._budget(reserve, event.budget_ns, event.ns)

    def _moved(self, event: events.Moved) -> None:
        for name, amount_ns in ((event.giver, -event.amount_ns), (event.taker, event.amount_ns)):
            reserve = self.reserves.get(name)
            if reserve is not None:
                self._budget(reserve, reserve.budget_ns + amount_ns, event.ns)

    def _budget(self, reserve: ReserveFacts, budget_ns: int, ns: int) -> None:
        reserve.budget_ns = budget_ns
        reserve.points_ns.append(ns)
        reserve.budgets_ns.append(budget_ns)
        for number in self._waiting_on[reserve.name]:
            self._look_again(number, ns)

    def _is_short(self, number: int, waiting: _Waiting) -> bool:
        """Whether the budget keeps this group from being ready (TimeGraph §5)."""
        reserve = self.reserves.get(self.tasks[number].reserve or "")
        if reserve is None:
            return False
        if reserve.kind == "pe":
            return reserve.budget_ns <= 0
        return reserve.budget_ns < waiting.predicted_ns

    def _look_again(self, number: int, ns: int) -> None:
        """The budget of a task may have changed: a new stretch of its wait begins."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            short = self._is_short(number, waiting)
            if short != waiting.short:
                self._stretch_over(number, waiting, ns)
                waiting.since_ns, waiting.short = ns, short

    # -- groups ------------------------------------------------------------------------------

    def _submitted(self, event: events.Submitted) -> None:
        number = self.number(event.task)
        self._leave_gate(number, event.ns)
        waiting = _Waiting(event.index, event.ns, event.predicted_ns)
        waiting.short = self._is_short(number, waiting)
        self._waiting[number] = waiting
        self._waiting_on[self.tasks[number].reserve][number] = None

    def _predicted(self, event: events.Predicted) -> None:
        number = self.number(event.task)
        waiting = self._waiting.get(number)
        if waiting is not None and waiting.index == event.index:
            waiting.predicted_ns = event.predicted_ns
            self._look_again(number, event.ns)

    def _withdrawn(self, event: events.Withdrawn) -> None:
        self._leave_gate(self.number(event.task), event.ns)

    def _dispatched(self, event: events.Dispatched) -> None:
        number = self.number(event.task)
        self.gpus = max(self.gpus, event.gpu + 1)
        self._leave_gate(number, event.ns)
        self._online[number, event.index] = event
        if event.leased:
            self._leases.begin(number, event.index, event.gpu, max(event.ns, self.begin_ns))

    def _leave_gate(self, number: int, ns: int) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            del self._waiting_on[self.tasks[number].reserve][number]
            self._stretch_over(number, waiting, ns)

    def _stretch_over(self, number: int, waiting: _Waiting, ns: int) -> None:
        kind = SHORT if waiting.short else GATE
        self.segments.add(number, kind, NO_GPU, waiting.since_ns, ns)

    def _completed(self, event: events.Completed) -> None:
        number = self.number(event.task)
        self.gpus = max(self.gpus, event.gpu + 1)
        started_ns = min(event.started_ns, event.ns)
        submitted_ns = min(event.submitted_ns, started_ns)
        # A trace may begin in the middle of a group: then its dispatch is not in it.
        online = self._online.pop((number, event.index), None)
        dispatched_ns = started_ns if online is None else online.ns
        dispatched_ns = min(max(dispatched_ns, submitted_ns), started_ns)
        leased = online is not None and online.leased
        ran_ns = event.ns - started_ns
        if leased:
            started_ns = self._leases.end(number, started_ns, event.ns)
        else:
            self.segments.add(number, QUEUED, event.gpu, dispatched_ns, started_ns)
        released_ns = submitted_ns if event.released_ns is None else event.released_ns
        flags = (FRAME if event.frame else 0) | (LEASED if leased else 0)
        if event.deadline_ns is not None:
            flags |= DEADLINE | (MISSED if event.ns > event.deadline_ns else 0)
        self.groups.add(
            number, event.gpu, flags, dispatched_ns, started_ns, event.ns,
            submitted_ns=submitted_ns, released_ns=min(released_ns, submitted_ns),
        )  # fmt: skip
        if event.frame:
            self.tasks[number].frames_ns.append(event.ns)
        self._idle_since_ns[event.gpu] = event.ns
        paid_ns = self._paid_ns.pop((number, event.index), 0)
        self._charge(event, number, ran_ns + event.overhead_ns - paid_ns)

    def _charged(self, event: events.Charged) -> None:
        number = self.number(event.task)
        group = number, event.index
        self._paid_ns[group] = self._paid_ns.get(group, 0) + event.amount_ns
        if not self._taking_up:
            self._charge(event, number, event.amount_ns)

    def _overran(self, event: events.Overran) -> None:
        self._charge(event, self.number(event.task), event.amount_ns)

    def _charge(
        self,
        event: events.Charged | events.Completed | events.Overran,
        number: int,
        amount_ns: int,
    ) -> None:
        reserve = self.reserves.get(event.reserve or "")
        if reserve is not None:
            reserve.members.setdefault(number)
            reserve.charges_ns.append(event.ns)
            reserve.charged_ns.append(amount_ns)
            reserve.after_ns.append(event.budget_ns)
            self._budget(reserve, event.budget_ns, event.ns)


def read_history(stream: Iterable[events.Event]) -> History:
    """The facts of a whole stream."""
    history = History()
    for event in stream:
        history.feed(event)
    history.close()
    return history
