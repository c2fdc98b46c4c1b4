"""Dispatch: which ready group goes onto which GPU now."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.engine.extensions import ExtensionCalls
from headway.engine.holdoff import HoldOffs
from headway.engine.model import Gpu, Group, Task
from headway.engine.queue import GROUP, ReadyQueue


class Dispatcher:
    """Takes groups from the ready queue and puts them online."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        queue: ReadyQueue,
        holdoffs: HoldOffs,
        ask: ExtensionCalls,
        on_dispatched: Sequence[Callable[..., None]],
    ) -> None:
        """`on_dispatched` are called with each group that goes online, and the time."""
        self._gpus = gpus
        self._only_gpu = gpus[0] if len(gpus) == 1 else None
        self._queue = queue
        self._entries = queue.entries
        self._holdoffs = holdoffs
        self._ask = ask
        self._on_dispatched = on_dispatched

    def dispatch(self, now_ns: int) -> Group | None:
        """Take one decision: the group that goes online now, or None if nothing changes."""
        ready = self._entries
        holdoffs = self._holdoffs
        if holdoffs.until_ns:
            holdoffs.until_ns.clear()
        gpu = self._only_gpu
        if gpu is not None:
            if gpu.online:
                if not self._queue.eager:
                    return None
            else:
                group = ready[0][GROUP]
                task = group.task
                if task.plain and not holdoffs.used and self._queue.short:
                    # take and _go, written out: the way nearly every group goes
                    del ready[0]
                    task.in_ready_queue = False
                    for party in task.parties:
                        party.ready -= 1
                    task.waiting = None
                    group.gpu = task.last_gpu = gpu
                    group.dispatched_ns = now_ns
                    last = gpu.last_task
                    if last is not task:
                        group.switched = last is not None
                        gpu.last_task = task
                    gpu.online.append(group)
                    for call in self._on_dispatched:
                        call(group, now_ns)
                    return group
            for place, entry in enumerate(ready):
                group = entry[GROUP]
                if self._may_go(group, gpu, now_ns):
                    self._queue.take(place)
                    self._go(group, gpu, now_ns)
                    return group
                if holdoffs.until_ns and not self._queue.custom_keys:
                    return None  # the GPU is kept for somebody more important than all who follow
            return None
        for place, entry in enumerate(ready):
            group = entry[GROUP]
            for choice in self._preferred(group.task):
                if self._may_go(group, choice, now_ns):
                    self._queue.take(place)
                    self._go(group, choice, now_ns)
                    return group
        return None

    def _may_go(self, group: Group, gpu: Gpu, now_ns: int) -> bool:
        idle = not gpu.online
        if idle and self._holdoffs.used and self._holdoffs.keep(gpu, group, self._queue, now_ns):
            return False
        return self._ask.admits(group, gpu)

    def _preferred(self, task: Task) -> list[Gpu]:
        """Idle GPUs first; among equals the one that its reserve was promised, then the task's last
        one: its data is there."""
        last = task.last_gpu
        home = None if task.reserve is None else task.reserve.gpu
        if home is None:
            return sorted(self._gpus, key=lambda g: (bool(g.online), g is not last, g.index))
        return sorted(
            self._gpus, key=lambda g: (bool(g.online), g.index != home, g is not last, g.index)
        )

    def _go(self, group: Group, gpu: Gpu, now_ns: int) -> None:
        task = group.task
        task.waiting = None
        if task.reserve is not None:
            del task.reserve.waiting[task]
        group.gpu = task.last_gpu = gpu
        group.dispatched_ns = now_ns
        gpu.resting = None
        last = gpu.last_task
        if last is not task:
            group.switched = last is not None
            gpu.last_task = task
        gpu.online.append(group)
        for call in self._on_dispatched:
            call(group, now_ns)
        if task.policy.listens:
            self._ask.tell("started", task.policy, group)
