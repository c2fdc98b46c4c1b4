"""An important actor beside greedy ones on one GPU of a cluster: Ray alone, and Ray with Headway.

    python -m benchmarks.fleet_jobs [--seconds 5] [--greedy 3] [--rounds 3]

Three nodes of Ray on this machine with software GPUs; all actors are on one of them and run an
OpenCL program (PoCL). Ray alone only counts their shares; with Headway the important one claims
priority 9 and a reserve with a deadline. Each round measures every case once; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import headway
from headway.fleet import joining
from tests.integration import opencl
from tests.integration.ray_nodes import cluster

KERNELS, KERNEL_US, PERIOD_MS = 4, 500, 25
GREEDY = ("lp", 1000, 8, 0)
CLAIM: dict[str, Any] = {"priority": 9, "reserve": "5ms/25ms", "deadline": "25ms"}
AHEAD_S = 2.0
"""How long before the important jobs begin the others are asked to."""
CASES = ("alone", "Ray alone", "Ray with Headway")


class Program:
    """An actor that runs the OpenCL program and tells what it measured."""

    def run(self, program: str, words: list[str], env: dict[str, str] | None) -> dict[str, Any]:
        variables = {**os.environ, "LOOPS": opencl.LOOPS_PER_US} if env is None else env
        done = subprocess.run(
            [program, *words], env=variables, capture_output=True, text=True, check=True
        )
        return dict(json.loads(done.stdout))


def actor(home: str, claim: dict[str, Any] | None) -> Any:
    """One on this node; without a claim a share of its GPU is counted by Ray."""
    if claim is not None:
        made = headway.fleet.remote(labels={"node": home}, num_cpus=0, **claim)(Program)
        return made.remote()
    share = {joining.RESOURCE: 0.2}
    selector = {joining.LABEL_NODE: home}
    ray = joining.ray()
    return (
        ray.remote(Program).options(resources=share, num_cpus=0, label_selector=selector).remote()
    )


def measure(built: Path, home: str, case: str, seconds: float, greedy: int) -> dict[str, Any]:
    """Quantiles of the important program's jobs, and how many the greedy ones did."""
    ray = joining.ray()
    manages = case == "Ray with Headway"
    env = None if manages else opencl.unmanaged()
    others = greedy if case != "alone" else 0
    actors = [actor(home, CLAIM if manages else None)]
    actors += [actor(home, {"priority": 1} if manages else None) for _ in range(others)]
    program = str(built / "clapp")
    try:
        ready = [a.run.remote(program, ["fix", "10", "1", "0", "1"], env) for a in actors]
        ray.get(ready, timeout=90)
        begins = str(time.time() + AHEAD_S)
        words = ["hp", str(KERNEL_US), str(KERNELS), str(PERIOD_MS), str(seconds)]
        important = actors[0].run.remote(
            "/usr/bin/env", [f"START_AT={begins}", program, *words], env
        )
        last_s = str(seconds + 1.5 * AHEAD_S)
        greedy_words = [str(word) for word in GREEDY] + [last_s]
        running = [a.run.remote(program, greedy_words, env) for a in actors[1:]]
        found: dict[str, Any] = ray.get(important, timeout=120)
        rest = ray.get(running, timeout=120)
    finally:
        for one in actors:
            ray.kill(one)
    return {**found, "greedy_jobs": sum(one["jobs"] for one in rest)}


def measure_all(built: Path, home: str, seconds: float, greedy: int) -> dict[str, dict[str, Any]]:
    return {case: measure(built, home, case, seconds, greedy) for case in CASES}


def table(rounds: list[dict[str, dict[str, Any]]], greedy: int) -> str:
    """Medians over the rounds."""

    def middle(case: str, key: str) -> float:
        return statistics.median(float(one[case][key]) for one in rounds)

    title = (
        f"| important actor beside {greedy} greedy ones | p50 ms | p99 ms | max ms | p99 to alone |"
    )
    lines = [title, "|---|---|---|---|---|"]
    for case in CASES:
        p50, p99, most = (middle(case, f"{key}_us") / 1e3 for key in ("p50", "p99", "max"))
        ratio = p99 * 1e3 / middle("alone", "p99_us")
        lines.append(f"| {case} | {p50:.2f} | {p99:.2f} | {most:.2f} | {ratio:.2f} |")
    jobs = {case: middle(case, "greedy_jobs") for case in CASES[1:]}
    kept = jobs["Ray with Headway"] / max(jobs["Ray alone"], 1)
    return "\n".join([*lines, "", f"the greedy ones did {kept:.2f} of their jobs under Ray alone"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--greedy", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hw") as folder:
        built = opencl.compile_all(Path(folder))
        with cluster(Path(folder), ("one", "two", "three")):
            rounds = [
                measure_all(built, "one", options.seconds, options.greedy)
                for _ in range(options.rounds)
            ]
    print(table(rounds, options.greedy))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
