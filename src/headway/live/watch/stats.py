"""What the last seconds were like for each task: waits and what they were for, GPU time, frames.

An observer like any other, so it can be tried on simulated runs. Every event costs about the same
however many tasks there are. Who held the GPU when is kept in one short list for all; a wait that
ends is laid over it. A wait that saw very many changes is laid over the last of them; what is left
of it is for whoever had the GPU at some instants within, and of a short wait for "others".
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headway.engine.events import Observer
from headway.engine.jobs import Job
from headway.engine.model import Gpu, Group, Task
from headway.live.watch.window import OTHERS, SHORT_SLOTS, SLOT_NS, SLOTS, Cause, Slot, Window
from headway.trace.statistics import Quantiles

BUDGET = Cause("budget")
FREE = Cause("free")
"""The GPU was idle and kept for nobody: the policy let it wait."""

_CHANGES = 16_384
"""Half a second of the busiest GPU; a wait is accounted for when it ends, however long it was."""
_MASK = _CHANGES - 1
_STEPS, _MOST_STEPS = 12, 24
"""Changes of the holder that any wait is laid over; a longer wait gets one more for each ms, up to
so many. Those who wait longest are many, and their grants must not cost more than others'."""
_STEP_NS = 1_000_000
_SAMPLES = 16
"""Instants of the rest of a long wait that are looked at, one for each ms of it at most."""
FRAME_MARK_NS = 500_000_000
FRAME_MARKS = 4
MAX_FPS = 100_000
"""What a program says of its frames is believed up to here."""


@dataclass(slots=True)
class Mean:
    """The mean of numbers that are not kept."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float, count: int = 1) -> None:
        """Count a number, or so many whose sum is `value`."""
        self.total += value
        self.count += count

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Waits:
    """Of the groups that had to ask in the last seconds."""

    p50_ns: int
    p99_ns: int
    max_ns: int


class TaskStats:
    """One task."""

    def __init__(self, task: Task, now_ns: int) -> None:
        self.task = task
        self.since_ns = now_ns
        self.window = Window()
        self.holds = Cause("gpu", task.name)
        """What others wait for while it is on the GPU."""
        self.keeps = Cause("holdoff", task.name)
        """And while the GPU is kept free for it."""
        self.mark_ns = 0
        """Up to here its wait is accounted for."""
        self.blocked = False
        """It was out of budget there."""
        self.ready_ns = 0
        """What its group said then of when it was ready: another time means that it became so."""
        self.leased = False
        self.sampled_ns = 0
        """GPU time of the lease it holds that is counted already."""
        self.gpu_ns = 0
        self.wait_ns = 0
        self.jobs = self.misses = 0
        self.responses = Quantiles()
        """How long the jobs took that were seen by themselves."""
        self.slowdowns = Mean()
        """How much longer they took than alone, as a part of that, where somebody knows."""
        self.frames = 0
        """Those that are believed."""
        self._frames_seen = 0
        self._marks = [(now_ns, 0)]
        self.sampled_at_ns = now_ns

    def saw_frames(self, counter: int, now_ns: int) -> None:
        """The counter of its page, which may hold anything."""
        most = MAX_FPS * (now_ns - self.sampled_at_ns) // SLOT_NS + 1
        self.frames += min(max(counter - self._frames_seen, 0), most)
        self._frames_seen, self.sampled_at_ns = counter, now_ns
        if now_ns - self._marks[-1][0] >= FRAME_MARK_NS:
            self._marks.append((now_ns, self.frames))
            del self._marks[:-FRAME_MARKS]

    @property
    def is_still(self) -> bool:
        """No frame was shown lately."""
        return self._marks[0][1] == self.frames == self._marks[-1][1]

    @property
    def fps(self) -> float | None:
        """Over the last one or two seconds; None for a program that never showed a frame."""
        if not self.frames:
            return None
        since_ns, before = self._marks[0]
        lasted_ns = self.sampled_at_ns - since_ns
        return (self.frames - before) * 1e9 / lasted_ns if lasted_ns > 0 else None


class Stats(Observer):
    """All tasks of one GPU."""

    def __init__(self) -> None:
        self.tasks: dict[Task, TaskStats] = {}
        self._waiting: dict[Task, TaskStats] = {}
        self._forget()

    def _forget(self) -> None:
        self.tasks.clear()
        self._waiting.clear()
        self._since_ns: int | None = None
        self._gpu = Window()
        self._slot = 0
        self._slot_ends_ns = SLOT_NS
        self._times_ns = [0] * _CHANGES
        self._holders: list[Cause] = [FREE] * _CHANGES
        self._count = 1
        """Changes of the holder so far; the last one is in force."""

    # -- what the engine says ----------------------------------------------------------------

    def began(self, gpus: int, now_ns: int) -> None:
        """A new engine, perhaps after one that failed."""
        self._forget()

    def task_added(self, task: Task, now_ns: int) -> None:
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        if self._since_ns is None:
            self._since_ns = now_ns
        self.tasks[task] = TaskStats(task, now_ns)

    def task_removed(self, task: Task, now_ns: int) -> None:
        self.tasks.pop(task, None)
        self._waiting.pop(task, None)

    def submitted(self, group: Group, now_ns: int) -> None:
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        task = group.task
        entry = self.tasks[task]
        self._waiting[task] = entry
        entry.mark_ns = entry.ready_ns = now_ns
        entry.blocked = task.reserve is not None and not task.reserve.lets_through(group)

    def withdrawn(self, group: Group, now_ns: int) -> None:
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        entry = self.tasks[group.task]
        self._settle(entry, group, now_ns, ready=not entry.blocked)
        self._waiting.pop(group.task, None)

    def dispatched(self, group: Group, now_ns: int) -> None:
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        entry = self.tasks[group.task]
        slot = entry.window.latest
        if slot.number != self._slot:
            slot = entry.window.slot(self._slot)
        if entry.blocked:
            self._settle(entry, group, now_ns, ready=True)
        elif entry.mark_ns >= self._slot_ends_ns - SLOT_NS:
            if entry.mark_ns < now_ns:
                self._blame(slot, entry.mark_ns, now_ns)
        else:
            self._blame_slots(entry, now_ns)
        self._waiting.pop(group.task, None)
        if group.leased:
            entry.leased = True
            entry.sampled_ns = 0
        else:
            wait_ns = now_ns - group.submitted_ns
            entry.wait_ns += wait_ns
            slot.add_wait(wait_ns)
        if group.gpu.online[0] is group:
            self._held_by(entry.holds, now_ns)

    def charged(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None:
        """Its GPU time is counted as it is sampled, and when it is done."""
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        self._out_of_budget(group.task, now_ns)

    def overran(self, task: Task, amount_ns: int, now_ns: int) -> None:
        """The time was another's too, and is counted as that one's."""
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        self._out_of_budget(task, now_ns)

    def completed(self, group: Group, now_ns: int) -> None:
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        task, gpu = group.task, group.gpu
        entry = self.tasks.get(task)
        if entry is not None:
            spent_ns = now_ns - group.started_ns
            if group.leased:
                spent_ns = max(0, spent_ns - entry.sampled_ns)
                entry.leased = False
                entry.sampled_ns = 0
            self._spend(entry, spent_ns, now_ns)
        self._out_of_budget(task, now_ns)
        if gpu.online:
            holder = self.tasks.get(gpu.online[0].task)
            self._held_by(OTHERS if holder is None else holder.holds, now_ns)
        else:
            last = entry if gpu.last_task is task else self._last_on(gpu)
            self._held_by(FREE if last is None else last.keeps, now_ns)

    def job_ended(self, job: Job, now_ns: int) -> None:
        """Those that nobody saw count as well: they have numbers."""
        entry = self.tasks.get(job.task) if isinstance(job.task, Task) else None
        if entry is not None:
            entry.jobs = max(entry.jobs, job.number + 1)
            entry.misses += job.missed
            entry.responses.pending.append(job.response_ns)
            entry.responses.fold()
            if job.slowdown is not None:
                entry.slowdowns.add(job.slowdown)

    def _last_on(self, gpu: Gpu) -> TaskStats | None:
        return None if gpu.last_task is None else self.tasks.get(gpu.last_task)

    def _spend(self, entry: TaskStats, spent_ns: int, now_ns: int) -> None:
        entry.gpu_ns += spent_ns
        if now_ns - spent_ns >= self._slot_ends_ns - SLOT_NS:
            for window in (entry.window, self._gpu):
                slot = window.latest
                if slot.number != self._slot:
                    slot = window.slot(self._slot)
                slot.gpu_ns += spent_ns
        else:
            entry.window.spend(now_ns - spent_ns, now_ns)
            self._gpu.spend(now_ns - spent_ns, now_ns)

    # -- what waits are for ------------------------------------------------------------------

    def _held_by(self, cause: Cause, now_ns: int) -> None:
        """From now on this is what others wait for."""
        last = self._count - 1 & _MASK
        if self._times_ns[last] != now_ns:
            last = self._count & _MASK
            self._times_ns[last] = now_ns
            self._count += 1
        self._holders[last] = cause

    def _out_of_budget(self, charged: Task, now_ns: int) -> None:
        """A pool was charged: those of its members who are ready no longer waited for others until
        now, and wait for their budget from here on."""
        reserve = charged.reserve
        if reserve is None or (reserve.spec.kind == "pe" and reserve.budget_ns > 0):
            return
        for task, group in reserve.waiting.items():
            if not task.in_ready_queue:
                self._settle(self.tasks[task], group, now_ns, ready=False)

    def _settle(self, entry: TaskStats, group: Group, until_ns: int, *, ready: bool) -> None:
        """Account for a wait up to here. `ready`: it is not out of budget now."""
        if entry.blocked:
            woke = ready or group.ready_ns != entry.ready_ns
            end_ns = min(group.ready_ns, until_ns) if woke else until_ns
            for slot, since_ns, to_ns in self._slots(entry, end_ns):
                slot.add_cause(BUDGET, to_ns - since_ns)
            entry.mark_ns = max(entry.mark_ns, end_ns)
            entry.blocked = not woke or group.ready_ns > until_ns
        if not entry.blocked:
            self._blame_slots(entry, until_ns)
        entry.mark_ns = until_ns
        if not ready:
            entry.blocked = True
            entry.ready_ns = group.ready_ns

    def _blame_slots(self, entry: TaskStats, until_ns: int) -> None:
        """Long waits count in every second they last."""
        for slot, since_ns, to_ns in self._slots(entry, until_ns):
            self._blame(slot, since_ns, to_ns)

    def _slots(self, entry: TaskStats, until_ns: int) -> Iterator[tuple[Slot, int, int]]:
        """The slots that a wait is in since it was last accounted for, and from when to when; what
        is older than the window is gone."""
        start_ns = max(entry.mark_ns, (self._slot - SLOTS + 1) * SLOT_NS)
        while start_ns < until_ns:
            number = min(start_ns // SLOT_NS, self._slot)
            end_ns = until_ns if number == self._slot else min(until_ns, (number + 1) * SLOT_NS)
            yield entry.window.slot(number), start_ns, end_ns
            start_ns = end_ns

    def _blame(self, slot: Slot, start_ns: int, end_ns: int) -> None:
        """Lay a wait over who held the GPU, from its end backward."""
        causes, times_ns, holders = slot.causes, self._times_ns, self._holders
        last = self._count - 1
        steps = min(_STEPS + (end_ns - start_ns) // _STEP_NS, max(_STEPS, _MOST_STEPS))
        steps = min(steps, _CHANGES, self._count)
        for place in range(last, last - steps, -1):
            since_ns = times_ns[place & _MASK]
            if since_ns < end_ns:
                begin_ns = since_ns if since_ns > start_ns else start_ns
                cause = holders[place & _MASK]
                if cause in causes:
                    causes[cause] += end_ns - begin_ns
                    cause.total_ns += end_ns - begin_ns
                else:
                    slot.add_cause(cause, end_ns - begin_ns)
                end_ns = begin_ns
                if end_ns == start_ns:
                    break
        else:
            self._sample(slot, start_ns, end_ns)

    def _sample(self, slot: Slot, start_ns: int, end_ns: int) -> None:
        """Lay what is left of a wait over who held the GPU at some instants of it, each somewhere
        within an equal part: at equal distances they could fall into step with the programs."""
        first_ns, count = start_ns, min(_SAMPLES, (end_ns - start_ns) // _STEP_NS)
        for number in range(count):
            part_ns = (end_ns - start_ns) // (count - number)
            somewhere = (first_ns + number) * 0x9E3779B1 >> 16 & 1023
            holder = self._holder_at(start_ns + part_ns * somewhere // 1024)
            slot.add_cause(holder, part_ns)
            start_ns += part_ns
        if start_ns < end_ns:
            slot.add_cause(OTHERS, end_ns - start_ns)

    def _holder_at(self, at_ns: int) -> Cause:
        """Who was waited for then. The list is a ring: from its oldest entry its times ascend to
        its end, and then from its beginning."""
        oldest = self._count & _MASK if self._count > _CHANGES else 0
        low, high = oldest, min(self._count, _CHANGES)
        if oldest and at_ns >= self._times_ns[0]:
            low, high = 0, oldest
        place = bisect_right(self._times_ns, at_ns, low, high) - 1
        return self._holders[place] if place >= low else OTHERS

    def _next_slot(self, now_ns: int) -> None:
        self._slot = now_ns // SLOT_NS
        self._slot_ends_ns = (self._slot + 1) * SLOT_NS

    # -- what the driver sees ----------------------------------------------------------------

    def sampled(self, task: Task, frames: int, lease_used_ns: int, now_ns: int) -> None:
        """Now and then, from a program's page: groups under a lease make no events."""
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        entry = self.tasks[task]
        more_ns = min(lease_used_ns - entry.sampled_ns, now_ns - entry.sampled_at_ns)
        entry.saw_frames(frames, now_ns)
        if entry.leased and more_ns > 0:
            entry.sampled_ns = lease_used_ns
            self._spend(entry, more_ns, now_ns)

    # -- questions ---------------------------------------------------------------------------

    def update(self, now_ns: int, tasks: Iterable[Task] | None = None) -> None:
        """Account for waits that go on, before questions are asked: of these tasks, or of all."""
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        for task in list(self._waiting) if tasks is None else tasks:
            entry, group = self._waiting.get(task), task.waiting
            if entry is not None and group is not None and entry.mark_ns < now_ns:
                self._settle(entry, group, now_ns, ready=task.in_ready_queue)

    def is_quiet(self, task: Task, now_ns: int) -> bool:
        """It did nothing that shows in the last seconds, nor waits."""
        if now_ns >= self._slot_ends_ns:
            self._next_slot(now_ns)
        entry = self.tasks[task]
        past = entry.window.latest.number <= self._slot - SLOTS
        return past and entry.is_still and not entry.leased

    def span_ns(self, now_ns: int, slots: int = SLOTS) -> int:
        """How long the window is: whole seconds and a part of one, less at the beginning."""
        since_ns = now_ns if self._since_ns is None else self._since_ns
        return now_ns - max(since_ns, (self._slot + 1 - slots) * SLOT_NS)

    def share(
        self, task: Task, now_ns: int, running_ns: int = 0, slots: int = SHORT_SLOTS
    ) -> float:
        """Of the GPU; `running_ns` is for how long its group is on the GPU that is not done."""
        return self._part(self.tasks[task].window, now_ns, running_ns, slots)

    def busy(self, now_ns: int, running_ns: int = 0) -> float:
        return self._part(self._gpu, now_ns, running_ns, SHORT_SLOTS)

    def _part(self, window: Window, now_ns: int, running_ns: int, slots: int) -> float:
        span_ns = self.span_ns(now_ns, slots)
        used_ns = window.gpu_ns(self._slot, slots) + min(running_ns, span_ns)
        return min(1.0, used_ns / span_ns) if span_ns > 0 else 0.0

    def waits(self, task: Task) -> Waits | None:
        found = self.tasks[task].window.waits_at(self._slot, 0.5, 0.99, 1.0)
        return None if found is None else Waits(*found)

    def causes(self, task: Task) -> Counter[tuple[str, str]]:
        """What it waited for in the last seconds, in ns."""
        return self.tasks[task].window.causes(self._slot)
