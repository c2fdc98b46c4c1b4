"""Accounts: what the programs of one launch came to, also when they are over.

A launch is what one `headway run` started, told by its token: a program and its children. The
accounts of launches that are over are kept until there are too many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headway.live.gate.channel import Channel
from headway.live.watch.stats import Mean, TaskStats
from headway.trace.statistics import Quantiles

MOST = 256
"""Launches that are over and whose accounts are kept, some kilobytes each."""


@dataclass(slots=True)
class Account:
    """What the tasks of one launch came to."""

    names: dict[str, None] = field(default_factory=dict)
    since_ns: int | None = None
    until_ns: int = 0
    jobs: int = 0
    misses: int = 0
    frames: int = 0
    groups: int = 0
    gpu_ns: int = 0
    waited_ns: int = 0
    caused_ns: int = 0
    """For how long others waited for these tasks, all together."""
    responses: Quantiles = field(default_factory=Quantiles)
    slowdowns: Mean = field(default_factory=Mean)
    gpu_in_jobs: float | None = None
    """For which part of its jobs the last task waited for the GPU."""
    side_by_side: bool = False

    def add(self, channel: Channel, entry: TaskStats, now_ns: int) -> None:
        """Count a task as it is now."""
        self.names[channel.name] = None
        since_ns = entry.since_ns if self.since_ns is None else min(self.since_ns, entry.since_ns)
        self.since_ns, self.until_ns = since_ns, max(self.until_ns, now_ns)
        self.jobs += entry.jobs
        self.misses += entry.misses
        self.frames += entry.frames
        self.groups += channel.request.groups
        if channel.port is not None:
            self.groups += channel.port.passed
        self.gpu_ns += entry.gpu_ns
        self.waited_ns += entry.wait_ns
        self.caused_ns += entry.holds.total_ns + entry.keeps.total_ns
        self.responses.merge(entry.responses)
        self.slowdowns.add(entry.slowdowns.total, entry.slowdowns.count)
        self.gpu_in_jobs = channel.jobs.usage.gpu_share or self.gpu_in_jobs
        self.side_by_side |= channel.company.side_by_side

    def merge(self, other: Account) -> None:
        """Count what another account of the same launch came to."""
        self.names |= other.names
        if other.since_ns is not None:
            mine = other.since_ns if self.since_ns is None else self.since_ns
            self.since_ns = min(mine, other.since_ns)
        self.until_ns = max(self.until_ns, other.until_ns)
        for name in ("jobs", "misses", "frames", "groups", "gpu_ns", "waited_ns", "caused_ns"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.responses.merge(other.responses)
        self.slowdowns.add(other.slowdowns.total, other.slowdowns.count)
        self.gpu_in_jobs = self.gpu_in_jobs or other.gpu_in_jobs
        self.side_by_side |= other.side_by_side

    def describe(self) -> dict[str, Any]:
        """The account as JSON."""
        p50_ns, p99_ns = self.responses.at(0.5, 0.99)
        known = self.responses.count > 0
        lasted_ns = 0 if self.since_ns is None else self.until_ns - self.since_ns
        return {
            "names": list(self.names),
            "lasted_ns": lasted_ns,
            "jobs": self.jobs,
            "misses": self.misses,
            "frames": self.frames,
            "groups": self.groups,
            "gpu_ns": self.gpu_ns,
            "waited_ns": self.waited_ns,
            "caused_ns": self.caused_ns,
            "job_p50_ns": p50_ns if known else None,
            "job_p99_ns": p99_ns if known else None,
            "in_jobs_ns": self.responses.total,
            "slowdown": self.slowdowns.value,
            "gpu_in_jobs": self.gpu_in_jobs,
            "side_by_side": self.side_by_side,
        }


class Accounts:
    """The accounts of a daemon's launches."""

    def __init__(self) -> None:
        self._over: OrderedDict[str, Account] = OrderedDict()
        """By token; of the programs of a launch that have ended. Who ended last stands last."""

    def ended(self, channel: Channel, entry: TaskStats | None, now_ns: int) -> None:
        """A connection is about to end: keep what its task came to."""
        if not channel.token or entry is None:
            return
        account = self._over.setdefault(channel.token, Account())
        account.add(channel, entry, now_ns)
        account.responses.compact()
        self._over.move_to_end(channel.token)
        if len(self._over) > MOST:
            self._over.popitem(last=False)

    def of(
        self, token: str, running: Iterable[tuple[Channel, TaskStats]], now_ns: int
    ) -> Account | None:
        """What a launch came to so far; None if nothing of it ever came to the GPU."""
        account, found = Account(), token in self._over
        for channel, entry in running:
            account.add(channel, entry, now_ns)
            found = True
        if token in self._over:
            account.merge(self._over[token])
        return account if found else None
