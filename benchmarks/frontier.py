"""Library programs with deadlines beside training, simulated: what each way of sharing a GPU costs.

The important program is bound by its CPU, as eager detection or decoding is: many small kernels,
most of the time between them on the CPU, and a deadline somewhat above its time alone. Beside it
trains a program that could use the whole GPU. Ways: time slices and MPS without a manager; MPS with
the fixed percentage for the training that was found by hand, the largest in steps of 5 at which no
more jobs miss than alone; Headway's gate without shares; shares without a gate; both. A way is on
the frontier if no other has both fewer misses and more training.

    python -m benchmarks.frontier [--jobs 400] [--seed S]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.sim.cudamon.runs import run
from headway.sim.cudamon.workloads import Scenario

SMS = 132
HIGH, LOW = "important", "training"
PERCENT = range(5, 100, 5)
MPS: Mapping[str, Any] = {"kind": "side-by-side", "profile": "h200"}
SLICED: Mapping[str, Any] = {"kind": "time-sliced", "profile": "h200"}
NOBODY: Mapping[str, Any] = {"kind": "none"}
WAYS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "time slices, nobody manages": (SLICED, NOBODY),
    "MPS, nobody manages": (MPS, NOBODY),
    "gate only": (MPS, {"kind": "headway", "controller": "bisection", "spaces": False}),
    "shares only": (MPS, {"kind": "shares", "controller": "bisection"}),
    "both": (MPS, {"kind": "headway", "controller": "bisection"}),
}
SAME = 0.02
"""Training, and parts of the jobs, that differ by less are the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """An important program: a job is so many kernels with CPU time between them."""

    period_ms: float
    kernels: int
    kernel_us: float
    blocks: int
    cpu_us: float
    slack: float
    """By which part of what a job takes alone it may take longer."""
    spread: float = 0.05

    def work(self) -> list[Scenario]:
        kernel = {"kernel": f"{self.kernel_us:g}us", **_blocks(self.blocks)}
        steps = [kernel, {"sync": "all"}, {"cpu": f"{self.cpu_us:g}us", "spread": self.spread}]
        return [{"repeat": self.kernels, "work": steps}]


def _blocks(blocks: int) -> Scenario:
    return {"blocks": blocks, "per_sm": 4, "interleave": 0.35}


CASES = {
    "detection, 30 fps": Case(33.3, 60, 40, 100, 180, 0.06),
    "decoding, 20 a second": Case(50, 120, 60, 64, 220, 0.08),
    "detection, bound by the GPU": Case(33.3, 40, 300, 132, 60, 0.1),
}
TRAINING: list[Scenario] = [
    {"kernel": "150us", "count": 30, **_blocks(4 * SMS)},
    {"kernel": "30us", "count": 60, **_blocks(SMS)},
    {"sync": "all"},
]


def scenario(
    case: Case,
    device: Mapping[str, Any],
    manager: Mapping[str, Any],
    jobs: int,
    seed: int,
    *,
    deadline_ms: float,
    share: int | None = 100,
) -> Scenario:
    """`share`: of the training, in percent; None: nobody trains."""
    times = {"period": f"{case.period_ms}ms", "deadline": f"{deadline_ms:.4f}ms", "tells": True}
    tasks = [{"name": HIGH, "priority": 9, "cuda": {**times, "work": case.work()}}]
    if share is not None:
        tasks.append({"name": LOW, "priority": 1, "cuda": {"share": share, "work": TRAINING}})
    return {
        "run": {"duration": f"{jobs * case.period_ms:.3f}ms", "seed": seed},
        "device": dict(device),
        "manager": dict(manager),
        "task": tasks,
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """What came of one way."""

    missed: float
    """As a part of the important program's jobs."""
    steps: float
    """Of training, a second."""

    def beats(self, other: Cost, most: float) -> bool:
        """Better in one respect, and not worse in the other."""
        missed, steps = other.missed - self.missed, (self.steps - other.steps) / most
        return max(missed, steps) > SAME and min(missed, steps) > -SAME


def measure(case: Case, jobs: int, seed: int) -> dict[str, Cost]:
    """Each way's cost."""
    alone = run(
        scenario(case, MPS, NOBODY, jobs, seed, deadline_ms=case.period_ms, share=None), "alone"
    )
    responses = sorted(ms for _, ms in alone.tasks[HIGH].responses)
    deadline_ms = responses[-1] * (1 + case.slack)

    def cost(how: str, way: tuple[Mapping[str, Any], Mapping[str, Any]], share: int = 100) -> Cost:
        made = scenario(case, *way, jobs, seed, deadline_ms=deadline_ms, share=share)
        result = run(made, how)
        high = result.tasks[HIGH]
        return Cost(high.misses / max(1, len(high.missed)), result.rate(LOW))

    found = {how: cost(how, way) for how, way in WAYS.items()}
    by_hand = {share: cost("by hand", (MPS, NOBODY), share) for share in PERCENT}
    fine = [share for share, one in by_hand.items() if not one.missed]
    best = max(fine, default=min(by_hand))
    found[f"MPS, {best} % by hand"] = by_hand[best]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name, case in CASES.items():
        found = measure(case, options.jobs, options.seed)
        most = max(one.steps for one in found.values())
        print(f"{name}: {options.jobs} jobs, seed {options.seed}")
        for how, one in found.items():
            better = [who for who, other in found.items() if other.beats(one, most)]
            place = f"worse than {', '.join(better)}" if better else "on the frontier"
            print(f"  {how:28}{100 * one.missed:6.1f} % missed{one.steps:8.1f} steps/s   {place}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
