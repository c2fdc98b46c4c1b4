"""Acceptance ratios: which fraction of random task sets is schedulable, against utilisation.

All configurations judge the same task sets, so that curves differ by the configurations alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from math import sqrt
from multiprocessing import get_context

from headway.engine.analysis.verdicts import HARD, NO, overall
from headway.engine.locks.system import LockSystem, LockTask
from headway.sim.analysing import analyse_machine
from headway.sim.gpusync.plan import GpuSyncPlan, TaskPlan
from headway.sim.gpusync.run import run_plan
from headway.sim.study.generators import Recipe, draw

TESTS = ("analysis", "analysis-soft", "simulation")
Z_95 = 1.96
"""Of a 95 % interval."""
BATCH = 10
"""Task sets that a process judges at once."""


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked: every configuration, at every utilisation, on so many task sets."""

    systems: tuple[tuple[str, LockSystem], ...]
    """Configurations by name; all have the same machine."""
    recipe: Recipe
    utilisations: tuple[float, ...]
    """Of a task set, CPU and GPU time together, for each CPU."""
    sets: int = 100
    test: str = "analysis"
    """"analysis": every deadline is met, by proof. "analysis-soft": a bound is known.
    "simulation": no deadline is missed in `simulated_ns`, which proves nothing."""
    seed: int = 0
    simulated_ns: int = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many of the task sets were accepted."""

    accepted: int
    sets: int

    @property
    def fraction(self) -> float:
        return self.accepted / self.sets if self.sets else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval."""
        if not self.sets:
            return 0.0, 1.0
        share, count = self.fraction, self.sets
        spread = Z_95 * sqrt(share * (1 - share) / count + Z_95**2 / (4 * count**2))
        middle, scale = share + Z_95**2 / (2 * count), 1 + Z_95**2 / count
        return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)


Ratios = dict[tuple[str, float], Ratio]
"""By configuration and utilisation."""
Progress = Callable[[int, int], bool]
"""Called with the task sets judged and their number; says whether to go on."""


def task_set(study: Study, utilisation: float, number: int) -> list[LockTask]:
    """One task set of a study, the same in every process and for every configuration."""
    _, system = study.systems[0]
    clusters = [
        (cluster.cpus[0] // system.clusters.cpus_each, cluster.number)
        for cluster in system.clusters
    ]
    rng = random.Random(f"{study.seed} {utilisation} {number}")
    total = utilisation * system.clusters.cpus
    return draw(rng, study.recipe, total, system.worst_rate, clusters)


def accepts(study: Study, system: LockSystem, tasks: Sequence[LockTask]) -> bool:
    """Whether one configuration is schedulable for one task set."""
    plans = tuple(map(study.recipe.vary, tasks))
    plan = GpuSyncPlan(system, plans, study.simulated_ns, study.seed)
    if study.test == "simulation":
        result = run_plan(plan)
        return not result.missed and not _overdue(result.duration_ns, plans, result.tasks)
    found = overall(analyse_machine(plan).verdicts)
    return found == HARD if study.test == "analysis" else found != NO


def _overdue(end_ns: int, plans: Sequence[TaskPlan], results: object) -> bool:
    """Whether a job that should have ended has not. Releases that are as far apart as they may be
    are the fewest."""
    assert isinstance(results, dict)

    def due(plan: TaskPlan) -> int:
        apart_ns = plan.task.period_ns * (1 + plan.variation.sporadic)
        return int((end_ns - plan.task.deadline_ns) / apart_ns) + 1

    return any(
        len(results[plan.task.name]) < due(plan) for plan in plans if end_ns > plan.task.deadline_ns
    )


def _judge(
    study: Study, utilisation: float, numbers: Sequence[int]
) -> tuple[float, list[int], int]:
    """How many of these task sets each configuration accepts, in a process of its own."""
    counts = [0] * len(study.systems)
    for number in numbers:
        tasks = task_set(study, utilisation, number)
        for place, (_, system) in enumerate(study.systems):
            counts[place] += accepts(study, system, tasks)
    return utilisation, counts, len(numbers)


def run_study(
    study: Study,
    *,
    workers: int = 1,
    pool: Executor | None = None,
    progress: Progress | None = None,
) -> Ratios:
    """Judge all task sets, in a pool if there is one, else in so many processes; if `progress`
    stops the study, those that were judged."""
    accepted = {(name, u): 0 for name, _ in study.systems for u in study.utilisations}
    judged = dict.fromkeys(study.utilisations, 0)
    total = study.sets * len(study.utilisations)
    for utilisation, counts, count in _batches(study, workers, pool):
        judged[utilisation] += count
        for (name, _), more in zip(study.systems, counts, strict=True):
            accepted[name, utilisation] += more
        if progress is not None and not progress(sum(judged.values()), total):
            break
    return {key: Ratio(count, judged[key[1]]) for key, count in accepted.items()}


def _batches(
    study: Study, workers: int, given: Executor | None
) -> Iterator[tuple[float, list[int], int]]:
    work = [
        (utilisation, range(first, min(first + BATCH, study.sets)))
        for first in range(0, study.sets, BATCH)
        for utilisation in study.utilisations
    ]
    if given is None and workers <= 1:
        for utilisation, numbers in work:
            yield _judge(study, utilisation, numbers)
        return
    pool = given or ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    pending: list[Future[tuple[float, list[int], int]]] = [
        pool.submit(_judge, study, utilisation, numbers) for utilisation, numbers in work
    ]
    try:
        for future in as_completed(pending):
            yield future.result()
    finally:
        if given is None:
            pool.shutdown(wait=True, cancel_futures=True)
