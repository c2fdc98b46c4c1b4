"""What a node says of itself: typed, the same for the placer, for `status` and for metrics."""

from __future__ import annotations

from typing import Any

import msgspec

from headway.fleet.books import LONGEST_NS


class TaskFacts(msgspec.Struct, frozen=True):
    """One program that a GPU's daemon serves."""

    name: str
    pid: int
    priority: str
    state: str
    reserve: str | None = None
    capacity_ns: int | None = None
    period_ns: int | None = None
    budget_ns: int | None = None
    gpu_ns: int = 0
    share: float = 0.0
    jobs: int = 0
    misses: int = 0
    job_p50_ns: int | None = None
    job_p99_ns: int | None = None
    note: str = ""


class GpuFacts(msgspec.Struct, frozen=True):
    """One GPU, and what its daemon says."""

    index: int
    model: str
    problem: str = ""
    """Why it takes no claims now."""
    daemon: int = 0
    """The daemon's process."""
    busy: float = 0.0
    longest_ns: int = LONGEST_NS
    tasks: tuple[TaskFacts, ...] = ()


class NoteFacts(msgspec.Struct, frozen=True):
    """A claim as its node knows it."""

    ticket: str
    gpu: int
    claim: dict[str, Any]
    actor: str = ""
    job: str = ""
    pid: int = 0
    """The worker; 0: it has not started yet."""
    running: bool = False
    plain: bool = False
    """Whether plain Ray code made the claim, without the placer."""
    misfit: str = ""
    """Why the worker runs without its reserve."""


class NodeFacts(msgspec.Struct, frozen=True):
    """One node."""

    name: str
    version: str
    mono_ns: int
    """The node's clock when it said this."""
    gpus: tuple[GpuFacts, ...] = ()
    notes: tuple[NoteFacts, ...] = ()


_KNOWN = set(TaskFacts.__struct_fields__)


def task_facts(entry: dict[str, Any]) -> TaskFacts:
    """From what a daemon's status says of a program."""
    return TaskFacts(**{key: value for key, value in entry.items() if key in _KNOWN})
