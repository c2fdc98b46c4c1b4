"""PyTorch: transformer inference every 20 ms beside training in another process.

Ordinary programs on the default stream, the inference eager and as a CUDA graph. What they compute
is compared over all ways, alone included: the same outputs and losses, bit by bit.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import models
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Failed, Stage, Way

WAYS = (stages.TIME_SLICED, stages.MPS, stages.OVERLAP, stages.OVERLAP_MPS)
QUICK = (stages.TIME_SLICED, stages.OVERLAP)
MARGINS_S = (2.5, 8.0)
"""Two programs that start at once take longer than one: by so much, else by the second."""
GOAL_MS = 1.9
ALONE = "alone"


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = 2.5 if quick else 5.0
    kinds = {"graph": True} if quick else {"eager": False, "graph": True}
    data: dict[str, dict[str, Any]] = {}
    stage.together(models.training(0.1), seconds=60, start_s=0)  # from here on files are in memory
    (train,) = stage.together(models.training(seconds), seconds=seconds, start_s=0)
    start_s = -train["early_s"]
    for kind, graph in kinds.items():
        infer = models.inference(int(seconds * 1000 / models.PERIOD_MS), graph=graph)
        (alone,) = stage.together(infer, seconds=seconds, start_s=0)
        rows = data[kind] = {ALONE: {"inference": alone, "training": train}}
        for way in QUICK if quick else WAYS:
            rows[way.title] = _beside(
                stage, way, (infer, models.training(seconds)), seconds, start_s
            )
            print(kind, way.title, rows[way.title], flush=True)
    outcome = Outcome(data=data, notes=[models.described()])
    outcome.tables = [_table(kind, rows) for kind, rows in data.items()]
    outcome.goals = _goals(data)
    return outcome


def _beside(
    stage: Stage, way: Way, pair: tuple[list[str], list[str]], seconds: float, start_s: float
) -> dict[str, Any]:
    commands = [[*way.important(), *pair[0]], [*way.greedy(), *pair[1]]]
    with way.on(stage) as at:
        for margin_s in MARGINS_S:
            infer, train = at.together(*commands, seconds=seconds, start_s=start_s + margin_s)
            if min(infer["early_s"], train["early_s"]) >= 0:
                return {"inference": infer, "training": train}
    raise Failed(f"{way.title}: a program was not ready in time: {infer} {train}")


def _table(kind: str, rows: dict[str, Any]) -> Table:
    head = [f"{kind} inference every {models.PERIOD_MS} ms", "p50 ms", "p99 ms", "max ms"]
    lines = [
        [
            title,
            *(f"{row['inference'][key]:.2f}" for key in ("p50_ms", "p99_ms", "max_ms")),
            f"{row['training']['per_s']:.1f}",
        ]
        for title, row in rows.items()
    ]
    return Table("", [*head, "training steps/s"], lines)


def _goals(data: dict[str, dict[str, Any]]) -> list[Goal]:
    goals = []
    for kind, rows in data.items():
        sliced = rows[stages.TIME_SLICED.title]
        for way in (stages.OVERLAP, stages.OVERLAP_MPS):
            row = rows.get(way.title)
            if row is None:
                continue
            if kind == "graph":
                p99_ms = row["inference"]["p99_ms"]
                goals.append(Goal(f"{way.title}, graph: p99, ms", p99_ms, GOAL_MS))
            steps, least = row["training"]["per_s"], sliced["training"]["per_s"]
            what = f"{way.title}, {kind}: training no slower than time-sliced, steps/s"
            goals.append(Goal(what, steps, least, at_least=True))
        for part in ("inference", "training"):
            kinds_found = len({row[part]["hash"] for row in rows.values()})
            goals.append(Goal(f"{kind}: different results of {part}", kinds_found, 1))
    return goals
