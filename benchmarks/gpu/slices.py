"""One GPU as four devices: does affinity keep tasks at home, and whom does an overrun hurt?

Six tasks with 16 MiB of state on four slices, with affinity and with tokens of any slice; then one
of the tasks overruns its budget and is told. A picture shows the response times as a CDF.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Stage

JOB = str(Path(__file__).with_name("sliced_job.py"))
TASKS, SLICES = 6, 4
FILE = """[machine]
cpus = 8
gpus = {slices}
slices = {slices}
[gpusync]
rho = 1
affinity = {affinity}
"""
JOB_S = 0.02
SLACK = 4
"""How much longer than their periods the jobs may take before a program counts as hung."""


def run(
    stage: Stage, folder: Path, jobs: int, *, affinity: bool, overruns: bool, soft: bool = False
) -> list[dict[str, Any]]:
    """What each task says of its jobs; the first overruns if told to."""
    file = folder / f"locks-{affinity}-{overruns}.toml"
    file.write_text(FILE.format(slices=SLICES, affinity=str(affinity).lower()))
    with stages.daemon(stage, "--locks", str(file)) as at:
        commands = []
        for number in range(TASKS):
            options = ["--overruns"] * (overruns and number == 0) + ["--soft"] * soft
            commands.append([sys.executable, JOB, f"task{number}", str(jobs), *options])
        return at.together(*commands, seconds=SLACK * JOB_S * jobs + 30)


def away(found: Sequence[dict[str, Any]]) -> float:
    """The fraction of jobs that were not at home."""
    moves = [sum(counts) for counts in zip(*(task["moves"] for task in found), strict=True)]
    return 1 - float(moves[0] / sum(moves))


def percentile(found: Sequence[dict[str, Any]], percent: int) -> float:
    times = [float(ms) for task in found for ms in task["responses_ms"]]
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def measure(stage: Stage, quick: bool, *, soft: bool = False) -> Outcome:
    import tempfile

    jobs = 50 if quick else 500
    outcome = Outcome(data={})
    rows: list[Sequence[str]] = []
    runs: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="headway-slices-") as name:
        for title, affinity, overruns in (
            ("affinity", True, False),
            ("any slice", False, False),
            ("affinity, one overruns", True, True),
        ):
            found = run(stage, Path(name), jobs, affinity=affinity, overruns=overruns, soft=soft)
            others = found[1:] if overruns else found
            runs[title] = others
            moves = [sum(counts) for counts in zip(*(t["moves"] for t in found), strict=True)]
            ms = [f"{percentile(others, p):.2f}" for p in (50, 99)]
            rows.append([title, " / ".join(map(str, moves)), *ms, str(found[0]["told"])])
            print(*rows[-1], sep="  ", flush=True)
            outcome.data[title] = found
    ordinary, any_slice = away(runs["affinity"]), away(runs["any slice"])
    outcome.goals.append(Goal("jobs away from home, of those without affinity",
                              ordinary / any_slice if any_slice else 1.0, 0.5))  # fmt: skip
    overrun = outcome.data["affinity, one overruns"][0]
    late = max(overrun["late_ms"], default=float("inf"))
    outcome.goals.append(Goal("overrun told after at most one kernel, ms late", late, 5.0))
    unhurt = percentile(runs["affinity, one overruns"], 99) / percentile(runs["affinity"], 99)
    outcome.goals.append(Goal("the others' p99 beside an overrun, of without", unhurt, 1.5))
    head = ["", "jobs at distance 0 / 1 / 2 / 3", "p50 ms", "p99 ms", "told"]
    outcome.tables.append(Table(f"{TASKS} tasks on {SLICES} slices, {jobs} jobs each", head, rows))
    _draw(runs, "out/slices.png")
    return outcome


def _draw(runs: dict[str, list[dict[str, Any]]], path: str) -> None:
    from headway.sim.papers.figure import Curve, Plot
    from headway.view.plots import plot_figure

    curves = []
    for name, found in runs.items():
        times = sorted(ms for task in found for ms in task["responses_ms"])
        y = [100 * (place + 1) / len(times) for place in range(len(times))]
        curves.append(Curve(name, y, times))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    plot_figure(path, "Response times on slices", Plot("lines", "ms", "% of jobs", curves))
