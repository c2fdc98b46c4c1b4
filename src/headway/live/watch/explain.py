"""Why a program waits: facts and numbers. The words for them are in the view layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Any

from headway.engine.model import BACKGROUND_LEVEL, Group, Task, level_of
from headway.engine.reserves import BACKGROUND, Reserve
from headway.engine.turns.client import Client
from headway.live.gate.channel import Channel
from headway.live.gate.conduct import note
from headway.live.server.report import describe_share, in_jobs, running_ns, sample, state_of
from headway.live.watch.window import SLOTS
from headway.live.wire.layout import Unfollowed

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

NAMED = 3
"""Rivals that are named; the rest is a number."""
A_STEP = 256
"""Programs that are compared in one go."""

Facts = dict[str, Any]


def explain(daemon: Daemon, channels: list[Channel], now_ns: int) -> list[Facts]:
    """What is known of why these wait, or would."""
    steps = explaining(daemon, channels, lambda: now_ns)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            facts: list[Facts] = done.value
            return facts


def explaining(
    daemon: Daemon, channels: list[Channel], clock: Callable[[], int] = time.monotonic_ns
) -> Generator[None, None, list[Facts]]:
    """The same in short steps; who goes away meanwhile is left out."""
    found: list[Facts] = []
    for channel in channels:
        rivals = yield from _rivals(daemon, channel)
        now_ns = clock()
        scheduler = daemon.schedulers.of(channel)
        for holder in scheduler.arbiter.online.clients:
            if holder.leased and isinstance(holder, Channel):  # what it used of its lease so far
                sample(daemon, holder, now_ns)
        if channel.task is not None:
            scheduler.stats.update(now_ns, [channel.task])
            found.append({**_Case(daemon, channel, now_ns).facts(), **rivals})
    return found


def _rivals(daemon: Daemon, channel: Channel) -> Generator[None, None, Facts]:
    """Whom it would wait for: those who are more important, and those who are as important."""
    above: list[Task] = []
    equal = 0
    others = iter(list(daemon.schedulers.of(channel).arbiter.clients.values()))
    while some := list(islice(others, A_STEP)):
        task = channel.task
        if task is not None:
            tasks = [other.task for other in some if other.task is not None]
            above += [other for other in tasks if other.rank < task.rank]
            equal += sum(other.rank == task.rank and other is not task for other in tasks)
        yield
    first = nsmallest(NAMED, above, key=lambda task: task.rank)
    return {
        "above": [{"task": task.name, "priority": task.priority} for task in first],
        "above_count": len(above),
        "equal_count": equal,
    }


class _Case:
    """One program at one instant."""

    def __init__(self, daemon: Daemon, channel: Channel, now_ns: int) -> None:
        assert channel.task is not None
        self.daemon, self.channel, self.now_ns = daemon, channel, now_ns
        self.task: Task = channel.task
        scheduler = daemon.schedulers.of(channel)
        self.stats, self.engine = scheduler.stats, scheduler.engine
        self.gpu = scheduler.engine.gpus[0]
        self.by_name = scheduler.arbiter.clients

    def facts(self) -> dict[str, Any]:
        task, now_ns, waits = self.task, self.now_ns, self.stats.waits(self.task)
        waiting = task.waiting
        causes = self.stats.causes(task)
        return {
            "task": task.name,
            "gpu": self.channel.device,
            "policy": task.choice.text,
            "base": level_of(task.base_rank),
            "effective": task.priority,
            "background": level_of(task.base_rank) == BACKGROUND_LEVEL,
            "note": "; ".join(text for text in (self.channel.note, note(self.channel)) if text),
            "gpu_in_jobs": self.channel.jobs.usage.gpu_share,
            "corun": task.corun,
            "in_jobs": in_jobs(self.stats.tasks[task], now_ns),
            "side_by_side": self.channel.company.side_by_side,
            **describe_share(self.daemon, self.channel, task),
            "state": state_of(self.channel),
            "share": self._share(self.channel),
            "waiting_ns": None if waiting is None else now_ns - waiting.submitted_ns,
            "why": None if waiting is None else self._why(waiting),
            "expected": None if waiting is None else self._expected(waiting),
            "predictions": self._predictions(),
            "reserve": None if task.reserve is None else self._reserve(task.reserve),
            "span_ns": self.stats.span_ns(now_ns),
            "waited_ns": causes.total(),
            "wait_p50_ns": None if waits is None else waits.p50_ns,
            "wait_p99_ns": None if waits is None else waits.p99_ns,
            "wait_max_ns": None if waits is None else waits.max_ns,
            "causes": [
                {
                    "kind": "own" if name == task.name else kind,
                    "task": name,
                    "ns": ns,
                    **self._who(name),
                }
                for (kind, name), ns in causes.most_common()
            ],
        }

    def _share(self, channel: Client) -> float:
        assert channel.task is not None
        now_ns = self.now_ns
        return self.stats.share(channel.task, now_ns, running_ns(channel, now_ns), SLOTS)

    def _who(self, name: str) -> dict[str, Any]:
        """What is known of another task; nothing once it is gone."""
        channel = self.by_name.get(name)
        if channel is None or channel.task is None:
            return {"priority": None, "share": None}
        return {"priority": channel.task.priority, "share": self._share(channel)}

    def _why(self, waiting: Group) -> dict[str, Any]:
        task, now_ns = self.task, self.now_ns
        if not task.in_ready_queue:
            return {"kind": "budget", "ahead": 0, "in_ns": self._ready_in_ns(waiting)}
        ahead = self.engine.queue.place(waiting)
        head = self.gpu.executing
        if head is None:
            last, until_ns = self.gpu.last_task, self.engine.holdoffs.until_ns.get(self.gpu)
            name = "" if last is None or until_ns is None else last.name
            kind = "holdoff" if name else "policy"
            if not name:
                until_ns = task.policy.wake_ns(now_ns)
            in_ns = None if until_ns is None else until_ns - now_ns
            return {"kind": kind, "task": name, "ahead": ahead, "in_ns": in_ns, **self._who(name)}
        if head.task is task:
            return {"kind": "own", "ahead": ahead}
        holder = self.by_name[head.task.name]
        ends_ns = (
            holder.lease.review_ns
            if holder.leased and not holder.revoked
            else holder.account.bound_ns
        )
        return {
            "kind": "lease" if holder.leased else "gpu",
            "task": head.task.name,
            "ahead": ahead,
            "revoked": holder.revoked,
            "busy": holder.port is not None and holder.port.report.busy,
            "compared": (task.rank > head.task.rank) - (task.rank < head.task.rank),
            "for_ns": now_ns - (holder.account.since_ns or now_ns),
            "in_ns": None if ends_ns is None else ends_ns - now_ns,
            **self._who(head.task.name),
        }

    def _ready_in_ns(self, waiting: Group) -> int | None:
        """When replenishments will have paid for it, if nobody else uses them."""
        reserve = self.task.reserve
        if reserve is None or reserve.next_ns is None:
            return None
        needed_ns = max(waiting.predicted_ns, 1) if reserve.spec.kind == "ae" else 1
        periods = max(1, -(-(needed_ns - reserve.budget_ns) // reserve.capacity_ns))
        return reserve.next_ns + (periods - 1) * reserve.period_ns - self.now_ns

    def _expected(self, waiting: Group) -> dict[str, Any]:
        return {
            "model": self.task.cost_model.name,
            "cost_ns": waiting.predicted_ns,
            "bound_ns": waiting.bound_ns,
        }

    def _predictions(self) -> dict[str, Any] | None:
        """How good they are; None of a task that nothing was predicted for."""
        found, pages = self.daemon.accuracy.describe(self.task), self.channel.pages
        if found is None:
            return None
        bits = pages.unfollowed if pages is not None else 0
        return {
            **found,
            "model": self.task.cost_model.name,
            "unfollowed": [u.doc for u in Unfollowed if bits & u],
        }

    def _reserve(self, reserve: Reserve) -> dict[str, Any]:
        waiting = self.task.waiting
        return {
            "name": reserve.name,
            "kind": reserve.spec.kind,
            "capacity_ns": reserve.capacity_ns,
            "period_ns": reserve.period_ns,
            "budget_ns": reserve.budget_ns,
            "members": len(reserve.members),
            "background": reserve.spec.shared == BACKGROUND,
            "predicted_ns": None if waiting is None else waiting.predicted_ns,
        }
