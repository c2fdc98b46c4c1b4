"""Decisions at every event against decisions at ticks of 1 ms, as GERM takes them (TimeGraph §6.5).

The same programs under the same policy (PRT); throughput is the GPU time they got together. A
program that is alone keeps its lease and asks nobody, so ticks do not matter to it; they do where
the GPU changes hands.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Outcome, Table
from benchmarks.gpu.stage import Stage

HOW = {"events": (), "ticks of 1 ms": ("--tick", "1ms")}
CASES = {
    "one program, jobs of 0.1 ms": (1, (20, 5)),
    "two programs, jobs of 0.1 ms": (2, (20, 5)),
    "two programs, jobs of 1 ms": (2, (100, 10)),
    "two programs, jobs of 10 ms": (2, (500, 20)),
}


def throughput(stage: Stage, programs: int, job: tuple[int, int], seconds: float) -> float:
    """The part of the GPU's time that all got together."""
    command = stage.app("lp", *job, 0, seconds)
    commands = [[*stages.run_as(f"p{n}", "--policy", "prt"), *command] for n in range(programs)]
    said = stage.together(*commands, seconds=seconds)
    return float(sum(one["busy"] for one in said))


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = 1.0
    cases = dict(list(CASES.items())[: 2 if quick else None])
    data: dict[str, dict[str, float]] = {title: {} for title in cases}
    for how, options in HOW.items():
        with stages.daemon(stage, *options) as at:
            for title, (programs, job) in cases.items():
                data[title][how] = throughput(at, programs, job, seconds)
                print(f"{how}: {title}: {data[title][how]:.3f}", flush=True)
    rows: list[Sequence[str]] = []
    for title, found in data.items():
        events, ticks = (max(found[how], 1e-6) for how in HOW)
        rows.append([title, f"{events:.3f}", f"{ticks:.3f}", f"{events / ticks:.2f}"])
    head = ["the GPU's time in use", *HOW, "ratio"]
    return Outcome(tables=[Table("", head, rows)], data=data)
