"""What Perfetto shows of a run: GPUs, tasks, servers, budgets, frame rates and decisions.

    GPU 0          a slice per group that executed
      decisions    an instant per dispatch
    Frame rates    of each task that shows frames
    Reserves       the budget of each, in us
    Shares         of the multiprocessors, of each task that has one
    Tasks          who gets the focus, and how the run ended
      (each task)  what its groups did: waiting (submitted, not dispatched), waiting for budget (its
                   reserve does not let it through), queued (dispatched, not started), running, or
                   leased (it goes without asking); and changes of priority, frames
    server X       a slice per request, from when it was made to when it was answered

The UI opens with the tracks that have others below them, closed; so these show something as well.
Nothing is kept but the state of tasks that exist and the last budget of each reserve.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.engine import events
from headway.engine.model import level_of
from headway.view.traces.counters import Budgets, FrameRates, Shares
from headway.view.traces.tracks import (
    Annotation,
    Canvas,
    Lane,
    Rows,
    known_name,
    written_name,
)

_NAMES = (
    "waiting", "waiting for budget", "queued", "running", "leased", "unfinished", "frame",
)  # fmt: skip
(
    _WAITING, _FOR_BUDGET, _QUEUED, _RUNNING, _LEASED, _UNFINISHED, _FRAME,
) = map(known_name, range(1, len(_NAMES) + 1))  # fmt: skip
_ANNOTATIONS = ("index", "wait_ns", "priority", "deadline_missed")
_INDEX, _WAIT, _PRIORITY, _MISSED = map(Annotation, range(1, len(_ANNOTATIONS) + 1))


class _Open:
    """A group that is not done; its lane is kept for it."""

    __slots__ = ("dispatched_ns", "lane", "leased", "predicted_ns", "since_ns", "state")

    def __init__(self, lane: Lane, submitted_ns: int, predicted_ns: int) -> None:
        self.lane = lane
        self.predicted_ns = predicted_ns
        self.since_ns = submitted_ns
        """Since when it waits as it does now."""
        self.state = _WAITING
        self.dispatched_ns: int | None = None
        self.leased = False


class _Task:
    """A task that exists, or of which groups are still online."""

    __slots__ = ("name", "open", "priority", "removed", "reserve", "rows", "waiting")

    def __init__(self, name: bytes, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        self.priority = b""
        self.reserve: str | None = None
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


class Drawing:
    """Makes the packets that show each event."""

    def __init__(self, shows: Callable[[str], bool] | None = None) -> None:
        """`shows` says of which tasks there is to be a track; the GPU shows all of them."""
        self._canvas = Canvas(_NAMES, _ANNOTATIONS)
        self._shows = shows
        self._top: Lane | None = None
        self._tasks: dict[str, _Task] = {}
        self._gpus: dict[int, _Gpu] = {}
        self._servers: dict[str, Rows] = {}
        self._requests: dict[int, tuple[Lane, int, str]] = {}
        """Pending ones: where they are drawn, since when, and who asked."""
        self._budgets = Budgets(self._canvas)
        self._rates = FrameRates(self._canvas)
        self._shares = Shares(self._canvas)
        self._taking_up = False
        self._drawers: dict[type[events.Event], Callable[[Any], None]] = {
            events.TaskAdded: self._task_added,
            events.TaskRemoved: self._task_removed,
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
            events.Entered: self._entered,
            events.Left: self._left,
            events.Focused: self._focused,
            events.Shown: self._shown,
            events.Passed: self._passed,
            events.ShareSet: self._share_set,
            events.TakenUp: self._taken_up,
            events.Found: self._found,
            events.Ended: self._ended,
        }

    def draw(self, event: events.Event) -> None:
        """Show this event; kinds that have no place in the picture are left out."""
        drawer = self._drawers.get(type(event))
        if drawer is not None:
            drawer(event)

    def take(self) -> bytearray:
        """The packets since the last time."""
        return self._canvas.take()

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
            shown = self._shows is None or self._shows(name)
            rows = Rows(self._canvas, name, self._all_tasks().track, description, shown=shown)
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
            self._stop_waiting(event.task, task, event.ns)
        elif not task.open:
            del self._tasks[event.task]

    def _ranked(self, event: events.Ranked) -> None:
        task = self._task(event.task)
        task.priority = _PRIORITY.integer(level_of(event.rank))
        name = f"priority {level_of(event.rank)}"
        if event.rank != event.base_rank:
            name += f" (own {level_of(event.base_rank)})"
        elif self._taking_up:
            return
        self._canvas.instant(event.ns, task.rows.first, written_name(name))

    def _shown(self, event: events.Shown) -> None:
        self._canvas.instant(event.ns, self._task(event.task).rows.first, _FRAME)
        self._count_frames(event.ns, event.task, 1)

    def _count_frames(self, ns: int, task: str, frames: int) -> None:
        if self._shows is None or self._shows(task):
            self._rates.add(ns, task, frames)

    def _share_set(self, event: events.ShareSet) -> None:
        self._shares.show(event.ns, event.task, event.permille)

    def _passed(self, event: events.Passed) -> None:
        for group in self._task(event.task).open.values():
            group.leased = True
        self._count_frames(event.ns, event.task, event.frames)

    def _focused(self, event: events.Focused) -> None:
        name = written_name(f"focus {event.task}" if event.task is not None else "focus elsewhere")
        self._canvas.instant(event.ns, self._all_tasks(), name)

    # -- servers -----------------------------------------------------------------------------

    def _entered(self, event: events.Entered) -> None:
        rows = self._servers.get(event.server)
        if rows is None:
            rows = self._servers[event.server] = Rows(self._canvas, f"server {event.server}")
        if event.request in self._requests:
            self._answer(event.request, event.ns)
        lane = rows.free(event.ns)
        lane.busy = True
        self._requests[event.request] = lane, event.ns, event.client

    def _left(self, event: events.Left) -> None:
        if event.request in self._requests:
            self._answer(event.request, event.ns)

    def _answer(self, request: int, ns: int) -> None:
        lane, since_ns, client = self._requests.pop(request)
        lane.busy = False
        if since_ns < ns:
            self._canvas.slice(lane, self._task(client).name, since_ns, ns)
        else:
            self._canvas.instant(ns, lane, self._task(client).name)

    # -- groups ------------------------------------------------------------------------------

    def _close(self, name: str, task: _Task, index: int) -> _Open:
        """Forget a group, and with the last one a task that is gone."""
        group = task.open.pop(index)
        group.lane.busy = False
        if task.waiting == index:
            task.waiting = None
            self._budgets.stops(task.reserve, name)
        if task.removed and not task.open:
            del self._tasks[name]
        return group

    def _stop_waiting(self, name: str, task: _Task, ns: int) -> None:
        """The group at the gate goes away from there, and not to the GPU."""
        assert task.waiting is not None
        group = self._close(name, task, task.waiting)
        self._canvas.slice(group.lane, group.state, group.since_ns, ns)

    def _submitted(self, event: events.Submitted) -> None:
        task = self._task(event.task)
        task.removed = False
        for index in (task.waiting, event.index):
            if index is not None and index in task.open:
                self._close(event.task, task, index)  # it was withdrawn: nothing says when
        lane = task.rows.free(event.ns)
        lane.busy = True
        task.open[event.index] = _Open(lane, event.ns, event.predicted_ns)
        task.waiting = event.index
        self._budgets.waits(task.reserve, event.task)
        self._look_at(event.task, event.ns)

    def _predicted(self, event: events.Predicted) -> None:
        task = self._task(event.task)
        if task.waiting == event.index:
            task.open[event.index].predicted_ns = event.predicted_ns
            self._look_at(event.task, event.ns)

    def _look_at(self, name: str, ns: int) -> None:
        """What the task waits for may have changed."""
        task = self._tasks[name]
        if task.waiting is None:
            return
        group = task.open[task.waiting]
        allowed = self._budgets.lets_through(task.reserve, group.predicted_ns)
        state = _WAITING if allowed else _FOR_BUDGET
        if state != group.state:
            self._canvas.slice(group.lane, group.state, group.since_ns, ns)
            group.state, group.since_ns = state, ns

    def _withdrawn(self, event: events.Withdrawn) -> None:
        task = self._task(event.task)
        if task.waiting == event.index and event.index in task.open:
            self._stop_waiting(event.task, task, event.ns)

    def _dispatched(self, event: events.Dispatched) -> None:
        task = self._task(event.task)
        if not self._taking_up:
            self._canvas.instant(event.ns, self._gpu(event.gpu).decisions, task.name)
        if task.waiting == event.index:
            task.waiting = None
            self._budgets.stops(task.reserve, event.task)
            group = task.open[event.index]
            group.dispatched_ns = event.ns
            self._canvas.slice(group.lane, group.state, group.since_ns, event.ns)

    def _completed(self, event: events.Completed) -> None:
        canvas = self._canvas
        task = self._task(event.task)
        start_ns = event.started_ns
        executed = (
            task.name
            + _INDEX.integer(event.index)
            + _WAIT.integer(start_ns - event.submitted_ns)
            + task.priority
        )
        if event.deadline_ns is not None:
            executed += _MISSED.bool(event.ns > event.deadline_ns)
        lane = self._gpu(event.gpu).rows.free(start_ns)
        canvas.annotated(lane, executed, start_ns, event.ns)
        if event.index in task.open:
            group = self._close(event.task, task, event.index)
            if group.leased and group.dispatched_ns is not None:
                canvas.slice(group.lane, _LEASED, group.dispatched_ns, event.ns)
            else:
                if group.dispatched_ns is not None:
                    canvas.slice(group.lane, _QUEUED, group.dispatched_ns, start_ns)
                canvas.slice(group.lane, _RUNNING, start_ns, event.ns)
        else:
            canvas.slice(task.rows.free(start_ns), _RUNNING, start_ns, event.ns)
        if event.frame:
            self._count_frames(event.ns, event.task, 1)
        if event.reserve is not None:
            self._show_budget(event.ns, event.reserve, event.budget_ns)

    # -- budgets -----------------------------------------------------------------------------

    def _show_budget(self, ns: int, reserve: str, budget_ns: int) -> None:
        self._budgets.show(ns, reserve, budget_ns)
        self._look_again(reserve, ns)

    def _look_again(self, reserve: str, ns: int) -> None:
        for name in self._budgets.waiting(reserve):
            self._look_at(name, ns)

    def _reserve_set(self, event: events.ReserveSet) -> None:
        self._budgets.set_kind(event.reserve, event.policy)
        self._show_budget(event.ns, event.reserve, event.budget_ns)

    def _charged(self, event: events.Charged) -> None:
        if event.reserve is not None:
            self._show_budget(event.ns, event.reserve, event.budget_ns)

    def _overran(self, event: events.Overran) -> None:
        self._show_budget(event.ns, event.reserve, event.budget_ns)

    def _replenished(self, event: events.Replenished) -> None:
        self._show_budget(event.ns, event.reserve, event.budget_ns)

    def _joined(self, event: events.Joined) -> None:
        task = self._task(event.task)
        if task.waiting is not None:
            self._budgets.stops(task.reserve, event.task)
            self._budgets.waits(event.reserve, event.task)
        task.reserve = event.reserve
        self._look_at(event.task, event.ns)

    def _moved(self, event: events.Moved) -> None:
        if self._taking_up:  # what is held, not what moves
            return
        self._budgets.move(event.ns, event.giver, event.taker, event.amount_ns)
        self._look_again(event.giver, event.ns)
        self._look_again(event.taker, event.ns)

    # -- begin and end -----------------------------------------------------------------------

    def _forget(self) -> None:
        """Nobody knows what became of what was going on."""
        for name, task in list(self._tasks.items()):
            for index in list(task.open):
                self._close(name, task, index)
            task.removed = True
            task.reserve = None
        for lane, _, _ in self._requests.values():
            lane.busy = False
        self._requests.clear()

    def _taken_up(self, event: events.TakenUp) -> None:
        self._taking_up = True
        self._forget()
        if event.dropped:
            name = written_name(f"{event.dropped} records dropped")
            self._canvas.instant(event.ns, self._all_tasks(), name)

    def _found(self, event: events.Found) -> None:
        self._taking_up = False
        for name in [name for name, t in self._tasks.items() if t.removed and not t.open]:
            del self._tasks[name]

    def _ended(self, event: events.Ended) -> None:
        for task in self._tasks.values():
            for group in task.open.values():
                if group.dispatched_ns is None:
                    self._canvas.slice(group.lane, group.state, group.since_ns, event.ns)
                elif group.leased:
                    self._canvas.slice(group.lane, _LEASED, group.dispatched_ns, event.ns)
                else:
                    self._canvas.slice(group.lane, _UNFINISHED, group.dispatched_ns, event.ns)
        for request in list(self._requests):
            self._answer(request, event.ns)
        self._rates.end(event.ns)
        name = written_name("end" if event.complete else "interrupted")
        self._canvas.instant(event.ns, self._all_tasks(), name)
