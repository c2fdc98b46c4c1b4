"""What the rounds of a case come to, and which of the goals they meet."""

from __future__ import annotations

import math
import statistics
from typing import Any

from benchmarks.gpu.ordinary.cases import Case
from benchmarks.gpu.results import Goal, Table
from headway.engine.turns.corunning import GPU_BOUND
from headway.sim.study.ways import MPS, MPS_PRIORITY, OURS, OURS_MPS, PEERS, SLICED

__all__ = ["ALONE", "MPS", "MPS_PRIORITY", "OURS", "OURS_MPS", "SLICED"]
ALONE = "alone"
NOT_SLOWER, FASTER, MORE = 1.05, 0.95, 0.03
BESIDE_KEEP, GPU_BOUND_P99 = 0.9, 1.15

Found = dict[str, dict[str, Any]]
"""Of one case: way by way."""


def quantile(times: list[float], part: float) -> float:
    """The smallest time that at least this part of them does not exceed."""
    if not times:
        return math.inf  # no job was done: it takes longer than anybody waited
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, max(0, -(-int(part * 1000) * len(ordered) // 1000) - 1))]


def summary(said: dict[str, list[dict[str, Any]]]) -> Found:
    rounds_alone = [one["others"] for one in said[ALONE] if one["others"]]
    alone_per_s = [
        statistics.median(one[place]["per_s"] for one in rounds_alone)
        for place in range(len(rounds_alone[0]))
    ]
    found = {}
    for way, rounds in said.items():
        rows = []
        for place in range(len(rounds[0]["important"])):
            mine = [one["important"][place] for one in rounds]
            times = [time for one in mine for time in one["us"]]
            rows.append(
                {
                    "jobs": len(times),
                    "p50_us": quantile(times, 0.5),
                    "p99_us": quantile(times, 0.99),
                    "max_us": max(times, default=math.inf),
                    "round_p99_us": [quantile(one["us"], 0.99) for one in mine if one["us"]],
                    "hashes": sorted({one["hash"] for one in mine}),
                    "gpu_in_jobs": mine[-1].get("gpu_in_jobs"),
                }
            )
        shares = []
        if way != ALONE:
            for one in rounds:
                each = [o["per_s"] / a for o, a in zip(one["others"], alone_per_s, strict=True)]
                shares.append(statistics.mean(each))
        found[way] = {
            "important": rows,
            "others": statistics.median(shares) if shares else None,
            "round_others": shares,
            "others_hashes": sorted({o["hash"] for one in rounds for o in one["others"]}),
        }
    return found


def _ms(us: float) -> str:
    return f"{us / 1000:.2f}"


def table(name: str, found: Found) -> Table:
    lines = []
    for way, row in found.items():
        first, *more = row["important"]
        p99 = _ms(first["p99_us"])
        if first["round_p99_us"]:
            low, high = min(first["round_p99_us"]), max(first["round_p99_us"])
            p99 += f" ({_ms(low)} - {_ms(high)})"
        second = "; ".join(f"{_ms(one['p50_us'])} / {_ms(one['p99_us'])}" for one in more)
        share = "" if row["others"] is None else f"{row['others']:.2f}"
        if row["round_others"]:
            share += f" ({min(row['round_others']):.2f} - {max(row['round_others']):.2f})"
        lines.append([way, str(first["jobs"]), _ms(first["p50_us"]), p99, second, share])
    head = ["", "jobs", "p50 ms", "p99 ms", "second: p50 / p99", "the others' throughput"]
    return Table(name, head, lines)


def p99(found: Found, way: str) -> float:
    return float(found[way]["important"][0]["p99_us"])


def others(found: Found, way: str) -> float:
    return float(found[way]["others"])


def bound_by(found: Found, case: Case) -> str:
    """What the important program of a case is bound by: as was measured, or else as was thought."""
    shares = [found[way]["important"][0].get("gpu_in_jobs") for way in (ALONE, OURS)]
    known = next((share for share in shares if share is not None), None)
    if known is None:
        return case.bound_by
    return "gpu" if known > GPU_BOUND else "cpu"


def goals_of(cases: dict[str, Found], bound_by: dict[str, str]) -> list[Goal]:
    goals = []
    dominated, ahead = [], []
    for name, found in cases.items():
        for ours, peers in PEERS.items():
            plain = peers[0]
            what = f"{name}: p99 of {ours} against {plain}"
            goals.append(Goal(what, p99(found, ours) / p99(found, plain), NOT_SLOWER))
            for peer in peers:
                faster = p99(found, peer) < FASTER * p99(found, ours)
                if faster and others(found, peer) > others(found, ours) + MORE:
                    dominated.append(f"{name} by {peer}")
            if all(
                p99(found, ours) < p99(found, peer) and others(found, ours) > others(found, peer)
                for peer in peers
            ):
                ahead.append(f"{name}, {ours}")
        if bound_by[name] == "cpu":
            kept = others(found, OURS_MPS) / others(found, MPS)
            goals.append(
                Goal(f"{name}: the others beside a CPU-bound job", kept, BESIDE_KEEP, at_least=True)
            )
        else:
            slowdown = p99(found, OURS_MPS) / p99(found, ALONE)
            goals.append(Goal(f"{name}: p99 of {OURS_MPS} against alone", slowdown, GPU_BOUND_P99))
        for place, row in enumerate(found[ALONE]["important"]):
            theirs = set(row["hashes"]) | set(found[SLICED]["important"][place]["hashes"])
            if len(theirs) == 1:  # deterministic by itself
                mine = {h for way in PEERS for h in found[way]["important"][place]["hashes"]}
                goals.append(Goal(f"{name}: other results than alone", len(mine - theirs), 0))
    said = f" ({'; '.join(dominated)})" if dominated else ""
    goals.append(Goal(f"cases in which a peer is better on both{said}", len(dominated), 0))
    what = f"cases, of {len(PEERS) * len(cases)}, in which Headway is better on both"
    goals.append(Goal(what, len(ahead), len(cases), at_least=True))
    return goals
