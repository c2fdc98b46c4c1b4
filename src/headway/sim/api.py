"""`headway.sim.run`: simulate a scenario from Python and look at its jobs (docs/studies.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.engine.events import Observer
from headway.engine.model import Group
from headway.engine.reading import BadInput, Problem
from headway.sim.cuda.program import DoneJob
from headway.sim.gpusync.plan import GpuSyncPlan
from headway.sim.gpusync.run import run_plan
from headway.sim.gpusync.scenario import is_gpusync, parse_gpusync, read_gpusync
from headway.sim.outcome import simulate
from headway.sim.scenario import Scenario, parse_scenario, read_scenario


@dataclass(frozen=True, slots=True)
class Job:
    """One job that ended: a group, or, of a task with tokens, all from its release to its end."""

    index: int
    release_ns: int
    """When it was released; of a program without a period, when it was submitted."""
    deadline_ns: int | None
    finish_ns: int

    @property
    def response_ns(self) -> int:
        return self.finish_ns - self.release_ns

    @property
    def missed(self) -> bool:
        """Whether it ended after its deadline."""
        return self.deadline_ns is not None and self.finish_ns > self.deadline_ns


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """One task of a run."""

    name: str
    jobs: tuple[Job, ...]

    @property
    def worst_response_ns(self) -> int:
        return max((job.response_ns for job in self.jobs), default=0)

    @property
    def missed(self) -> int:
        """How many of the jobs that ended were late."""
        return sum(job.missed for job in self.jobs)


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a scenario came to."""

    tasks: Mapping[str, SimulatedTask]
    end_ns: int
    """The instant at which the simulation ended."""

    @property
    def missed(self) -> int:
        return sum(task.missed for task in self.tasks.values())


Source = str | Path | Mapping[str, Any]


def run(scenario: Source, *, seed: int | None = None) -> Simulation:
    """Simulate a scenario: the path of a file, or the tables that TOML would make of one.

    Both kinds are known, with `[gpusync]` and without. `seed` replaces the scenario's. Mistakes
    raise `headway.engine.reading.BadInput`, a ValueError whose text names key and place.
    """
    if isinstance(scenario, Mapping):
        if "gpusync" in scenario:
            return _machine(scenario, seed)
        return _plain(read_scenario(scenario, "scenario", seed=seed))
    file = str(scenario)
    try:
        text = Path(scenario).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(file, [Problem(None, "", why, "a scenario file")]) from None
    if is_gpusync(text):
        return _finish(parse_gpusync(text, file, seed=seed))
    return _plain(parse_scenario(text, file, seed=seed))


def _machine(tables: Mapping[str, Any], seed: int | None) -> Simulation:
    return _finish(read_gpusync(tables, "scenario", seed=seed))


def _finish(plan: GpuSyncPlan) -> Simulation:
    result = run_plan(plan)
    tasks = {
        name: SimulatedTask(name, tuple(Job(n, *record) for n, record in enumerate(found.jobs)))
        for name, found in result.tasks.items()
    }
    return Simulation(tasks, result.duration_ns)


class _Jobs(Observer):
    """Keeps every group that is done."""

    def __init__(self) -> None:
        self.found: dict[str, list[Job]] = {}

    def completed(self, group: Group, now_ns: int) -> None:
        release_ns = group.submitted_ns if group.released_ns is None else group.released_ns
        job = Job(group.index, release_ns, group.deadline_ns, now_ns)
        self.found.setdefault(group.task.name, []).append(job)


def _job(job: DoneJob) -> Job:
    deadline_ns = None if job.deadline_ns is None else job.begun_ns + job.deadline_ns
    return Job(job.index, job.begun_ns, deadline_ns, job.ended_ns)


def _plain(scenario: Scenario) -> Simulation:
    jobs = _Jobs()
    outcome = simulate(scenario, observers=[jobs])
    for name, done in outcome.jobs.items():
        jobs.found[name] = [_job(job) for job in done]
    tasks = {
        plan.name: SimulatedTask(plan.name, tuple(jobs.found.get(plan.name, ())))
        for plan in scenario.tasks
    }
    return Simulation(tasks, outcome.statistics.end_ns)
