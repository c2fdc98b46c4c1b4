"""OpenCL on a GPU's own driver: the same results, and what an important program keeps.

The important one does a fixed number of jobs, so that its result is the same in every run. It is
reached as a layer of the ICD loader, and, where a loader knows none, by functions of the same names
before the loader's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.gpu import books
from benchmarks.gpu import stage as stages
from benchmarks.gpu.building import OPENCL
from benchmarks.gpu.results import Goal, Outcome, latencies
from benchmarks.gpu.stage import Stage, Way

WORDS = 264 * 512
"""As wide as the CUDA programs' kernels: the whole GPU."""
JOB, PERIOD_MS = (100, 10), 10
"""Kernels of 0.1 ms, ten to a job."""
GREEDY = (100, 64, 0)
ALONE = "alone"
ROUTES = {"as a layer": (), "before the loader": ("env", "-u", "OPENCL_LAYERS")}
RIVALS = {"OpenCL": "clapp", "CUDA": "app"}
WAYS = (stages.TIME_SLICED, stages.OVERLAP)


def calibrated(stage: Stage, words: int = WORDS) -> tuple[Stage, str]:
    """The same stage with kernels that are as long as they should be, and what runs them."""
    stage = stage.with_env(WORDS=str(words))
    command = stage.program("clapp", "fix", *JOB, 0, 5)
    (said,) = stages.finish([stage.start(command)], stages.LATE_S)
    return stage.with_env(LOOPS=str(said["loops"])), str(said["device"])


def job(stage: Stage, seconds: float) -> list[str]:
    return stage.program("clapp", "fix", *JOB, PERIOD_MS, int(seconds * 1000 / PERIOD_MS))


def alone(stage: Stage, seconds: float, route: str | None = None) -> dict[str, Any]:
    """Without Headway, or under it by one of the routes."""
    if route is None:
        return stage.together(job(stage, seconds), seconds=seconds, start_s=0)[0]
    command = [*stages.run_as("hp", "--priority", "9"), *ROUTES[route], *job(stage, seconds)]
    with stages.daemon(stage) as at, books.kept(at) as seen:
        (said,) = at.together(command, seconds=seconds, start_s=1.0)
    return {**said, "passed": seen.last("hp", "passed")}


def beside(stage: Stage, way: Way, rival: str, seconds: float) -> dict[str, Any]:
    greedy = stage.program(RIVALS[rival], "lp", *GREEDY, seconds)
    with way.on(stage) as at, books.kept(at) as seen:
        said, other = at.together(
            [*way.important(), *job(stage, seconds)], [*way.greedy(), *greedy], seconds=seconds
        )
    passed = {"passed": seen.last("hp", "passed")} if way.policy else {}
    return {**said, "share": other["busy"], **passed}


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = 1.5 if quick else 3.0
    stage, device = calibrated(stage)
    reason = stage.missing.get(OPENCL)
    outcome = Outcome(data={"device": device}, notes=[f"On {device}."])
    if reason is not None:
        outcome.notes.append(f"The interposer was built without OpenCL: {reason}.")
    cases = {ALONE: partial(alone, stage, seconds)}
    if reason is None:
        routes = {f"Headway, alone, {route}": route for route in ROUTES}
        cases |= {title: partial(alone, stage, seconds, route) for title, route in routes.items()}
    for rival in RIVALS:
        for way in WAYS[: 1 if reason else None]:
            cases[f"{way.title}, beside {rival}"] = partial(beside, stage, way, rival, seconds)
    found = {title: outcome.tried(title, case) for title, case in cases.items()}
    rows = outcome.data["rows"] = {title: row for title, row in found.items() if row}
    us, kernels = JOB
    title = f"{kernels} kernels of {us} us every {PERIOD_MS} ms"
    outcome.tables.append(latencies(title, rows, "checksum"))
    outcome.goals = _goals(rows)
    return outcome


def _goals(rows: dict[str, dict[str, Any]]) -> list[Goal]:
    goals = [Goal("different results", len({row["checksum"] for row in rows.values()}), 1)]
    if ALONE in rows:
        part = rows[ALONE]["p50_us"] / (JOB[0] * JOB[1])
        goals.append(Goal("alone: p50, of what its kernels should take", part, 0.8, at_least=True))
    for title, row in rows.items():
        if "passed" in row:
            goals.append(Goal(f"{title}: passed the gate", row["passed"], 1, at_least=True))
    for rival in RIVALS:
        sliced, ours = (rows.get(f"{way.title}, beside {rival}") for way in WAYS)
        if sliced and ours:
            what = f"beside {rival}: p99 at most the time-sliced one, us"
            goals.append(Goal(what, ours["p99_us"], sliced["p99_us"]))
    return goals
