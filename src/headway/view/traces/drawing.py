"""What Perfetto shows of a run: GPUs, tasks, budgets and decisions.

    GPU 0          a slice per group that executed
      decisions    an instant per dispatch
    Reserves       the budget of each, in us
    Tasks          who gets the focus, and how the run ended
      (each task)  what its groups did: waiting (submitted, not dispatched), queued (dispatched, not
                   started), running; and changes of priority, requests, frames

The UI opens with the tracks that have others below them, closed; so these show something as well.
Nothing is kept but the state of tasks that exist and the last budget of each reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.engine import events
from headway.engine.model import level_of
from headway.view.traces.tracks import (
    Annotation,
    Canvas,
    Counter,
    Lane,
    Rows,
    known_name,
    written_name,
)

_NAMES = ("waiting", "queued", "running", "unfinished", "frame")
_WAITING, _QUEUED, _RUNNING, _UNFINISHED, _FRAME = map(known_name, range(1, len(_NAMES) + 1))
_ANNOTATIONS = ("index", "submitted_ns", "wait_ns", "priority", "deadline_missed")
_INDEX, _SUBMITTED, _WAIT, _PRIORITY, _MISSED = map(Annotation, range(1, len(_ANNOTATIONS) + 1))


class _Open:
    """A group that is not done; its lane is kept for it."""

    __slots__ = ("dispatched_ns", "lane", "submitted_ns")

    def __init__(self, lane: Lane, submitted_ns: int) -> None:
        self.lane = lane
        self.submitted_ns = submitted_ns
        self.dispatched_ns: int | None = None


class _Task:
    """A task that exists, or of which groups are still online."""

    __slots__ = ("name", "open", "priority", "removed", "rows", "waiting")

    def __init__(self, name: bytes, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        self.priority = b""
        self.open: dict[int, _Open] = {}
        self.waiting: int | None = None
        """The index of the group at the gate: a task has at most one there."""
        self.removed = False


class _Gpu:
    """Groups follow each other on a GPU, unless one may start while another drains."""

    __slots__ = ("decisions", "rows")

    def __init__(self, canvas: Canvas, index: int) -> None:
        self.rows = Rows(canvas, f"GPU {index}")
        self.decisions = Lane(canvas.track("decisions", self.rows.first.track))


class _Budget:
    __slots__ = ("budget_ns", "counter")

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.budget_ns = 0


class Drawing:
    """Appends to `out` the packets that show each event."""

    def __init__(self, out: bytearray) -> None:
        self._canvas = Canvas(out, _NAMES, _ANNOTATIONS)
        self._top: Lane | None = None
        self._reserves = 0
        self._tasks: dict[str, _Task] = {}
        self._gpus: dict[int, _Gpu] = {}
        self._budgets: dict[str, _Budget] = {}
        self._drawers: dict[type[events.Event], Callable[[Any], None]] = {
            events.TaskAdded: self._task_added,
            events.TaskRemoved: self._task_removed,
            events.Ranked: self._ranked,
            events.ReserveSet: self._budget_told,
            events.Submitted: self._submitted,
            events.Withdrawn: self._withdrawn,
            events.Dispatched: self._dispatched,
            events.Completed: self._completed,
            events.Replenished: self._budget_told,
            events.Moved: self._moved,
            events.Entered: self._entered,
            events.Left: self._left,
            events.Focused: self._focused,
            events.Shown: self._shown,
            events.Ended: self._ended,
        }

    def draw(self, event: events.Event) -> None:
        """Show this event; kinds that have no place in the picture are left out."""
        drawer = self._drawers.get(type(event))
        if drawer is not None:
            drawer(event)

    def _all_tasks(self) -> Lane:
        if self._top is None:
            self._top = Lane(self._canvas.track("Tasks"))
        return self._top

    def _gpu(self, index: int) -> _Gpu:
        gpu = self._gpus.get(index)
        if gpu is None:
            gpu = self._gpus[index] = _Gpu(self._canvas, index)
        return gpu

    # -- tasks -------------------------------------------------------------------------------

    def _task(self, name: str, description: str = "") -> _Task:
        task = self._tasks.get(name)
        if task is None:
            rows = Rows(self._canvas, name, self._all_tasks().track, description)
            task = self._tasks[name] = _Task(self._canvas.name(name), rows)
        return task

    def _task_added(self, event: events.TaskAdded) -> None:
        task = self._task(event.task, f"policy {event.policy}, priority {event.priority}")
        task.priority = _PRIORITY.integer(level_of(event.rank))
        task.removed = False

    def _task_removed(self, event: events.TaskRemoved) -> None:
        task = self._task(event.task)
        task.removed = True
        if task.waiting is not None:
            group = self._close(event.task, task, task.waiting)
            self._canvas.slice(group.lane, _WAITING, group.submitted_ns, event.ns)
        elif not task.open:
            del self._tasks[event.task]

    def _ranked(self, event: events.Ranked) -> None:
        task = self._task(event.task)
        task.priority = _PRIORITY.integer(level_of(event.rank))
        name = f"priority {level_of(event.rank)}"
        if event.rank != event.base_rank:
            name += f" (own {level_of(event.base_rank)})"
        self._canvas.instant(event.ns, task.rows.first, written_name(name))

    def _entered(self, event: events.Entered) -> None:
        name = written_name(f"request {event.request} from {event.client}")
        self._canvas.instant(event.ns, self._task(event.server).rows.first, name)

    def _left(self, event: events.Left) -> None:
        name = written_name(f"answer {event.request} to {event.client}")
        self._canvas.instant(event.ns, self._task(event.server).rows.first, name)

    def _shown(self, event: events.Shown) -> None:
        self._canvas.instant(event.ns, self._task(event.task).rows.first, _FRAME)

    def _focused(self, event: events.Focused) -> None:
        name = written_name(f"focus {event.task}" if event.task is not None else "focus elsewhere")
        self._canvas.instant(event.ns, self._all_tasks(), name)

    # -- groups ------------------------------------------------------------------------------

    def _close(self, name: str, task: _Task, index: int) -> _Open:
        """Forget a group, and with the last one a task that is gone."""
        group = task.open.pop(index)
        group.lane.busy = False
        if task.waiting == index:
            task.waiting = None
        if task.removed and not task.open:
            del self._tasks[name]
        return group

    def _submitted(self, event: events.Submitted) -> None:
        task = self._task(event.task)
        task.removed = False
        for index in (task.waiting, event.index):
            if index is not None and index in task.open:
                self._close(event.task, task, index)  # it was withdrawn: nothing says when
        lane = task.rows.free(event.ns)
        lane.busy = True
        task.open[event.index] = _Open(lane, event.ns)
        task.waiting = event.index

    def _withdrawn(self, event: events.Withdrawn) -> None:
        task = self._task(event.task)
        if task.waiting == event.index and event.index in task.open:
            group = self._close(event.task, task, event.index)
            self._canvas.slice(group.lane, _WAITING, group.submitted_ns, event.ns)

    def _dispatched(self, event: events.Dispatched) -> None:
        task = self._task(event.task)
        decision = task.name + _INDEX.integer(event.index)
        self._canvas.instant(event.ns, self._gpu(event.gpu).decisions, decision)
        if task.waiting == event.index:
            task.waiting = None
            group = task.open[event.index]
            group.dispatched_ns = event.ns
            self._canvas.slice(group.lane, _WAITING, group.submitted_ns, event.ns)

    def _completed(self, event: events.Completed) -> None:
        canvas = self._canvas
        task = self._task(event.task)
        start_ns = event.started_ns
        executed = (
            task.name
            + _INDEX.integer(event.index)
            + _SUBMITTED.integer(event.submitted_ns)
            + _WAIT.integer(start_ns - event.submitted_ns)
            + task.priority
        )
        if event.deadline_ns is not None:
            executed += _MISSED.bool(event.ns > event.deadline_ns)
        lane = self._gpu(event.gpu).rows.free(start_ns)
        canvas.annotated(lane, executed, start_ns, event.ns)
        if event.index in task.open:
            group = self._close(event.task, task, event.index)
            lane = group.lane
            if group.dispatched_ns is not None:
                canvas.slice(lane, _QUEUED, group.dispatched_ns, start_ns)
        else:
            lane = task.rows.free(start_ns)
        canvas.slice(lane, _RUNNING, start_ns, event.ns)
        if event.reserve is not None:
            self._show_budget(event.ns, self._budget(event.reserve), event.budget_ns)

    # -- budgets -----------------------------------------------------------------------------

    def _budget(self, reserve: str) -> _Budget:
        budget = self._budgets.get(reserve)
        if budget is None:
            self._reserves = self._reserves or self._canvas.track("Reserves")
            track = self._canvas.track(reserve, self._reserves, unit="us")
            budget = self._budgets[reserve] = _Budget(Counter(track))
        return budget

    def _show_budget(self, ns: int, budget: _Budget, budget_ns: int) -> None:
        budget.budget_ns = budget_ns
        self._canvas.put(ns, budget.counter.at(budget_ns / 1000))

    def _budget_told(self, event: events.ReserveSet | events.Replenished) -> None:
        self._show_budget(event.ns, self._budget(event.reserve), event.budget_ns)

    def _moved(self, event: events.Moved) -> None:
        giver, taker = self._budget(event.giver), self._budget(event.taker)
        self._show_budget(event.ns, giver, giver.budget_ns - event.amount_ns)
        self._show_budget(event.ns, taker, taker.budget_ns + event.amount_ns)

    # -- the end -----------------------------------------------------------------------------

    def _ended(self, event: events.Ended) -> None:
        for task in self._tasks.values():
            for group in task.open.values():
                if group.dispatched_ns is None:
                    self._canvas.slice(group.lane, _WAITING, group.submitted_ns, event.ns)
                else:
                    self._canvas.slice(group.lane, _UNFINISHED, group.dispatched_ns, event.ns)
        name = written_name("end" if event.complete else "interrupted")
        self._canvas.instant(event.ns, self._all_tasks(), name)
