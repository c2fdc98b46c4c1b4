"""How fast and how frugal is the simulator?

Ten periodic tasks with prime periods, fixed priorities, U = 0.7, on one non-preemptive resource:
Headway with its statistics on, against the same model on SimPy's PriorityResource, which only
counts jobs and adds up responses. Both must agree on every task's job count and response sum.

    python benchmarks/simulator.py [--rounds 5] [--jobs 200000] [--memory-groups 10000000]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import simpy

from headway.engine.core import Engine
from headway.engine.priorities import Fixed
from headway.sim.programs.periodic import Periodic
from headway.sim.simulator import Device, Simulator
from headway.trace.statistics import Statistics

PERIODS_NS = (
    10_000_019, 13_000_027, 17_000_023, 19_000_013, 23_000_009,
    29_000_021, 31_000_043, 37_000_003, 41_000_009, 43_000_007,
)  # fmt: skip
"""Primes, so that releases coincide only at the start."""
UTILISATION = 0.7
COSTS_NS = tuple(round(period * UTILISATION / len(PERIODS_NS)) for period in PERIODS_NS)
GOAL = 4.0
Sums = dict[int, tuple[int, int]]
"""Job count and sum of response times by task."""


def on_headway(until_ns: int) -> Sums:
    """The model on Headway: PRT, the shorter the period the more important."""
    gathered = Statistics()
    engine = Engine(observers=[gathered])
    programs = {}
    for place, (period_ns, cost_ns) in enumerate(zip(PERIODS_NS, COSTS_NS, strict=True)):
        task, _ = engine.add_task(str(place), 0, priority=Fixed(-place), period_ns=period_ns)
        programs[task] = Periodic(period_ns, cost_ns)
    Simulator(engine, programs, Device()).run(until_ns)
    return {int(t.name): (e.groups, e.responses.total) for t, e in gathered.tasks.items()}


def on_simpy(until_ns: int) -> Sums:
    """The model on SimPy: a process per task makes a process per job."""
    env = simpy.Environment()
    gpu = simpy.PriorityResource(env, capacity=1)
    counts = [0] * len(PERIODS_NS)
    sums = [0] * len(PERIODS_NS)

    def job(place: int, cost_ns: int) -> Iterator[Any]:
        released_ns = env.now
        with gpu.request(priority=place) as turn:
            yield turn
            yield env.timeout(cost_ns)
        counts[place] += 1
        sums[place] += env.now - released_ns

    def task(place: int, period_ns: int, cost_ns: int) -> Iterator[Any]:
        while True:
            env.process(job(place, cost_ns))
            yield env.timeout(period_ns)

    for place, (period_ns, cost_ns) in enumerate(zip(PERIODS_NS, COSTS_NS, strict=True)):
        env.process(task(place, period_ns, cost_ns))
    env.run(until=until_ns + 1)  # SimPy stops before, Headway after this instant
    return {place: (counts[place], sums[place]) for place in range(len(PERIODS_NS))}


def timed(run: Callable[[int], Sums], until_ns: int) -> tuple[Sums, float]:
    """What a run gave, and the jobs it did per second of CPU time."""
    began = time.process_time()
    sums = run(until_ns)
    return sums, sum(count for count, _ in sums.values()) / (time.process_time() - began)


def horizon_ns(jobs: int) -> int:
    """How long to simulate for about this many jobs."""
    return int(jobs / sum(1 / period_ns for period_ns in PERIODS_NS))


def compare(rounds: int, jobs: int) -> float:
    """Alternate the two, round by round, and print the median ratio with its spread."""
    until_ns = horizon_ns(jobs)
    ratios = []
    for _ in range(rounds):
        ours, our_rate = timed(on_headway, until_ns)
        theirs, their_rate = timed(on_simpy, until_ns)
        if ours != theirs:
            sys.exit(f"the two disagree: Headway {ours}, SimPy {theirs}")
        ratios.append(our_rate / their_rate)
        print(
            f"  {sum(n for n, _ in ours.values())} jobs: Headway {our_rate:,.0f} jobs/s,"
            f" SimPy {their_rate:,.0f} jobs/s, ratio {ratios[-1]:.2f}"
        )
    middle = statistics.median(ratios)
    print(
        f"ratio to SimPy {simpy.__version__}: median {middle:.2f}"
        f" (from {min(ratios):.2f} to {max(ratios):.2f}, goal {GOAL:g})"
    )
    return middle


def memory(groups: int) -> None:
    """Peak memory of a small run and of a long one, each in a process of its own."""
    for count in (groups // 100, groups):
        code = f"import simulator; simulator.one_run({count})"
        subprocess.run([sys.executable, "-c", code], check=True, cwd=__file__.rpartition("/")[0])


def one_run(groups: int) -> None:
    """Simulate and print the peak memory of this process."""
    began = time.process_time()
    done = sum(count for count, _ in on_headway(horizon_ns(groups)).values())
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = time.process_time() - began
    print(f"  {done:,} groups: peak {peak_mib:.1f} MiB, {spent:.1f} s of CPU time", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--memory-groups", type=int, default=10_000_000)
    options = parser.parse_args()
    print("speed, statistics on:")
    reached = compare(options.rounds, options.jobs)
    print("memory:", flush=True)
    memory(options.memory_groups)
    if reached < GOAL:
        sys.exit(f"the goal was missed: {reached:.2f} instead of {GOAL:g}")
