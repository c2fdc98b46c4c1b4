"""What the daemon tells people of itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from headway.live.channel import Channel

if TYPE_CHECKING:
    from headway.live.daemon import Daemon


def describe(daemon: Daemon) -> dict[str, Any]:
    """Everything `headway status` shows."""
    return {
        "pid": os.getpid(),
        "folder": str(daemon.folder),
        "grants": daemon.arbiter.grants,
        "leases": daemon.arbiter.leases,
        "refused": daemon.refused,
        "restarts": daemon.restarts,
        "room": daemon.room,
        "spec": daemon.spec_file.path,
        "spec_problem": daemon.spec_file.problem,
        **daemon.foreground.describe(),
        "channels": [_describe(c) for c in daemon.channels.values() if c.task is not None],
    }


def _describe(channel: Channel) -> dict[str, Any]:
    task, pages = channel.task, channel.pages
    assert task is not None
    assert pages is not None
    page = pages.client
    reserve = task.reserve
    return {
        "task": task.name,
        "pid": channel.peer.pid,
        "uid": channel.peer.uid,
        "policy": task.policy.name,
        "priority": str(task.rule),
        "effective": task.priority,
        "foreground": task.foreground,
        "reserve": None if reserve is None else reserve.name,
        "capacity_ns": None if reserve is None else reserve.capacity_ns,
        "period_ns": None if reserve is None else reserve.period_ns,
        "budget_ns": None if reserve is None else reserve.budget_ns,
        "state": _state(channel),
        "note": channel.note,
        "groups": channel.groups,
        "passed": page.passed,
        "free": page.free_groups,
        "implicit": page.implicit,
        "frames": page.frames,
        "jobs": page.jobs,
        "misses": page.misses,
        "gpu_ns": task.gpu_ns,
        "overdue": channel.overdue,
    }


def _state(channel: Channel) -> str:
    task = channel.task
    if channel.leased:
        return "leased"
    if channel.online_since_ns is not None:
        return "running"
    if task is not None and task.waiting is not None:
        return "waiting" if task.in_ready_queue else "budget"
    return "idle"
