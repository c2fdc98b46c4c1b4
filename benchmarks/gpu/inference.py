"""PyTorch: transformer inference every 20 ms beside training in another process.

Ordinary programs on the default stream, the inference eager and as a CUDA graph. Both programs of
every way are started once and then take turns, way by way, several rounds: what slows the machine
down meets all of them alike. What they compute is compared over all ways, alone included: the same
outputs and losses, bit by bit.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from dataclasses import replace
from typing import Any

from benchmarks.gpu import models
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Stage, Way
from benchmarks.gpu.told import Told

WIDE = [
    replace(way, title=f"{way.title}, window 0.4 ms", options=("--window", "400us"))
    for way in (stages.OVERLAP, stages.OVERLAP_MPS)
]
"""Half as many gates for training, and 0.2 ms more for inference."""
OURS = (stages.OVERLAP, stages.OVERLAP_MPS, *WIDE)
WAYS = (stages.TIME_SLICED, stages.MPS, *OURS)
QUICK = (stages.TIME_SLICED, stages.OVERLAP)
READY_S = 120.0
SOON_S = 0.2
"""Both are told to begin at the same moment."""
GOAL_MS = 1.9
ALONE = "alone"

Pair = tuple[Told, Told]


def measure(stage: Stage, quick: bool) -> Outcome:
    rounds, seconds = (2, 2.0) if quick else (4, 2.5)
    kinds = {"graph": True} if quick else {"eager": False, "graph": True}
    data: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    with contextlib.ExitStack() as stack:
        pairs = _started(stack, stage, QUICK if quick else WAYS, seconds)
        for number in range(rounds):
            for kind, graph in kinds.items():
                ways = {ALONE: pairs[stages.TIME_SLICED.title], **pairs}
                for title, pair in ways.items():
                    row = data[kind].setdefault(title, {"inference": [], "training": []})
                    found = _segment(pair, graph, seconds, together=title != ALONE)
                    row["inference"].append(found[0])
                    row["training"].append(found[1])
                    print(number, kind, title, _in_short(found), flush=True)
    outcome = Outcome(data=data, notes=[models.described(), f"{rounds} rounds of {seconds:g} s."])
    outcome.tables = [_table(kind, rows) for kind, rows in data.items()]
    outcome.goals = _goals(data)
    return outcome


def _started(
    stack: contextlib.ExitStack, stage: Stage, ways: tuple[Way, ...], seconds: float
) -> dict[str, Pair]:
    infer = [*models.inference(int(seconds * 1000 / models.PERIOD_MS), graph=True), models.TOLD]
    train = [*models.training(seconds), models.TOLD]
    pairs: dict[str, Pair] = {}
    beside = stack.enter_context(stages.mps(stage)) if any(way.mps for way in ways) else stage
    for way in ways:
        at = beside if way.mps else stage
        if way.policy is not None:
            at = stack.enter_context(stages.daemon(at, *stages.SPINS, *way.options))
        pair = Told(at, [*way.important(), *infer], {}), Told(at, [*way.greedy(), *train], {})
        for program in pair:
            stack.callback(program.end)
        pairs[way.title] = pair
    for pair in pairs.values():
        for program in pair:
            program.heard(READY_S)
    return pairs


def _segment(
    pair: Pair, graph: bool, seconds: float, *, together: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    infer, train = pair
    timeout_s = seconds + stages.LATE_S
    wish = {"graph": graph, "at": time.time() + SOON_S}
    infer.tell(json.dumps(wish))
    if not together:
        found = infer.heard(timeout_s)
        wish["at"] = 0
    train.tell(json.dumps(wish))
    if together:
        found = infer.heard(timeout_s)
    return found, train.heard(timeout_s)


def _in_short(found: tuple[dict[str, Any], dict[str, Any]]) -> str:
    return f"p99 {found[0]['p99_ms']:.2f} ms, {found[1]['per_s']:.1f} steps/s"


def _latencies(row: dict[str, Any]) -> list[float]:
    return sorted(ms for part in row["inference"] for ms in part["latencies_ms"])


def _p99_ms(row: dict[str, Any]) -> float:
    latencies = _latencies(row)
    return latencies[int(0.99 * (len(latencies) - 1))]


def _steps(row: dict[str, Any]) -> list[float]:
    return [part["per_s"] for part in row["training"]]


def _table(kind: str, rows: dict[str, Any]) -> Table:
    head = [f"{kind} inference every {models.PERIOD_MS} ms", "p50 ms", "p99 ms", "max ms"]
    lines = []
    for title, row in rows.items():
        latencies, steps = _latencies(row), _steps(row)
        numbers = (statistics.median(latencies), _p99_ms(row), latencies[-1])
        per_s = f"{statistics.median(steps):.1f} ({min(steps):.1f} - {max(steps):.1f})"
        lines.append([title, *(f"{number:.2f}" for number in numbers), per_s])
    return Table("", [*head, "training steps/s"], lines)


def _goals(data: dict[str, dict[str, Any]]) -> list[Goal]:
    goals = []
    for kind, rows in data.items():
        least = statistics.median(_steps(rows[stages.TIME_SLICED.title]))
        for way in OURS:
            row = rows.get(way.title)
            if row is None:
                continue
            if kind == "graph":
                goals.append(Goal(f"{way.title}, graph: p99, ms", _p99_ms(row), GOAL_MS))
            what = f"{way.title}, {kind}: training no slower than time-sliced, steps/s"
            steps = statistics.median(_steps(row))
            goals.append(Goal(what, steps, least, at_least=True))
        for part in ("inference", "training"):
            found = {one["hash"] for row in rows.values() for one in row[part]} - {"too few"}
            goals.append(Goal(f"{kind}: different results of {part}", len(found), 1))
    return goals
