"""What the pieces cost that a program's work is cut into: gates in a stream that the GPU waits at.

Before a piece Headway has the GPU write that it is there, wait until it may go on, and write that
it did: three stream memory operations in one call, on a page of the host's memory. Here they are
measured without Headway: what they take of the GPU's time between kernels of 20 us, with nobody
beside and while another program waits at a gate that is closed, what the call takes of the CPU's,
and how long after the host's word the GPU goes on.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.gpu import spread
from benchmarks.gpu.results import Outcome, Table
from benchmarks.gpu.spread import Spread
from benchmarks.gpu.stage import LATE_S, Failed, Stage

ALL = "write, wait, write"
OPERATIONS = ("write", "wait", "write, wait", ALL)
EVERY = {1: "", 10: " / 10"}
"""After every kernel, or every tenth: how the program names its runs."""
CALLS = {"kernel": "a kernel's launch", "write": "write", ALL: f"{ALL}: one call"}
OPENINGS = {
    "closed 0.1 ms": "a gate that was closed for 0.1 ms, from the host's word",
    "closed 5 ms": "the same, closed for 5 ms",
    "no gate": "a write without a gate, from before the call",
}
SECONDS = 60


def measure(stage: Stage, quick: bool) -> Outcome:
    rounds, openings = (15, 500) if quick else (60, 2000)
    said = _run(stage, rounds, openings)
    with somebody_waiting(stage):
        beside = _run(stage, rounds, 1)
    costs = _costs_of(said)
    beside_costs = _costs_of(beside)
    calls = {name: spread.spread(said["calls"][name]) for name in CALLS}
    waits = {name: quantiles(said[name]) for name in OPENINGS}
    kernel_us = spread.spread(said["runs"]["nothing"]).median / said["kernels"]
    return Outcome(
        tables=[
            _costs("time on the GPU that each takes, in us", costs),
            _costs("the same while another program waits at a closed gate", beside_costs),
            _calls(calls),
            _openings(waits),
        ],
        notes=[f"Kernels take {kernel_us:.2f} us each where nothing is between them."],
        data={
            "gpu_us": _as_data(costs),
            "gpu_beside_us": _as_data(beside_costs),
            "cpu_us": {name: asdict(found) for name, found in calls.items()},
            "opening_us": waits,
            "kernel_us": kernel_us,
        },
    )


def _run(stage: Stage, rounds: int, openings: int) -> dict[str, Any]:
    command = stage.program("gates", rounds, openings)
    (said,) = stage.together(command, seconds=SECONDS, start_s=0)
    return said


@contextlib.contextmanager
def somebody_waiting(stage: Stage) -> Iterator[None]:
    """Another program has work on the GPU, behind a gate that stays closed."""
    process = stage.start(stage.program("gates", "wait", SECONDS))
    try:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], LATE_S)[0]:
            raise Failed("gates wait: hung")
        if process.stdout.readline() != "waits\n":
            raise Failed(f"gates wait: {process.communicate()[1][-600:]}")
        yield
    finally:
        process.kill()
        process.communicate()


Costs = dict[str, dict[int, Spread]]


def _costs_of(said: dict[str, Any]) -> Costs:
    return {name: {every: cost(said, name, every) for every in EVERY} for name in OPERATIONS}


def _as_data(costs: Costs) -> dict[str, dict[int, dict[str, Any]]]:
    return {
        name: {every: asdict(found) for every, found in row.items()} for name, row in costs.items()
    }


def cost(said: dict[str, Any], name: str, every: int) -> Spread:
    """Microseconds on the GPU for each time, by what a round took longer than without."""
    runs, times = said["runs"], said["kernels"] // every
    pairs = zip(runs[name + EVERY[every]], runs["nothing"], strict=True)
    return spread.spread([(longer - plain) / times for longer, plain in pairs])


def quantiles(samples: Sequence[float]) -> dict[str, float]:
    ordered = sorted(samples)
    found = {f"p{q}": ordered[q * (len(ordered) - 1) // 100] for q in (50, 90, 99)}
    return {**found, "max": ordered[-1], "samples": len(ordered)}


def _us(value: float) -> str:
    return f"{value:.2f}"


def _costs(title: str, costs: Costs) -> Table:
    head = ["", "after every kernel", spread.COLUMN, "after every tenth", spread.COLUMN]
    rows = [
        [
            name,
            *(cell for found in row.values() for cell in (_us(found.median), found.interval(_us))),
        ]
        for name, row in costs.items()
    ]
    return Table(title, head, rows)


def _calls(calls: dict[str, Spread]) -> Table:
    head = ["", "median", spread.COLUMN, "middle half"]
    rows = [
        [CALLS[name], _us(found.median), found.interval(_us), found.middle_half(_us)]
        for name, found in calls.items()
    ]
    return Table("CPU time of a call, in us", head, rows)


def _openings(waits: dict[str, dict[str, float]]) -> Table:
    rows = [
        [
            OPENINGS[name],
            *(_us(row[key]) for key in ("p50", "p90", "p99", "max")),
            f"{row['samples']:.0f}",
        ]
        for name, row in waits.items()
    ]
    head = ["", "p50", "p90", "p99", "max", "samples"]
    return Table("until the CPU sees what the GPU writes, in us", head, rows)
