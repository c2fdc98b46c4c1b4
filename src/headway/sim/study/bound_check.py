"""Bounds against simulations: random task sets on which no wait and no response may be longer.

Two checks. At the level of locks, requests wait for tokens with nothing else in the way, and what
counts is the time for which they wait while they are among the m strongest. At the level of
machines, whole jobs run with CPUs, units, copies, helpers and migrations.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from headway.engine.analysis.requests import (
    Rival,
    donation_bound,
    priority_bound,
    sections_ahead,
    simple_bound,
)
from headway.engine.locks.cluster_locks import make_allocator
from headway.engine.locks.clusters import Clusters
from headway.engine.locks.copies import CopySettings
from headway.engine.locks.jobs import Grant, Job
from headway.engine.locks.settings import AllocatorSettings, preset
from headway.engine.locks.system import Bus, LockSystem
from headway.sim.analysing import analyse_machine
from headway.sim.gpusync.plan import GpuSyncPlan, TaskPlan, Variation
from headway.sim.gpusync.run import run_plan
from headway.sim.study.generators import Recipe, draw

PROTOCOLS = ("r2dglp", "r2dglp-wc", "length", "kfmlp", "priority")
JOBS = 25
"""Of each task at the level of locks."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The worst case of one task set, against its bound."""

    seed: int
    protocol: str
    what: str
    """The task, or the kind of bound."""
    bound_ns: int
    worst_ns: int

    @property
    def tightness(self) -> float:
        """1: the bound was reached."""
        return self.worst_ns / self.bound_ns if self.bound_ns else float(self.worst_ns > 0)

    @property
    def holds(self) -> bool:
        return self.worst_ns <= self.bound_ns


@dataclass(frozen=True, slots=True)
class LockSet:
    """Tasks whose jobs only ask for a token and hold it."""

    settings: AllocatorSettings
    periods: tuple[int, ...]
    offsets: tuple[int, ...]
    holds: tuple[int, ...]
    """The longest section of each task."""
    by_deadline: bool
    """Whether priorities are deadlines; else periods."""


def draw_locks(rng: random.Random, protocol: str) -> LockSet:
    """A small task set, so crowded that queues fill."""
    cpus = rng.randint(1, 8)
    devices = rng.choice([1, 1, 2])
    length = None
    if protocol == "length":
        length = rng.randint(-(-cpus // devices), cpus + 1) if devices == 1 else cpus
    settings = preset(protocol, cpus=cpus, devices=devices, rho=rng.randint(1, 3), length=length)
    count = rng.randint(2, 3 * cpus + 2)
    shape = rng.choice(["even", "mixed", "equal"])
    longest = rng.choice([5, 20, 100])
    holds = [
        longest if shape == "equal" else rng.randint(1, longest) if shape == "even"
        else rng.choice([1, longest])
        for _ in range(count)
    ]  # fmt: skip
    load = rng.uniform(0.3, 1.3) * settings.tokens
    periods = [max(hold + 1, int(hold * count / load * rng.uniform(0.5, 2))) for hold in holds]
    return LockSet(
        settings,
        tuple(periods),
        tuple(rng.randint(0, period) for period in periods),
        tuple(holds),
        protocol != "priority" and rng.random() < 0.7,
    )


@dataclass(slots=True)
class LockRun:
    """What waiting came to, for each task."""

    in_top: list[int]
    """The longest wait of a job while it was among the m strongest."""
    waits: list[int]
    """The longest wait of a job at all."""


def run_locks(plan: LockSet, rng: random.Random) -> LockRun:
    """Simulate `JOBS` jobs of each task."""
    locks = make_allocator(plan.settings)
    count = len(plan.periods)
    jobs = [Job(number, 0, number) for number in range(count)]
    releases = list(plan.offsets)
    left = [JOBS] * count
    result = LockRun([0] * count, [0] * count)
    asked, counted = [0] * count, [0] * count
    waiting: set[int] = set()
    due = [(offset, 1, number) for number, offset in enumerate(plan.offsets)]
    heapify(due)
    last = 0

    def granted(grants: list[Grant], now: int) -> None:
        for _, job in grants:
            number = job.task
            waiting.discard(number)
            result.waits[number] = max(result.waits[number], now - asked[number])
            result.in_top[number] = max(result.in_top[number], counted[number])
            longest = plan.holds[number]
            heappush(due, (now + rng.choice([longest, rng.randint(1, longest)]), 0, number))

    while due:
        now, asks, number = heappop(due)
        if now > last:
            for other in waiting:
                if locks.in_top(jobs[other]):
                    counted[other] += now - last
            last = now
        job = jobs[number]
        if asks:
            priority = -(releases[number] if plan.by_deadline else 0) - plan.periods[number]
            job.base = (priority, -number)
            asked[number], counted[number] = now, 0
            waiting.add(number)
            granted(locks.request(job), now)
            continue
        granted(locks.release(job), now)
        left[number] -= 1
        releases[number] += plan.periods[number]
        if left[number]:
            heappush(due, (max(now, releases[number]), 1, number))
    return result


def check_locks(seed: int) -> list[Seen]:
    """One random task set against the bounds of one request."""
    rng = random.Random(seed)
    protocol = PROTOCOLS[seed % len(PROTOCOLS)]
    plan = draw_locks(rng, protocol)
    run = run_locks(plan, rng)
    if plan.settings.order == "priority":
        return _check_priority(seed, plan, run)
    longest = max(plan.holds)
    bound = simple_bound(plan.settings, len(plan.holds), longest)
    if bound is None:
        return []
    found = [Seen(seed, protocol, "one request", bound, max(run.in_top))]
    if sections_ahead(plan.settings, 2) is None:
        return found
    for number in range(len(plan.holds)):
        response = run.waits[number] + plan.holds[number]
        refined = donation_bound(plan.settings, _rivals(plan, run, number), response)
        assert refined is not None
        found.append(Seen(seed, protocol, f"refined, task {number}", refined, run.in_top[number]))
    return found


def _rivals(plan: LockSet, run: LockRun, number: int) -> list[Rival]:
    """The other tasks; their response times are those seen, so that only the bound is tested."""
    return [
        Rival(
            str(other), plan.holds[other], plan.periods[other], run.waits[other] + plan.holds[other]
        )
        for other in range(len(plan.holds))
        if other != number
    ]


def _check_priority(seed: int, plan: LockSet, run: LockRun) -> list[Seen]:
    """Fixed priorities: each task against its own bound, whose response times are bounds too."""
    order = sorted(range(len(plan.periods)), key=lambda number: (plan.periods[number], number))
    stronger: list[Rival] = []
    found = []
    for place, number in enumerate(order):
        weaker = max((plan.holds[other] for other in order[place + 1 :]), default=0)
        limit = 1000 * max(plan.periods)
        bound = priority_bound(plan.settings.tokens, weaker, stronger, limit)
        if bound is None or bound + plan.holds[number] > plan.periods[number]:
            break  # jobs of one task may follow each other without a pause: no bound from here on
        found.append(Seen(seed, "priority", f"task {number}", bound, run.waits[number]))
        stronger.append(
            Rival(str(number), plan.holds[number], plan.periods[number], bound + plan.holds[number])
        )
    return found


# -- machines --------------------------------------------------------------------------------


def draw_machine(rng: random.Random) -> GpuSyncPlan:
    """A small machine that is loaded so that some sets are schedulable and some are not."""
    cpus = rng.choice([1, 2, 4])
    devices = rng.choice([1, 1, 2, 4])
    scheduler = rng.choice(["edf", "rm"])
    allocator = rng.choice(["r2dglp-wc", "r2dglp", "kfmlp", "priority"])
    units = rng.choice([1, 2])
    system = LockSystem(
        Clusters(cpus, cpus, devices, rng.choice([1, devices])),
        scheduler,
        rng.choice([1, 2, 3, 4]),
        allocator,
        None,
        rng.choice(["fifo", "priority"]),
        CopySettings(units, reserved=units == 2 and rng.random() < 0.3, chunk=1_000_000),
        rng.choice(["peer", "system"]),
        rng.random() < 0.7,
        None,
        Bus(6_000_000_000, 8_000_000_000),
        rng.choice([0, 5_000, 50_000]),
        rng.choice([0, 5_000, 50_000]),
        rng.choice([0, 10_000, 200_000]),
    )
    clusters = [(0, number) for number in range(devices // system.clusters.devices_each)]
    recipe = Recipe(
        tasks=rng.randint(2, 8),
        gpu_tasks=rng.uniform(0.3, 1.0),
        gpu_part=rng.uniform(0.3, 0.9),
        copy_part=rng.uniform(0.0, 0.6),
        kernels=rng.choice([1, 2, 3, 12]),
        state=rng.choice([0.0, 0.5, 3.0]),
        most=0.6,
    )
    most = min(recipe.tasks * recipe.most, cpus + devices)
    load = rng.uniform(0.05, 0.6) * most
    tasks = draw(rng, recipe, load, system.worst_rate, clusters)
    within_ns = rng.choice([0, 10_000_000, 1_000_000_000])  # all at once, nearly, or anywhere
    plans = [
        TaskPlan(
            task,
            rng.randint(0, min(within_ns, task.period_ns - 1)),
            Variation(
                shortest=rng.choice([1.0, 1.0, 0.5]),
                split=rng.random() < 0.5,
                sporadic=rng.choice([0.0, 0.0, 0.3]),
                jitter_ns=rng.choice([0, 0, 0, task.period_ns // 4]),
            ),
        )
        for task in tasks
    ]
    return GpuSyncPlan(system, tuple(plans), 1_500_000_000, rng.randrange(1 << 30))


def check_machine(seed: int) -> list[Seen]:
    """One random machine: simulated response times against those of the analysis."""
    rng = random.Random(f"machine {seed}")
    plan = draw_machine(rng)
    verdicts = analyse_machine(plan).verdicts
    if all(verdict.bound_ns is None for verdict in verdicts):
        return []
    result = run_plan(plan)
    name = f"{plan.system.scheduler} {plan.system.allocator}"
    return [
        Seen(seed, name, verdict.task, verdict.bound_ns, result.tasks[verdict.task].worst_ns)
        for verdict in verdicts
        if verdict.bound_ns is not None
    ]
