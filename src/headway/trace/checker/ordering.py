"""Who may go online when: `one-online`, `ht-order`, `priority` and `work-conserving`.

What a policy promises decides whom its groups may pass; records say it of each task, also of
policies that somebody brought along:

- `needs_idle`: a group never goes onto a busy GPU.
- `keeps_rank`: on an idle GPU a group must not pass a more important one whose policy promises the
  same, and takes every idle GPU or is the same policy: what refuses an idle GPU may be passed, and
  events do not tell when that is. But a group that goes shows that others of its policy could have.
- `keeps_rank` on a busy GPU: a group must not pass *any* ready group of a strictly more important
  task: TimeGraph's condition (§4.1) asks who is ready in the wait queue, not what they wait for,
  and a longer online list delays every one of them. `follows_own`: only behind its own task's.
- `takes_idle` with `keeps_rank`: no idle GPU is left to nobody while such a group is ready.
- not `decides`: nothing keeps a group from going online; so it never waits.
"""

from __future__ import annotations

from headway.trace.checker.books import Books, GpuBook, GroupBook, TaskBook
from headway.trace.checker.rules import Report


def _is_rival(other: TaskBook, task: TaskBook) -> bool:
    """Whether a group of this task must not pass one of the other on an idle GPU."""
    if "keeps_rank" not in other.promises:
        return False
    return "takes_idle" in other.promises or other.policy == task.policy


class Ordering:
    """Looks at every dispatch, and at everybody who still waits when an instant is over."""

    def __init__(self, books: Books, report: Report, tolerance_ns: int) -> None:
        self._books = books
        self._report = report
        self._tolerance_ns = tolerance_ns

    def dispatched(self, group: GroupBook, gpu: GpuBook, ns: int) -> None:
        """A group leaves the waiting ones; it is not yet in the GPU's online list."""
        policy, promises = group.task.policy, group.task.promises
        if not gpu.online:
            if "keeps_rank" in promises:
                self._check_first(group, gpu, ns)
        elif "needs_idle" in promises:
            self._report(
                ns,
                "one-online",
                f"{group} ({policy}) went online on GPU {gpu.index}, where {gpu.online[0]} is",
            )
        elif "keeps_rank" in promises or "follows_own" in promises:
            self._check_follows(group, gpu, ns)

    def completed(self, task: TaskBook, ns: int) -> None:
        """A group of the task is done: the others of its parties wait from here on."""
        for party in task.parties:
            self._books.last_ns[party] = ns

    def _check_first(self, group: GroupBook, gpu: GpuBook, ns: int) -> None:
        own = self._place(group)
        for task, other in self._books.waiting.items():
            known = _is_rival(task, group.task) and task.uses(gpu)
            if known and self._place(other) < own and task.is_ready:
                self._report(
                    ns,
                    "priority",
                    f"{group} went online on the idle GPU {gpu.index} past {other}, which is ready"
                    f" and {_why_first(other, group)}",
                )
                return

    def _place(self, group: GroupBook) -> tuple[int, ...]:
        """By rank, by how long the parties of the task have waited, then as it came."""
        task, since_ns = group.task, group.submitted_ns
        last = [self._books.last_ns[party] for party in task.parties] or [since_ns]
        waited = max(since_ns, last[0]), max(since_ns, last[-1])
        return task.rank, *waited, since_ns, task.order

    def _check_follows(self, group: GroupBook, gpu: GpuBook, ns: int) -> None:
        executing = gpu.online[0]
        promises = group.task.promises
        if "follows_own" in promises and executing.task is not group.task:
            self._report(
                ns,
                "ht-order",
                f"{group} went online on GPU {gpu.index} behind {executing}, another task's",
            )
            return
        if "keeps_rank" not in promises:
            return
        better = self._more_important(group.task, gpu)
        if better is not None:
            self._report(
                ns,
                "ht-order",
                f"{group} followed {executing} on GPU {gpu.index} past {better}, which is ready and"
                " more important",
            )

    def _more_important(self, task: TaskBook, gpu: GpuBook) -> GroupBook | None:
        """A ready group of a task with a strictly better rank, of whatever policy."""
        for other, group in self._books.waiting.items():
            if other.rank < task.rank and other.is_ready and other.uses(gpu):
                return group
        return None

    def end_instant(self, now_ns: int, next_ns: int) -> None:
        """Nothing more happens at `now_ns`: who still waits has to wait until `next_ns`."""
        for task, group in self._books.waiting.items():
            gpu = self._could_have(task, group, now_ns)
            if gpu is None:
                task.stuck_since_ns = None
                task.stuck_told = False
                continue
            if task.stuck_since_ns is None:
                task.stuck_since_ns = now_ns
            if next_ns - task.stuck_since_ns > self._tolerance_ns and not task.stuck_told:
                task.stuck_told = True
                state = f"executes {gpu.online[0]}" if gpu.online else "is idle"
                self._report(
                    next_ns,
                    "work-conserving",
                    f"{group} ({task.policy}) is ready and waits since {task.stuck_since_ns} ns,"
                    f" though GPU {gpu.index} {state}",
                )

    def _could_have(self, task: TaskBook, group: GroupBook, now_ns: int) -> GpuBook | None:
        """A GPU that this task's policy would let its waiting group have now."""
        promises = task.promises
        waits_for_none = bool(promises) and "decides" not in promises
        in_order = {"takes_idle", "keeps_rank"} <= promises
        if not (waits_for_none or in_order) or not task.is_ready:
            return None
        for gpu in self._books.gpus.values():
            if not task.uses(gpu):
                continue
            if waits_for_none or (not gpu.online and not self._is_kept(gpu, group, now_ns)):
                return gpu
            if not gpu.online:
                continue
            own = "follows_own" in promises and gpu.online[0].task is task
            if own and not self._more_important(task, gpu):
                return gpu
        return None

    def _is_kept(self, gpu: GpuBook, group: GroupBook, now_ns: int) -> bool:
        """Whether an idle GPU is held off for the more important task that used it last."""
        last = gpu.last
        if last is None or last.rank >= group.task.rank or last.waiting is not None:
            return False
        if now_ns >= gpu.free_ns + last.holdoff_ns:
            return False
        # Since when a group is ready is not in the stream; not before its reserve last gained.
        ready = [
            max(g.submitted_ns, t.joined_ns, 0 if t.reserve is None else t.reserve.gained_ns)
            for t, g in self._books.waiting.items()
            if t.is_ready and t.uses(gpu)
        ]
        return now_ns < min(ready) + last.patience_ns


def _why_first(first: GroupBook, second: GroupBook) -> str:
    if first.task.rank < second.task.rank:
        return "more important"
    if first.task.parties != second.task.parties:
        return "as important, and its process or its user has waited for longer"
    if first.submitted_ns < second.submitted_ns:
        return "as important and was submitted earlier"
    return "as important, and its task came earlier"
