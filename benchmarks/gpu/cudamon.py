"""CudaMon on a real GPU: its figures, changes of a share under load, and library programs.

The figures are those of `headway papers run cudamon --live`, with their claims. A change of share
is timed from the daemon's page to the program's first launch under it, ten thousand times; the
program is the PRNG sample, which checks every result against the sequential generator. The library
programs have a deadline of 1.1 times their slowest job alone, beside training; the fixed percentage
under MPS is found by hand: the largest at which misses are as few as at the smallest.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu import stage as stages
from benchmarks.gpu.building import ROOT
from benchmarks.gpu.ordinary import HANGS_S, READY_S, SOON_S
from benchmarks.gpu.ordinary.cases import TRAIN, Actor
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Told
from headway.live.devices.mps import PIPES, Mps
from headway.live.launched.program import PERCENTAGE
from headway.live.wire.layout import CLIENT_PAGE, DAEMON_PAGE
from headway.sim.cudamon import figures
from headway.view import cudamon_live
from tests.bench.shares import Word

CHANGES, QUICK_CHANGES = 10_000, 500
WITHIN_US = 100.0
STEP = 8
SHORT = ("--seeds", "256", "--iterations", "2000", "--period-ms", "0")
"""A job of some tens of microseconds."""
PATIENCE_S = 5.0
ACTORS = (Actor("detection", 33.3), Actor("decoding", 120))
SLACK = 1.1
BY_HAND = (100, 80, 60, 50, 40, 30, 20)
SECONDS, QUICK_SECONDS = 20.0, 5.0
ALONE, GATE, BOTH = "alone", "gate only", "both"


# -- figures ---------------------------------------------------------------------------------------


def _figures(prng: Path, outcome: Outcome) -> dict[str, Any]:
    held = 0
    with cudamon_live.opened(prng, lambda: ROOT / "examples") as runs:
        for name, figure in figures().items():
            result = runs.run(figure, lambda figure, variant: print(figure, variant, flush=True))
            rows = figure.rows(result.results)
            outcome.tables.append(Table(f"{name}: {figure.title}", figure.header, rows))
            for claim in result.claims:
                what = f"{name}: {claim.text} (report: {claim.paper}; here: {claim.ours})"
                outcome.goals.append(Goal(what, float(claim.holds), 1.0, at_least=True))
                held += claim.holds
    return {"claims that hold": held}


# -- changes of a share ----------------------------------------------------------------------------


def _changes(stage: Stage, prng: Path, count: int) -> list[float]:
    """Microseconds from another share in the daemon's page to the first launch under it."""
    sms = int(subprocess.run([prng, "--info"], capture_output=True, check=True).stdout.split()[0])
    draws, took = random.Random(1), list[float]()
    with stages.run_daemon(stage, "--mps", *stages.SPINS) as daemon, contextlib.ExitStack() as ends:
        command = stages.run_as("prng", "--share", "10%..90%")
        with (Path(daemon.stage.env["HEADWAY_DIR"]) / "said").open("w") as said:
            program = subprocess.Popen(
                [*command, str(prng), *SHORT],
                env=daemon.stage.environment(),
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
        ends.callback(program.wait)
        ends.callback(program.terminate)
        time.sleep(stages.START_S)
        told = Word(daemon.process.pid, DAEMON_PAGE, "headway-daemon", "share")
        kept = Word(program.pid, CLIENT_PAGE, "headway-client", "share")
        for _ in range(count):
            wanted = draws.randrange(1, sms // STEP) * STEP * 1000 // sms
            begun_ns = time.monotonic_ns()
            told.write(wanted + 1)
            while kept.read() != wanted:
                if program.poll() is not None:
                    raise Failed(f"prng: exit {program.returncode}: its results were wrong")
                if time.monotonic_ns() - begun_ns > PATIENCE_S * 1e9:
                    raise Failed(f"a share of {wanted / 10} % is not kept")
            took.append((time.monotonic_ns() - begun_ns) / 1e3)
    return took


# -- library programs ------------------------------------------------------------------------------


def _pair(
    at: Stage, actor: Actor, seconds: float, *, way: str, percent: int = 100
) -> dict[str, Any]:
    """Both at once, from the same moment; `way`: the one of Headway, or that of the hardware."""
    managed = way in (GATE, BOTH)
    deadline = f"{actor.period_ms:g}ms"
    options = ["--priority", "9", "--period", deadline]
    prefixes = [
        stages.run_as("important", *options) if managed else [],
        stages.run_as("training", "--priority", "1", *(["--share", "100%"] if way == GATE else []))
        if managed
        else [],
    ]
    actors = [actor] if way == ALONE else [actor, TRAIN]
    env = {PERCENTAGE: f"{percent}"}
    with contextlib.ExitStack() as ends:
        programs = []
        for number, (prefix, one) in enumerate(zip(prefixes, actors, strict=False)):
            programs.append(Told(at, [*prefix, *one.command(at)], env if number else {}))
            ends.callback(programs[-1].end)
        for program in programs:
            program.heard(READY_S)
        start = time.time() + SOON_S
        for program, one in zip(programs, actors, strict=True):
            program.tell(one.told(start, seconds, 1))
        heard = [program.heard(SOON_S + seconds + HANGS_S) for program in programs]
    return {"us": heard[0]["us"], "per_s": heard[1]["per_s"] if len(heard) > 1 else 0.0}


def _missed(found: dict[str, Any], deadline_us: float) -> float:
    late: list[bool] = [us > deadline_us for us in found["us"]]
    return sum(late) / len(late)


def _library(stage: Stage, actor: Actor, seconds: float, outcome: Outcome) -> dict[str, Any]:
    found = {ALONE: _pair(stage, actor, seconds, way=ALONE)}
    deadline_us = SLACK * max(found[ALONE]["us"])
    found["time slices"] = _pair(stage, actor, seconds, way="time slices")
    with stages.mps(stage) as beside:
        by_hand = {
            percent: _pair(beside, actor, seconds, way="MPS", percent=percent)
            for percent in BY_HAND
        }
    least = min(_missed(one, deadline_us) for one in by_hand.values())
    best = next(p for p, one in by_hand.items() if _missed(one, deadline_us) <= least)
    found["MPS"], found[f"MPS, {best} % by hand"] = by_hand[100], by_hand[best]
    for way in (GATE, BOTH):
        with stages.run_daemon(stage, "--mps", "--controller", "bisection") as daemon:
            place = daemon.stage.with_env(
                **{PIPES: str(Mps(Path(daemon.stage.env["HEADWAY_DIR"])).folder)}
            )
            found[way] = _pair(place, actor, seconds, way=way)
    rows = [
        [way, f"{100 * _missed(one, deadline_us):.1f} %", f"{one['per_s']:.1f}"]
        for way, one in found.items()
    ]
    title = f"{actor.workload} every {actor.period_ms:g} ms, deadline {deadline_us / 1e3:.1f} ms"
    outcome.tables.append(Table(title, ["", "missed", "training steps/s"], rows))
    both = found.pop(BOTH)
    found.pop(ALONE)
    for way, one in found.items():
        fewer = _missed(one, deadline_us) < _missed(both, deadline_us) - 0.01
        better = fewer and one["per_s"] > 1.02 * both["per_s"]
        outcome.goals.append(
            Goal(f"{actor.workload}: {way} beats both in both respects", float(better), 0.0)
        )
    return {"deadline_us": deadline_us}


def measure(stage: Stage, quick: bool) -> Outcome:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="headway-prng-") as name:
        prng = cudamon_live.built(Path(name), ROOT / "examples")
        outcome.tried("changes", lambda: _said(stage, prng, quick, outcome))
        if not quick:
            outcome.tried("figures", lambda: _figures(prng, outcome))
    seconds = QUICK_SECONDS if quick else SECONDS
    for actor in ACTORS[: 1 if quick else None]:
        outcome.tried(actor.workload, partial(_library, stage, actor, seconds, outcome))
    return outcome


def _said(stage: Stage, prng: Path, quick: bool, outcome: Outcome) -> dict[str, Any]:
    took = _changes(stage, prng, QUICK_CHANGES if quick else CHANGES)
    median, tail = statistics.median(took), statistics.quantiles(took, n=100)[-1]
    rows = [[str(len(took)), f"{median:.1f}", f"{tail:.1f}", f"{max(took):.1f}"]]
    head = ["changes", "median, us", "p99, us", "worst, us"]
    outcome.tables.append(Table("from a new share to the first launch under it", head, rows))
    outcome.goals.append(Goal("a change of share: median, us", median, WITHIN_US))
    return {"median_us": median, "p99_us": tail}
