"""The checker: does a run keep the rules? It reads the event records alone and keeps its own books.

That is its point: it shares nothing with the engine but the records, so it can catch a wrong one.
It serves simulated runs and live traces alike; in the latter instants are measured, and
`tolerance_ns` says how much they may be off. `RULES` is the table of what is checked.

Within one instant the engine's order is charges and completions, replenishments, submissions,
decisions, with requests and changes of every kind in between; a submission that a decision causes
comes after it. So what must hold when a decision is taken is checked with the decision, and what
must hold over a stretch of time when the next instant begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from headway.engine.events import (
    Began,
    Charged,
    Completed,
    Dispatched,
    Ended,
    Entered,
    Event,
    Found,
    Joined,
    Left,
    Moved,
    Overran,
    PolicySet,
    Predicted,
    Ranked,
    Replenished,
    ReserveSet,
    StandsWith,
    Submitted,
    TakenUp,
    TaskAdded,
    TaskRemoved,
    Withdrawn,
)
from headway.engine.policies import policies
from headway.trace.checker.books import Books, GpuBook, GroupBook, RequestBook, TaskBook
from headway.trace.checker.budgets import Budgets
from headway.trace.checker.ordering import Ordering
from headway.trace.checker.ranks import Ranks
from headway.trace.checker.rules import RULES, Violation, describe_rules
from headway.trace.checker.takeup import TakeUp

__all__ = ["KEPT", "RULES", "Checker", "Violation", "check", "describe_rules"]

KEPT: Final = 100
"""How many violations are kept; a wrong engine makes as many as there are events."""
_UNKNOWN = "unknown"
"""The policy of a task that the stream never introduced; no order rule knows it."""


def _promises(policy: str, said: tuple[str, ...]) -> frozenset[str]:
    """What a task's policy promises, as its record says; older records say only its name."""
    if not said:
        known = policies().get(policy)
        said = () if known is None else known.promises()
    return frozenset(said)


class Checker:
    """Feed it the events of a run, in order; `violations` says what was wrong."""

    def __init__(self, tolerance_ns: int = 0) -> None:
        self.violations: list[Violation] = []
        """The first ones."""
        self.dropped = 0
        """How many there were beyond those."""
        self.ended = False
        """Whether the stream came to its `Ended`; one that did not was cut off."""
        self.now_ns: int | None = None
        self.lost = 0
        """Records that were dropped before they could be read."""
        self.gaps = 0
        """Where: nothing can be said of what happened there, or across it."""
        self._tolerance_ns = tolerance_ns
        self._gpus = 1
        self._open_books()

    def _open_books(self) -> None:
        tolerance_ns = self._tolerance_ns
        self._books = Books()
        for index in range(self._gpus):
            self._books.gpu(index)
        self._ordering = Ordering(self._books, self._report, tolerance_ns)
        self._budgets = Budgets(self._books, self._report, tolerance_ns)
        self._ranks = Ranks(self._books, self._report)
        self._take_up: TakeUp | None = None
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            Began: self._began,
            TaskAdded: self._task_added,
            PolicySet: self._policy_set,
            Predicted: self._predicted,
            Withdrawn: self._withdrawn,
            TaskRemoved: self._task_removed,
            Ranked: self._ranked,
            StandsWith: self._stands_with,
            ReserveSet: self._budgets.reserve_set,
            Joined: self._joined,
            Submitted: self._submitted,
            Dispatched: self._dispatched,
            Charged: self._charged,
            Overran: self._overran,
            Completed: self._completed,
            Replenished: self._budgets.replenished,
            Moved: self._budgets.moved,
            Entered: self._entered,
            Left: self._left,
            TakenUp: self._taken_up,
            Found: self._found,
            Ended: self._end,
        }

    @property
    def count(self) -> int:
        """How many violations there were, kept or not."""
        return len(self.violations) + self.dropped

    def _report(self, ns: int, rule: str, message: str) -> None:
        if len(self.violations) < KEPT:
            self.violations.append(Violation(ns, rule, message))
        else:
            self.dropped += 1

    def feed(self, event: Event) -> None:
        """Take the next event of the stream."""
        kind = type(event)
        if self.ended:
            self._report(event.ns, "sequence", f"{event.kind} came after the end")
        if kind is TakenUp or self._take_up is not None:
            self._describe(event)
            return
        now_ns = event.ns if self.now_ns is None else self.now_ns
        if event.ns != now_ns:
            self._leave_instant(now_ns, event.ns)
        elif kind is not Ranked:
            if kind is not Moved and not (
                isinstance(event, ReserveSet) and self._budgets.states_debt(event)
            ):
                self._budgets.settle(now_ns)
            if kind is not Left:
                self._ranks.settle(now_ns)
        self.now_ns = max(now_ns, event.ns)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(event)
        if kind is not Moved and kind is not Ranked:
            self._budgets.finish(self.now_ns)

    # -- the middle of a run -----------------------------------------------------------------

    def _describe(self, event: Event) -> None:
        """This says what there is, not what happens: it breaks no rule."""
        kind = type(event)
        handlers = self._handlers
        if self._take_up is not None and kind in self._take_up.handlers:
            handlers = self._take_up.handlers
        handler = handlers.get(kind)
        if handler is not None:
            handler(event)

    def _taken_up(self, event: TakenUp) -> None:
        """What was known is of no use any more: nobody knows what happened meanwhile."""
        if event.dropped:
            self.gaps += 1
            self.lost += event.dropped
        self._open_books()
        self._take_up = TakeUp(self._books, self._ranks, self._task)
        self.now_ns = event.ns

    def _found(self, event: Found) -> None:
        self._take_up = None
        self.now_ns = event.ns

    def _leave_instant(self, now_ns: int, next_ns: int) -> None:
        if next_ns < now_ns - self._tolerance_ns:
            self._report(now_ns, "sequence", f"time went back from {now_ns} to {next_ns} ns")
        self._budgets.settle(now_ns)
        self._budgets.finish(now_ns)
        self._ranks.settle(now_ns)
        if next_ns > now_ns:
            self._ordering.end_instant(now_ns, next_ns)
            self._budgets.end_instant(next_ns)

    # -- tasks and requests ------------------------------------------------------------------

    def _task(self, name: str, ns: int) -> TaskBook:
        task = self._books.tasks.get(name)
        if task is None:
            self._report(ns, "sequence", f"no task is called {name}")
            task = self._books.add_task(name, _UNKNOWN, 0)
        return task

    def _task_added(self, event: TaskAdded) -> None:
        if event.task in self._books.tasks:
            self._report(event.ns, "sequence", f"there is a task called {event.task} already")
        task = self._books.add_task(event.task, event.policy, event.rank)
        task.holdoff_ns, task.patience_ns = event.holdoff_ns, event.patience_ns
        task.promises = _promises(event.policy, event.promises)
        task.gpu = event.gpu
        if event.gpu is not None:
            self._books.gpu(event.gpu)

    def _began(self, event: Began) -> None:
        self._gpus = event.gpus
        for index in range(event.gpus):
            self._books.gpu(index)

    def _policy_set(self, event: PolicySet) -> None:
        task = self._task(event.task, event.ns)
        task.policy = event.policy
        task.promises = _promises(event.policy, event.promises)
        task.holdoff_ns, task.patience_ns = event.holdoff_ns, event.patience_ns

    def _predicted(self, event: Predicted) -> None:
        task = self._task(event.task, event.ns)
        if task.waiting is None or task.waiting.index != event.index:
            name = f"{event.task}#{event.index}"
            self._report(event.ns, "sequence", f"{name} was predicted, but does not wait")
            return
        task.waiting.predicted_ns = event.predicted_ns
        if task.reserve is not None:
            task.reserve.note_wanted()

    def _withdrawn(self, event: Withdrawn) -> None:
        task = self._task(event.task, event.ns)
        if task.waiting is None or task.waiting.index != event.index:
            name = f"{event.task}#{event.index}"
            self._report(event.ns, "sequence", f"{name} was withdrawn, but did not wait")
        task.waiting = None
        self._books.waiting.pop(task, None)

    def _stands_with(self, event: StandsWith) -> None:
        task = self._task(event.task, event.ns)
        task.parties = (*task.parties, event.party)
        self._books.last_ns[event.party] = event.last_ns

    def _task_removed(self, event: TaskRemoved) -> None:
        task = self._task(event.task, event.ns)
        for request in [*task.asking.values(), *task.serving.values()]:
            self._report(
                event.ns,
                "inheritance",
                f"{task.name} is gone, but request {request.number} of {request.client.name} to"
                f" {request.server.name} is still pending",
            )
            self._end_request(request, event.ns)
        task.gone = True
        pool_pays = task.reserve is not None and task.reserve.shared and self._is_online(task)
        if not pool_pays:  # else it stays a member until what is still running is done
            self._budgets.leave(task, event.ns)
        task.waiting = None
        self._books.waiting.pop(task, None)
        self._ranks.forget(task)
        del self._books.tasks[event.task]

    def _ranked(self, event: Ranked) -> None:
        task = self._task(event.task, event.ns)
        task.rank, task.base_rank = event.rank, event.base_rank
        self._ranks.touch(task)

    def _joined(self, event: Joined) -> None:
        self._budgets.joined(event, self._task(event.task, event.ns))

    def _entered(self, event: Entered) -> None:
        if event.request in self._books.requests:
            self._report(event.ns, "sequence", f"request {event.request} is pending already")
            return
        client, server = self._task(event.client, event.ns), self._task(event.server, event.ns)
        request = RequestBook(event.request, client, server)
        self._books.requests[event.request] = request
        client.asking[event.request] = server.serving[event.request] = request
        self._ranks.touch(server)
        self._budgets.entered(request)

    def _left(self, event: Left) -> None:
        request = self._books.requests.get(event.request)
        if request is None:
            self._report(event.ns, "sequence", f"request {event.request} was not pending")
            return
        self._end_request(request, event.ns)

    def _end_request(self, request: RequestBook, ns: int) -> None:
        self._budgets.left(request, ns)
        del self._books.requests[request.number]
        del request.client.asking[request.number], request.server.serving[request.number]
        self._ranks.touch(request.server)

    # -- groups ------------------------------------------------------------------------------

    def _submitted(self, event: Submitted) -> None:
        task = self._task(event.task, event.ns)
        group = GroupBook(task, event.index, event.ns, event.predicted_ns)
        if task.waiting is not None:
            self._report(event.ns, "sequence", f"{group} was submitted while {task.waiting} waits")
        if task.last_index is not None and event.index != task.last_index + 1:
            self._report(
                event.ns, "sequence", f"{group} was submitted after {task.name}#{task.last_index}"
            )
        task.last_index = event.index
        task.stuck_since_ns, task.stuck_told = None, False
        self._budgets.submitted(group)
        self._books.waiting[task] = group

    def _dispatched(self, event: Dispatched) -> None:
        task = self._task(event.task, event.ns)
        gpu = self._books.gpu(event.gpu)
        group = task.waiting
        if group is None or group.index != event.index:
            self._report(
                event.ns,
                "sequence",
                f"{task.name}#{event.index} went online, but {group or 'none of its groups'} waits",
            )
            group = GroupBook(task, event.index, event.ns)
        else:
            task.waiting = None
            del self._books.waiting[task]
            self._ordering.dispatched(group, gpu, event.ns)
            self._budgets.dispatched(group, event.ns)
        if not task.uses(gpu):
            self._report(
                event.ns,
                "sequence",
                f"{group} went online on GPU {gpu.index}, but its task uses GPU {task.gpu}",
            )
        group.dispatched_ns = event.ns
        group.corun = bool(gpu.online) and "shares_gpu" in task.promises
        gpu.last = task
        gpu.online.append(group)

    def _charged(self, event: Charged) -> None:
        found = self._books.find_online(event.task, event.index)
        if found is None:
            name = f"{event.task}#{event.index}"
            self._report(event.ns, "sequence", f"{name} was charged, but is not online")
            return
        gpu, group = found
        until_ns = event.until_ns
        free_ns = until_ns - max(group.dispatched_ns + group.charged_ns, gpu.free_ns)
        if not 0 < event.amount_ns <= free_ns + self._tolerance_ns or until_ns > event.ns:
            self._report(
                event.ns,
                "sequence",
                f"{group} was charged {event.amount_ns} ns until {until_ns} ns, which is not in the"
                f" {max(0, free_ns)} ns that it had GPU {gpu.index} for and was not charged for",
            )
        group.charged_ns += event.amount_ns
        self._budgets.charged(event, group)

    def _overran(self, event: Overran) -> None:
        task = self._task(event.task, event.ns)
        if event.amount_ns <= 0:
            self._report(event.ns, "sequence", f"{event.task} overran by {event.amount_ns} ns")
        self._budgets.overran(event, task)

    def _completed(self, event: Completed) -> None:
        gpu = self._books.gpu(event.gpu)
        group = self._take_online(event, gpu)
        if group is None:
            return
        self._ordering.completed(group.task, event.ns)
        started_ns = event.started_ns - event.overhead_ns
        if event.submitted_ns != group.submitted_ns:
            self._report(
                event.ns,
                "sequence",
                f"{group} was submitted at {group.submitted_ns} ns, not at {event.submitted_ns}",
            )
        too_early = started_ns < group.dispatched_ns - self._tolerance_ns
        if event.started_ns > event.ns or event.overhead_ns < 0 or too_early:
            self._report(
                event.ns,
                "sequence",
                f"{group} started at {started_ns} ns, not between its dispatch at"
                f" {group.dispatched_ns} and its end at {event.ns}",
            )
        if group.charged_ns > event.ns - started_ns:
            self._report(
                event.ns,
                "sequence",
                f"{group} executed for {event.ns - started_ns} ns, but was charged"
                f" {group.charged_ns} before it was done",
            )
        if started_ns + group.charged_ns < gpu.free_ns - self._tolerance_ns:
            self._report(
                event.ns,
                "sequence",
                f"{group} started at {started_ns} ns on GPU {gpu.index}, where another group"
                f" executed until {gpu.free_ns}",
            )
        gpu.free_ns = event.ns
        self._budgets.completed(event, group)
        if group.task.gone and not self._is_online(group.task):
            self._budgets.leave(group.task, event.ns)

    def _is_online(self, task: TaskBook) -> bool:
        return any(g.task is task for gpu in self._books.gpus.values() for g in gpu.online)

    def _take_online(self, event: Completed, gpu: GpuBook) -> GroupBook | None:
        """The group of this event, taken from the online list."""
        for group in gpu.online:
            if group.task.name == event.task and group.index == event.index:
                break
        else:
            name = f"{event.task}#{event.index}"
            self._report(
                event.ns,
                "sequence",
                f"{name} completed on GPU {gpu.index}, but is not online there",
            )
            return None
        if group is not gpu.online[0] and not group.corun:
            self._report(
                event.ns,
                "sequence",
                f"{group} completed on GPU {gpu.index} before {gpu.online[0]}, which was first",
            )
        gpu.online.remove(group)
        return group

    def _end(self, event: Ended) -> None:
        self.ended = True


def check(events: Iterable[Event], tolerance_ns: int = 0) -> Checker:
    """Check a whole stream."""
    checker = Checker(tolerance_ns)
    for event in events:
        checker.feed(event)
    return checker
