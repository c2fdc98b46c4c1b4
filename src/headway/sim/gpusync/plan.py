"""What a GPUSync simulation runs: a system, tasks, and how their jobs vary."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.engine.locks.system import LockSystem, LockTask


@dataclass(frozen=True, slots=True)
class Variation:
    """How the jobs of a task differ from its parameters. The default: not at all."""

    noise: float = 0.0
    """Standard deviation of a job's length, as a fraction of it (normal, cut at three)."""
    shortest: float = 1.0
    """Jobs are evenly between this fraction of their length and all of it; 1: no shorter."""
    split: bool = False
    """Whether the CPU time is split at random around the token section, instead of in halves."""
    aberrant_factor: int = 1
    """An aberrant job is so many times as long as others."""
    aberrant_every_ns: int = 0
    """Mean time between aberrant jobs; 0: there are none."""
    jitter_ns: int = 0
    """A job begins up to so long after its release, evenly."""
    sporadic: float = 0.0
    """Releases are up to this fraction of a period farther apart than a period, evenly."""


EXACT = Variation()


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task of a run."""

    task: LockTask
    offset_ns: int = 0
    """The first release."""
    variation: Variation = EXACT


@dataclass(frozen=True, slots=True)
class GpuSyncPlan:
    """A run, reproducible by its seed."""

    system: LockSystem
    tasks: tuple[TaskPlan, ...]
    duration_ns: int
    seed: int = 0
    remarks: tuple[str, ...] = field(default=())
