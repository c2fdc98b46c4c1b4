"""Two greedy programs with reserves that add up to the whole GPU: what does each get?

A period of 100 ms is ten jobs long, so that changing hands (about 0.14 ms without MPS) costs little
and a kernel of 5 ms fits into the smaller budget; ten seconds are a hundred of them. Shares are
said twice: of what the program gets alone in the same time, from which switching and gates are
lost, and of what both got together.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Stage

SPLITS = ((30, 70), (10, 90))
PERIOD_MS = 100
KERNELS = {"20 us": (20, 500), "0.5 ms": (500, 20), "5 ms": (5000, 2)}
"""Length in us, and how many make a job of 10 ms."""
WITHIN_POINTS = 2.0
ALONE_S = 2.0
"""So long, and three times, before and after: one such run may be a per cent off."""


def split(stage: Stage, parts: Sequence[int], kernels: str, seconds: float) -> list[float]:
    """What each program got, in percent of what it gets alone."""
    us, number = KERNELS[kernels]
    commands = []
    for percent in parts:
        reserve = f"{PERIOD_MS * percent / 100:g}ms/{PERIOD_MS}ms"
        prefix = stages.run_as(f"part{percent}", "--reserve", reserve)
        commands.append([*prefix, *stage.app("lp", us, number, 0, seconds)])
    before = [_alone(stage, us, number) for _ in range(2)]
    found = stage.together(*commands, seconds=seconds)
    alone = statistics.median([*before, _alone(stage, us, number)])
    return [100 * said["busy"] / alone for said in found]


def _alone(stage: Stage, us: int, number: int) -> float:
    said = stage.together(stage.app("lp", us, number, 0, ALONE_S), seconds=ALONE_S)
    return float(said[0]["busy"])


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = 3.0 if quick else 10.0
    outcome = Outcome(data=[])
    rows: list[Sequence[str]] = []
    with stages.daemon(stage, *stages.SPINS) as at:
        for parts in SPLITS[: 1 if quick else None]:
            for kernels in KERNELS:
                got = split(at, parts, kernels, seconds)
                rest = [100 * value / sum(got) for value in got]
                title = f"{parts[0]}/{parts[1]}, {kernels}"
                cells = [" / ".join(f"{x:.1f}" for x in values) for values in (got, rest)]
                rows.append([title, *cells, f"{sum(got):.1f}"])
                print(*rows[-1], sep="  ", flush=True)
                outcome.data.append({"reserves": parts, "kernels": kernels, "percent": got})
                for how, values in (("alone", got), ("the sum", rest)):
                    off = max(abs(v - p) for v, p in zip(values, parts, strict=True))
                    outcome.goals.append(Goal(f"{title}: points off, of {how}", off, WITHIN_POINTS))
    head = ["reserves, kernels", "of alone, %", "of the sum, %", "both together, %"]
    outcome.tables.append(Table(f"over {seconds:g} s, reserves every {PERIOD_MS} ms", head, rows))
    return outcome
