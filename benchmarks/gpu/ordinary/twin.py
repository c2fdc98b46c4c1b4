"""The ordinary suite in the simulator, on the twin of an H200: the same cases, ways and goals.

    python -m benchmarks.gpu.ordinary.twin [--cases "detection;decoding"] [--seconds 3] [--seeds 2]
                                           [--beside results.json]

Prints each case's table and which goals are met, all in virtual time. With `--beside` the order of
the ways is compared with what was measured on a GPU. Exit code 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.gpu.ordinary.cases import CASES, Actor, Case
from benchmarks.gpu.ordinary.shapes import SHAPES, WAITS_EVERY
from benchmarks.gpu.ordinary.verdicts import (
    ALONE,
    NOT_SLOWER,
    Found,
    bound_by,
    goals_of,
    p99,
    summary,
    table,
)
from benchmarks.gpu.results import Goal, Table
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario
from headway.sim.study.ways import WAYS, scenario_of

WARM_UP_S = 1.0
"""Programs and daemon know each other by then, as in a round on a GPU."""


def task(actor: Actor, name: str, number: int, seed: int, *, important: bool) -> dict[str, Any]:
    """One program of a case; of several important ones the first is the most important."""
    cuda: dict[str, Any] = {
        "work": SHAPES[actor.workload],
        "seed": 100 * seed + number,
        "offset": f"{(7 * number + 3 * seed) % 11}ms",
        "sync_every": WAITS_EVERY.get(actor.workload, 1),
    }
    if actor.period_ms:
        cuda["poisson" if actor.poisson else "period"] = f"{actor.period_ms}ms"
    return {"name": name, "priority": 9 if important else 1, "cuda": cuda}


def tasks_of(case: Case, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The important programs and the others."""
    important = [
        task(actor, f"important-{place}", place, seed, important=True)
        for place, actor in enumerate(case.important)
    ]
    others = [
        task(actor, f"other-{place}", 5 + place, seed, important=False)
        for place, actor in enumerate(case.others)
    ]
    return important, others


def play(
    important: list[dict[str, Any]], others: list[dict[str, Any]], way: str, seconds: float
) -> dict[str, Any]:
    """One round, as the programs themselves would tell of it."""
    data = scenario_of([*important, *others], way, WARM_UP_S + seconds)
    outcome = simulate(read_scenario(data, way))
    since_ns = int(WARM_UP_S * 1e9)

    def told(one: dict[str, Any]) -> dict[str, Any]:
        jobs = [job for job in outcome.jobs[one["name"]] if job.begun_ns >= since_ns]
        ended = [job for job in outcome.jobs[one["name"]] if job.ended_ns >= since_ns]
        in_jobs_ns = sum(job.response_ns for job in outcome.jobs[one["name"]])
        gpu_ns = outcome.statistics.by_name()[one["name"]].gpu_ns
        return {
            "us": [job.response_ns / 1000 for job in jobs],
            "per_s": len(ended) / seconds,
            "hash": "",
            "gpu_in_jobs": gpu_ns / max(in_jobs_ns, 1),
        }

    return {"important": [told(one) for one in important], "others": [told(o) for o in others]}


def rounds(case: Case, seconds: float, seeds: int = 1) -> Found:
    """A case in every way, once for each seed."""
    said: dict[str, list[dict[str, Any]]] = {title: [] for title in (ALONE, *WAYS)}
    for seed in range(1, seeds + 1):
        important, others = tasks_of(case, seed)
        alone = play(important[:1], [], "time-sliced", seconds)
        for other in others if seed == 1 else []:
            alone["others"] += play([], [other], "time-sliced", seconds)["others"]
        said[ALONE].append(alone)
        for way in WAYS:
            said[way].append(play(important, others, way, seconds))
    return summary(said)


def orders(here: Found, there: Found) -> list[str]:
    """Pairs of ways of which the one is clearly faster there, and not here."""
    ways = [way for way in here if way != ALONE and way in there]
    wrong = []
    for one, other in combinations(ways, 2):
        faster, slower = (one, other) if p99(there, one) < p99(there, other) else (other, one)
        apart = p99(there, slower) > NOT_SLOWER * p99(there, faster)
        if apart and p99(here, faster) > NOT_SLOWER * p99(here, slower):
            wrong.append(f"{faster} before {slower}")
    return wrong


def beside(found: dict[str, Found], path: Path) -> tuple[Table, Goal]:
    """What a results.json of a GPU says of the order of the ways."""
    there = json.loads(path.read_text(encoding="utf-8"))["sections"]["ordinary"]["data"]
    rows, right = [], 0
    both = [name for name in found if name in there]
    for name in both:
        wrong = orders(found[name], there[name])
        right += not wrong
        rows.append([name, "; ".join(wrong) or "as measured"])
    goal = Goal("cases with the ways in the right order", right, len(both) * 5 / 6, at_least=True)
    return Table("Order of the ways by p99", ["", "measured, but not simulated"], rows), goal


def simulated(cases: Sequence[Case], seconds: float, seeds: int) -> Iterator[tuple[Case, Found]]:
    """Each case as soon as it and those before it are done."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        each = pool.map(rounds, cases, [seconds] * len(cases), [seeds] * len(cases))
        yield from zip(cases, each, strict=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="names of cases, with semicolons between")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--seeds", type=int, default=2, help="rounds, each of other arrivals")
    parser.add_argument("--beside", type=Path, help="a results.json that was measured on a GPU")
    options = parser.parse_args(arguments)
    names = [name.strip() for name in options.cases.split(";") if name.strip()]
    if unknown := set(names) - {case.name for case in CASES}:
        parser.error(f"--cases: found {', '.join(sorted(unknown))}, expected names of cases")
    wanted = [case for case in CASES if not names or case.name in names]
    found = {}
    for case, one in simulated(wanted, options.seconds, options.seeds):
        found[case.name] = one
        print(table(case.name, one).markdown(), end="\n\n", flush=True)
    goals = goals_of(found, {case.name: bound_by(found[case.name], case) for case in wanted})
    if options.beside is not None:
        ordered, goal = beside(found, options.beside)
        print(ordered.markdown(), end="\n\n")
        goals.append(goal)
    print(Table("", ["goal", "wanted", "found", ""], [goal.row() for goal in goals]).markdown())
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
