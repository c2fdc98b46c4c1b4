"""What the daemon tells people of itself."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from headway import __version__
from headway.engine.inheritance import Request
from headway.engine.model import Task, level_of
from headway.engine.turns.client import Client
from headway.live.desktop.servers import WindowServer
from headway.live.devices.inventory import Device
from headway.live.gate.channel import Channel
from headway.live.gate.conduct import describe_away, note
from headway.live.watch.stats import TaskStats
from headway.live.wire.protocol import ClientPage

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon
    from headway.live.server.schedulers import Scheduler

A_STEP = 16
"""Programs that are described in one go."""


class Report:
    """Tells everything `headway status` shows. What was said of a program is kept, and said again
    while the program is quiet and nothing about it has changed: of thousands most are quiet."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._said: dict[Channel, tuple[_Facts, bytes]] = {}

    def telling(self) -> Generator[None, None, bytes]:
        """The text of it, made in short steps: each program as it was at its step."""
        daemon, before = self._daemon, self._said
        self._said, policies = {}, Counter[str]()
        texts: list[bytes] = []
        channels = iter(list(daemon.channels.values()))
        while some := list(islice(channels, A_STEP)):
            now_ns = time.monotonic_ns()
            for channel in some:
                if channel.task is not None and channel.pages is not None:
                    texts.append(self._tell(channel, channel.task, before.get(channel), now_ns))
                    policies[channel.task.policy.name] += 1
            yield
        status = describe_daemon(daemon, [], time.monotonic_ns())
        status["gpu"]["policy_counts"] = dict(policies)
        del status["channels"]  # they stand last
        return _text(status)[:-1] + b',"channels":[' + b",".join(texts) + b"]}"

    def _tell(
        self, channel: Channel, task: Task, said: tuple[_Facts, bytes] | None, now_ns: int
    ) -> bytes:
        facts = _quiet_facts(self._daemon, channel, task, now_ns)
        if said is not None and said[0] == facts:
            self._said[channel] = said
            return said[1]
        text = _text(describe_channel(self._daemon, channel, now_ns))
        if facts is not None:
            self._said[channel] = facts, text
        return text


_Facts = tuple[object, ...]


def _quiet_facts(daemon: Daemon, channel: Channel, task: Task, now_ns: int) -> _Facts | None:
    """All that is said of a program which has done nothing lately, to compare; None of others."""
    if task.waiting is not None or channel.account.since_ns is not None:
        return None
    scheduler = daemon.schedulers.of(channel)
    if not scheduler.stats.is_quiet(task, now_ns) or scheduler.engine.ranks.requests_to(task):
        return None
    reserve, pages = task.reserve, channel.pages
    assert pages is not None
    return (
        hash(pages.counters),
        task.rank,
        task.base_rank,
        task.rule,
        task.policy,
        task.foreground,
        channel.note,
        channel.deadline_ns,
        channel.slowdown,
        task.shares,
        daemon.pages.told(channel),
        None if reserve is None else (reserve, reserve.spec, reserve.budget_ns),
    )


def _text(said: dict[str, Any]) -> bytes:
    """Paths may hold what is no text to others; then the slower way is taken."""
    try:
        return msgspec.json.encode(said)
    except UnicodeEncodeError:
        return json.dumps(said, separators=(",", ":")).encode()


def describe_daemon(daemon: Daemon, entries: list[dict[str, Any]], now_ns: int) -> dict[str, Any]:
    """The daemon, and the channels as they were described."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "uptime_s": (now_ns - daemon.since_ns) / 1e9,
        "folder": str(daemon.folder),
        "grants": daemon.schedulers.grants,
        "leases": daemon.schedulers.leases,
        "refused": daemon.refused,
        "restarts": daemon.restarts,
        "demotions": daemon.conduct.demotions,
        "away": [describe_away(record, now_ns) for record in daemon.conduct.away(now_ns)],
        "room": daemon.room,
        "window_ns": daemon.bounds.window_ns,
        "slowdown": daemon.bounds.slowdown,
        "spec": daemon.spec_file.path,
        "spec_problem": daemon.spec_file.problem,
        **daemon.foreground.describe(),
        "inherit": str(daemon.servers.inherit),
        "servers": [_describe_server(s) for s in daemon.servers.known.values()],
        "gpu": {
            "busy": max(_busy(scheduler, now_ns) for scheduler in daemon.schedulers),
            "queue": sum(len(engine.any_ready) for engine in daemon.schedulers.engines),
            "policy_counts": dict(Counter(entry["policy"] for entry in entries)),
        },
        "gpus": [_describe_gpu(daemon, device, now_ns) for device in daemon.inventory.devices],
        "channels": entries,
    }


def _describe_gpu(daemon: Daemon, device: Device, now_ns: int) -> dict[str, Any]:
    """One GPU; nothing was ever served on a GPU without a scheduler."""
    found, scheduler = device.found, daemon.schedulers.at(device)
    return {
        "gpu": device.index,
        "model": found.model,
        "uuid": found.uuid,
        "pci": found.pci,
        "profile": device.profile.name,
        "busy": 0.0 if scheduler is None else _busy(scheduler, now_ns),
        "queue": 0 if scheduler is None else len(scheduler.engine.any_ready),
        "tasks": 0 if scheduler is None else len(scheduler.engine.tasks),
    }


def _describe_server(server: WindowServer) -> dict[str, Any]:
    return {
        "name": server.name,
        "pid": server.peer.pid,
        "display": server.display,
        "channels": len(server.clients),
    }


def _busy(scheduler: Scheduler, now_ns: int) -> float:
    head = scheduler.engine.gpus[0].executing
    is_work = head is not None and not head.leased
    return scheduler.stats.busy(now_ns, now_ns - head.dispatched_ns if head and is_work else 0)


def sample(daemon: Daemon, channel: Channel, now_ns: int) -> ClientPage | None:
    """Read a program's page and have it counted; None if it has no task."""
    task, pages = channel.task, channel.pages
    if task is None or pages is None:
        return None
    scheduler = daemon.schedulers.of(channel)
    scheduler.arbiter.look_at_jobs(channel, now_ns)
    page = pages.report
    used_ns = 0
    if channel.leased:  # no more than is possible, whatever the page says
        used_ns = scheduler.arbiter.online.used_ns(channel, now_ns)
        used_ns = min(used_ns, now_ns - channel.lease.since_ns)
    scheduler.stats.sampled(task, page.frames, used_ns, now_ns)
    return page


def running_ns(channel: Client, now_ns: int) -> int:
    """For how long a group is on the GPU that was asked for; what leases use is sampled."""
    if channel.leased or channel.account.since_ns is None:
        return 0
    return now_ns - channel.account.since_ns


def describe_channel(daemon: Daemon, channel: Channel, now_ns: int) -> dict[str, Any]:
    """One program; it must have a task."""
    task, scheduler = channel.task, daemon.schedulers.of(channel)
    stats = scheduler.stats
    assert task is not None
    page = sample(daemon, channel, now_ns)
    assert page is not None
    reserve = task.reserve
    entry, waits, waiting = stats.tasks[task], stats.waits(task), task.waiting
    requests = scheduler.engine.ranks.requests_to(task)
    p50_ns, p99_ns = entry.responses.at(0.5, 0.99)
    return {
        "task": task.name,
        "name": channel.name,
        "channel": channel.number,
        "gpu": channel.device,
        "pid": channel.peer.pid,
        "uid": channel.peer.uid,
        "policy": task.choice.text,
        "priority": str(task.rule),
        "base": level_of(task.base_rank),
        "effective": task.priority,
        "foreground": task.foreground,
        "inherited_from": _inherited_from(task, requests),
        "serving": len(requests),
        "reserve": None if reserve is None else reserve.name,
        "capacity_ns": None if reserve is None else reserve.capacity_ns,
        "period_ns": None if reserve is None else reserve.period_ns,
        "budget_ns": None if reserve is None else reserve.budget_ns,
        "state": state_of(channel),
        "note": "; ".join(text for text in (channel.note, note(channel)) if text),
        "standing": 0 if channel.record is None else int(channel.record.standing),
        "groups": channel.request.groups,
        "passed": page.passed,
        "free": page.free_groups,
        "implicit": page.implicit,
        "unknown": page.unknown,
        "frames": page.frames,
        "jobs": entry.jobs,
        "gpu_ns": entry.gpu_ns,
        "overdue": channel.account.overdue,
        "fps": entry.fps,
        "share": stats.share(task, now_ns, running_ns(channel, now_ns)),
        "queued": int(waiting is not None),
        "waiting_ns": None if waiting is None else now_ns - waiting.submitted_ns,
        "wait_p50_ns": None if waits is None else waits.p50_ns,
        "wait_p99_ns": None if waits is None else waits.p99_ns,
        "wait_max_ns": None if waits is None else waits.max_ns,
        "waited_ns": entry.wait_ns,
        "frames_seen": entry.frames,
        "misses": entry.misses,
        "job_deadline_ns": channel.deadline_ns,
        "job_slowdown": scheduler.arbiter.goal_of(channel),
        "job_p50_ns": p50_ns if entry.responses.count else None,
        "job_p99_ns": p99_ns if entry.responses.count else None,
        "slowdown": entry.slowdowns.value,
        "in_jobs": in_jobs(entry, now_ns),
        "caused_ns": entry.holds.total_ns + entry.keeps.total_ns,
        "side_by_side": channel.company.side_by_side,
        "gpu_in_jobs": channel.jobs.usage.gpu_share,
        "corun": task.corun,
        "predictions": daemon.accuracy.describe(task),
        **describe_share(daemon, channel, task),
    }


def describe_share(daemon: Daemon, channel: Channel, task: Task) -> dict[str, Any]:
    """Which part of the multiprocessors a program may be given, was told, and keeps to."""
    pages = channel.pages
    return {
        "share_range": str(task.shares),
        "share_told": daemon.pages.told(channel),
        "share_kept": 0 if pages is None else pages.share,
        "share_whole": 0 if pages is None else pages.whole,
        "unconfined": 0 if pages is None else pages.unconfined,
    }


def in_jobs(entry: TaskStats, now_ns: int) -> float:
    """For which part of the time since it came the task was in jobs."""
    lasted_ns = now_ns - entry.since_ns
    return min(1.0, entry.responses.total / lasted_ns) if lasted_ns > 0 else 0.0


def _inherited_from(task: Task, requests: list[Request]) -> list[str]:
    """The clients whose rank it has now."""
    if task.rank == task.base_rank:
        return []
    return [request.client.name for request in requests if request.client.rank == task.rank]


def state_of(channel: Channel) -> str:
    """What a program does at this instant, in one word."""
    task = channel.task
    if channel.leased:
        return "leased"
    if channel.account.since_ns is not None:
        return "running"
    if task is not None and task.waiting is not None:
        return "waiting" if task.in_ready_queue else "budget"
    return "idle"
