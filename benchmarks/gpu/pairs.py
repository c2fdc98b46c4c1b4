"""An important and a greedy program side by side: what the important one keeps.

The prototype's numbers are what its author measured on an H200: HP's p99 in microseconds and LP's
share of the GPU. Headway, with real interposition, is to come within 5 % and 3 points of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Stage, Way

WORK = {
    "W1": (("1000", "1", "10"), ("500", "1", "0")),
    "W2": (("100", "20", "10"), ("100", "64", "0")),
    "W3": (("1000", "1", "10"), ("5000", "1", "0")),
    "W4": (("20", "50", "5"), ("20", "500", "0")),
}
MEANING = (
    "W1: hp 1 x 1 ms every 10 ms, lp 0.5 ms kernels; W2: hp 20 x 0.1 ms every 10 ms, lp 64 x 0.1 "
    "ms; W3: hp 1 x 1 ms every 10 ms, lp 5 ms kernels; W4: hp 50 x 20 us every 5 ms, lp 500 x 20 us"
)
READING = (
    "Goals: HP's p99 at most 1.05 times the prototype's on W1, W2 and W4, at most this run's "
    "time-sliced one on W3 (MPS never preempts a long kernel); LP's share at most 0.03 below. "
    "W1 to W3 run three times as long as W4, whose jobs are twice as many."
)
LONGER = {"W1": 3, "W2": 3, "W3": 3}
"""Where in a kernel of LP's, or in a time slice, HP comes is chance, and a hundredth of 250 jobs
are the worst three of them: that takes more jobs."""
WAYS = (stages.TIME_SLICED, stages.MPS, stages.DRAIN, stages.OVERLAP, stages.OVERLAP_MPS)
QUICK = (stages.TIME_SLICED, stages.OVERLAP, stages.OVERLAP_MPS)
PROTOTYPE = {
    stages.DRAIN: {"W1": (1719, 0.85), "W2": (2450, 0.74), "W3": (6123, 0.87), "W4": (1544, 0.60)},
    stages.OVERLAP: {
        "W1": (1644, 0.85),
        "W2": (2399, 0.75),
        "W3": (3264, 0.87),
        "W4": (1491, 0.61),
    },
    stages.OVERLAP_MPS: {
        "W1": (1503, 0.88),
        "W2": (2238, 0.77),
        "W3": (5749, 0.92),
        "W4": (1301, 0.65),
    },
}
"""p99 in us and LP's share."""
WITHIN, SHARE_WITHIN = 1.05, 0.03
GOALS_FOR = (stages.OVERLAP, stages.OVERLAP_MPS)
CLAIMS = ("W1", "W2", "W4")


@dataclass(frozen=True)
class Result:
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    share: float
    """Of the GPU, for the greedy one."""


def pair(stage: Stage, work: str, way: Way, seconds: float) -> Result:
    hp, lp = WORK[work]
    h, g = stage.together(
        [*way.important(), *stage.app("hp", *hp, seconds)],
        [*way.greedy(), *stage.app("lp", *lp, seconds)],
        seconds=seconds,
    )
    return Result(h["p50_us"], h["p90_us"], h["p99_us"], h["max_us"], g["busy"])


def alone(stage: Stage, work: str, seconds: float) -> Result:
    hp, _ = WORK[work]
    (h,) = stage.together(stage.app("hp", *hp, seconds), seconds=seconds, start_s=0)
    return Result(h["p50_us"], h["p90_us"], h["p99_us"], h["max_us"], 0.0)


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = {work: (1.0 if quick else 2.5) * LONGER.get(work, 1) for work in WORK}
    rows = {"alone": {work: alone(stage, work, seconds[work]) for work in WORK}}
    for way in QUICK if quick else WAYS:
        with way.on(stage) as at:
            for work in WORK:
                result = pair(at, work, way, seconds[work])
                rows.setdefault(way.title, {})[work] = result
                print(f"{way.title:16} {work} {result}", flush=True)
    goals = [goal for way in GOALS_FOR if way.title in rows for goal in goals_of(way, rows)]
    return Outcome(
        tables=[table(rows), medians(rows)],
        goals=goals,
        notes=[MEANING, READING],
        data={title: {w: asdict(r) for w, r in row.items()} for title, row in rows.items()},
    )


def goals_of(way: Way, rows: dict[str, dict[str, Result]]) -> list[Goal]:
    goals = []
    for work, result in rows[way.title].items():
        p99_us, share = PROTOTYPE[way][work]
        limit_us = p99_us * WITHIN
        if work not in CLAIMS:
            limit_us = rows[stages.TIME_SLICED.title][work].p99_us
        goals.append(Goal(f"{way.title}, {work}: HP p99, us", result.p99_us, limit_us))
        least = share - SHARE_WITHIN
        goals.append(Goal(f"{way.title}, {work}: LP share", result.share, least, at_least=True))
    return goals


def table(rows: dict[str, dict[str, Result]]) -> Table:
    lines: list[Sequence[str]] = []
    for title, row in rows.items():
        lines.append([title, *(_cell(r.p99_us, r.share) for r in row.values())])
        for way, numbers in PROTOTYPE.items():
            if way.title == title:
                cells = [_cell(*numbers[work]) for work in row]
                lines.append([f"(the prototype: {title})", *cells])
    return Table("HP p99 in us / LP's share of the GPU", ["", *WORK], lines)


def medians(rows: dict[str, dict[str, Result]]) -> Table:
    lines = [[title, *(f"{row[work].p50_us:.0f}" for work in WORK)] for title, row in rows.items()]
    return Table("HP p50 in us", ["", *WORK], lines)


def _cell(p99_us: float, share: float) -> str:
    return f"{p99_us:.0f} / {share:.2f}" if share else f"{p99_us:.0f}"
