"""Decisions at events against decisions at ticks of 1 ms. Real programs, software GPU.

    python -m benchmarks.desktop_ticks [--repeats 3] [--seconds 3]

es2gears alone, two of them (their frames together), and a program that submits one tiny group
after the other, all under PRT. TimeGraph's Figure 16 compares scores of SPECviewperf, 15 to 30
times better at events. What a tick costs depends on how many groups a frame has and how short they
are: tiny groups are the worst case; es2gears, one group of nearly a tick's length per frame, the
best.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from benchmarks.gpu.results import Table
from tests.integration import gl, ticks

WORK = ("one es2gears, fps", "two es2gears, fps", "tiny groups per s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    seen: dict[str, list[list[float]]] = {way: [] for way in ticks.WAYS}
    with gl.new_stage() as stage:
        for number in range(options.repeats):
            for way, values in seen.items():
                values.append(measure(stage, way, options.seconds))
            print(f"round {number + 1} of {options.repeats}", file=sys.stderr)
    middle = {
        way: [statistics.median(column) for column in zip(*values, strict=True)]
        for way, values in seen.items()
    }
    print(table(middle).markdown())
    return 0


def measure(stage: gl.Stage, way: str, seconds: float) -> list[float]:
    """One value for each kind of work."""
    given = ticks.WAYS[way]
    one, two = (
        sum(ticks.measure(stage, given, programs=programs, seconds=seconds)) for programs in (1, 2)
    )
    return [one, two, ticks.tiny_groups(stage, given)]


def table(middle: dict[str, list[float]]) -> Table:
    rows = [[way, *(f"{value:.0f}" for value in values), ""] for way, values in middle.items()]
    pairs = zip(middle[ticks.EVENTS], middle[ticks.TICKS], strict=True)
    ratios = [f"{events / ticked:.1f}" for events, ticked in pairs]
    rows.append(["events : ticks", *ratios, "15 - 30 (SPECviewperf)"])
    return Table("", ["decisions", *WORK, "TimeGraph, Figure 16"], rows)


if __name__ == "__main__":
    raise SystemExit(main())
