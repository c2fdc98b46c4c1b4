"""An important and a greedy program side by side: what the important one keeps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.gpu import stage as stages
from benchmarks.gpu.stage import Stage, finish, headway

WORK = {
    "W1 hp 1x1ms/10ms, lp 0.5ms": (("1000", "1", "10"), ("500", "1", "0")),
    "W2 hp 20x0.1ms/10ms, lp 64x0.1ms": (("100", "20", "10"), ("100", "64", "0")),
    "W3 hp 1x1ms/10ms, lp 5ms": (("1000", "1", "10"), ("5000", "1", "0")),
    "W4 hp 50x20us/5ms, lp 500x20us": (("20", "50", "5"), ("20", "500", "0")),
}


@dataclass(frozen=True)
class Way:
    """How the two share the GPU."""

    title: str
    mps: bool = False
    policy: str | None = None
    """None: without Headway."""


WAYS = (
    Way("time-sliced"),
    Way("MPS", mps=True),
    Way("Headway, drain", policy="prt"),
    Way("Headway, overlap", policy="overlap"),
    Way("Headway + MPS, overlap", mps=True, policy="overlap"),
)


@dataclass(frozen=True)
class Result:
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    share: float


def pair(
    stage: Stage, hp: Sequence[str], lp: Sequence[str], policy: str | None, s: float
) -> Result:
    high = low = []
    if policy is not None:
        high = headway("run", "--name", "hp", "--priority", "9", "--policy", policy, "--")
        low = headway("run", "--name", "lp", "--priority", "1", "--")
    at = {"START_AT": str(time.time() + 3)}
    greedy = stage.start([*low, *stage.app("lp", *lp, s)], at)
    important = stage.start([*high, *stage.app("hp", *hp, s)], at)
    h, g = finish(important, s + 30), finish(greedy, s + 30)
    if "error" in h or "error" in g:
        raise RuntimeError(f"{h} {g}")
    return Result(h["p50_us"], h["p90_us"], h["p99_us"], h["max_us"], g["busy"])


def alone(stage: Stage, hp: Sequence[str], s: float) -> Result:
    h = finish(stage.start(stage.app("hp", *hp, s), {"START_AT": str(time.time() + 1.5)}), s + 30)
    return Result(h["p50_us"], h["p90_us"], h["p99_us"], h["max_us"], 0.0)


def measure(
    stage: Stage, seconds: float, ways: Sequence[Way] = WAYS
) -> dict[str, dict[str, Result]]:
    rows: dict[str, dict[str, Result]] = {"alone": {}}
    for name, (hp, _) in WORK.items():
        rows["alone"][name] = alone(stage, hp, seconds)
    for way in ways:
        with contextlib.ExitStack() as stack:
            at = stack.enter_context(stages.mps(stage)) if way.mps else stage
            if way.policy is not None:
                at = stack.enter_context(stages.daemon(at))
            for name, (hp, lp) in WORK.items():
                result = pair(at, hp, lp, way.policy, seconds)
                rows.setdefault(way.title, {})[name] = result
                print(f"{way.title:24} {name:34} {result}", flush=True)
    return rows
