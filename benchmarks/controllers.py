"""Controllers of shares over random task sets, simulated: how soon misses end, and what that costs.

A set is an important task with a deadline and one or two less important ones, on a device whose
multiprocessors interleave blocks as CudaMon's did (§5.2.1). Kept are the sets in which a share can
decide: the important task misses deadlines beside the others as they come, and none beside them at
2 %. All are run under CudaMon's controller as the report has it, with a restart for each change,
under the same without restarts, and under `bisection`.

    python -m benchmarks.controllers [--sets 200] [--seed S] [--worst N]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.sim.cudamon.controlling import MORE, SOON
from headway.sim.cudamon.runs import Measured, run
from headway.sim.cudamon.workloads import HIGH, RESIDENT, RESTART, Scenario

SMS = 80
JOBS = 600
CONTROLLERS: Mapping[str, Mapping[str, str]] = {
    "aimd, a restart for each change": {
        "controller": "aimd",
        "restart": RESTART,
        "restarts": "every",
    },
    "aimd, no restart": {"controller": "aimd"},
    "bisection, no restart": {"controller": "bisection"},
}
REPORT, DIRECT, BETTER = CONTROLLERS


@dataclass(frozen=True, slots=True)
class TaskSet:
    """One task set, as a scenario without a manager."""

    tasks: list[Scenario]
    job_ms: float
    """What the important task takes alone."""
    every_ms: float
    """From one of its jobs to the next."""
    longest_ms: float
    """The longest kernel of the others."""

    def scenario(self, manager: Mapping[str, str], low_share: int = 100) -> Scenario:
        tasks = [{**task, "cuda": dict(task["cuda"])} for task in self.tasks]
        for task in tasks[1:]:
            task["cuda"]["share"] = low_share
        return {
            "run": {"duration": f"{JOBS * self.every_ms:.3f}ms", "seed": 1},
            "device": {"kind": "interleaved", "multiprocessors": SMS},
            "manager": {"kind": "shares", **manager} if manager else {"kind": "none"},
            "task": tasks,
        }


def _program(name: str, priority: int, work: list[Scenario], **more: Any) -> Scenario:
    return {"name": name, "priority": priority, "cuda": {"work": work, **more}}


def draw(draws: random.Random) -> TaskSet:
    """Any task set."""

    def kernels(ms: float, blocks: tuple[int, int], spread: float) -> Scenario:
        return {
            "kernel": f"{ms:.3f}ms",
            "blocks": draws.randint(*blocks),
            "per_sm": RESIDENT,
            "interleave": round(draws.uniform(0.05, 0.5), 3),
            "spread": spread,
        }

    spread = draws.choice((0.0, 0.0, 0.02, 0.05))
    count = draws.choice((1, 1, 2, 5))
    ms = draws.uniform(0.5, 6)
    work = [{**kernels(ms, (4, SMS), spread), "count": count}, {"sync": "all"}]
    if draws.random() < 0.4:
        work.append({"cpu": f"{ms * draws.uniform(0.2, 1):.3f}ms"})
    high = _program(HIGH, 5, work)
    alone = run(_alone(high), "alone")
    job_ms = max(value for _, value in alone.tasks[HIGH].responses)
    every_ms = job_ms
    high["cuda"]["deadline"] = f"{job_ms * draws.uniform(1.03, 1.4):.4f}ms"
    if draws.random() < 0.5:
        every_ms = job_ms * draws.uniform(1.2, 3)
        high["cuda"]["period"] = f"{every_ms:.3f}ms"
    others, longest_ms = [], 0.0
    for number in range(draws.choice((1, 1, 2))):
        length_ms = every_ms * draws.uniform(0.05, 0.8)
        longest_ms = max(longest_ms, length_ms)
        step = {**kernels(length_ms, (8, 4 * SMS), spread), "count": draws.choice((1, 4))}
        others.append(_program(f"low{number}", number, [step, {"sync": "all"}]))
    return TaskSet([high, *others], job_ms, every_ms, longest_ms)


def _alone(task: Scenario) -> Scenario:
    return {
        "run": {"duration": "1000s", "seed": 1},
        "device": {"kind": "interleaved", "multiprocessors": SMS},
        "manager": {"kind": "none"},
        "task": [{**task, "cuda": {**task["cuda"], "jobs": 20}}],
    }


def decides(tasks: TaskSet) -> bool:
    """Whether the others' share decides on the important task's deadlines."""
    free = run(tasks.scenario({}), "unmanaged").tasks[HIGH]
    if free.misses < 0.2 * len(free.missed):
        return False
    return not run(tasks.scenario({}, 2), "least").tasks[HIGH].misses


def lows(result: Measured) -> float:
    """Jobs a second of all the others together."""
    return sum(result.rate(name) for name in result.tasks if name != HIGH)


@dataclass(frozen=True, slots=True)
class Compared:
    """One set under every controller."""

    tasks: TaskSet
    periods: dict[str, int]
    """From the first miss to the last."""
    misses: dict[str, float]
    """As a part of the jobs."""
    rates: dict[str, float]

    def gain(self, over: str) -> float:
        """How many times as much the others get done under the better controller."""
        return self.rates[BETTER] / self.rates[over] if self.rates[over] else float("inf")


def compare(tasks: TaskSet) -> Compared:
    found = {name: run(tasks.scenario(how), name) for name, how in CONTROLLERS.items()}
    high = {name: result.tasks[HIGH] for name, result in found.items()}
    return Compared(
        tasks,
        {name: series.periods_of_misses() for name, series in high.items()},
        {name: series.misses / max(1, len(series.missed)) for name, series in high.items()},
        {name: lows(result) for name, result in found.items()},
    )


def said(values: list[float]) -> str:
    tenths = statistics.quantiles(values, n=10)
    return f"{statistics.median(values):.4g} ({tenths[0]:.4g} to {tenths[-1]:.4g})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", type=int, default=0, help="print so many of the worst sets")
    options = parser.parse_args()
    draws = random.Random(options.seed)
    found: list[Compared] = []
    drawn = 0
    while len(found) < options.sets:
        drawn += 1
        tasks = draw(draws)
        if decides(tasks):
            found.append(compare(tasks))
            print(f"\r{len(found)} of {options.sets} sets", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{len(found)} of {drawn} random task sets, {JOBS} jobs each, seed {options.seed};")
    print("median (tenth to nine tenths):")
    for name in CONTROLLERS:
        periods = said([one.periods[name] for one in found])
        misses = said([100 * one.misses[name] for one in found])
        print(f"  {name}: {periods} periods from the first miss to the last, {misses} % missed")
    soon = sum(one.periods[BETTER] <= SOON for one in found)
    print(f"{BETTER}: misses ended within {SOON} periods in {soon} of {len(found)} sets")
    for over in (REPORT, DIRECT):
        gains = [one.gain(over) for one in found]
        enough = sum(gain >= MORE for gain in gains)
        print(
            f"  the others' throughput: {said(gains)} times that under {over}; at least"
            f" {MORE:g} times in {enough}"
        )
    fewer = sum(one.misses[BETTER] < one.misses[DIRECT] for one in found)
    print(f"  fewer misses than under {DIRECT}: in {fewer}")
    for one in sorted(found, key=lambda c: -c.periods[BETTER])[: options.worst]:
        print(one)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
