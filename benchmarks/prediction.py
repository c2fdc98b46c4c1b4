"""What predicting costs is good for, and what it costs. Real programs on a software GPU.

    python -m benchmarks.prediction [--repeats 3] [--seconds 4] [--only PART]

- reserve: a program that changes its scenes (`examples/libetp/scenes.c changes`) has an AE reserve
  beside important gears: groups that left the reserve in debt, how deep, and the gears' frame rate,
  with costs by history and with learned ones.
- split: the same without a reserve. Groups that are longer than the daemon's bound are split, by a
  rate for pixels and one for vertices, or by predicted costs: how long the important program waits.
- monitor: frame times of glmark2's build and of 280 draws a frame, with the context monitor and
  without, both managed; in rounds, interleaved. The goal is at most 3 %.

- launches: kernels and copies of an OpenCL program on PoCL (`tests/programs/opencl/shapes.c`): how
  near those in known shapes are predicted, and each new shape before it was measured.

- game: OpenArena's demo, each group by history and by learned costs, if it is installed.

How near predictions of OpenGL are is what `headway papers run libetp --live` prints.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.desktop import INSTALL, has_openarena, openarena
from benchmarks.gpu.results import Table
from headway.engine.cost_models import Conditions
from headway.engine.cost_models.adaptive import Adaptive
from headway.engine.cost_models.history import History
from headway.engine.cost_models.launches import Launches
from headway.engine.events import Completed, Dispatched, Measured, Submitted
from headway.engine.launching import Shape, shape_of
from headway.trace.predictions import groups_of, judge
from headway.trace.statistics import nearest_rank
from headway.view.traces import read_events
from tests.integration import gl, opencl
from tests.integration.daemon_client import running_daemon

RESERVE = "10ms/40ms:ae"
IMPORTANT = ("--name", "important", "--priority", "9", "--policy", "prt")
KNOWN, UNSEEN = 4, 0.15
"""A shape counts as new if four others of its kernel were measured; the goal for its prediction."""
COMMANDS = 282
"""Of a frame of the gears: a clear, 280 draws and the swap."""
BUILD, GEARS = "glmark2 build", "280 draws a frame"
ROOM = ("--reserve", "95ms/100ms:ae")
PARTS = ("reserve", "split", "monitor", "launches", "game")
ROUNDS = 25
"""In each of a kernel's first four shapes; of the others half of the launches after that are."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    with gl.new_stage() as stage:
        os.environ["XDG_STATE_HOME"] = str(stage.folder)
        scenes = built(stage)
        if options.only not in ("launches", "game"):
            calibrate(stage, scenes)
        for part in PARTS if options.only is None else (options.only,):
            made = {
                "reserve": reserve,
                "split": split,
                "monitor": monitor,
                "launches": launches,
                "game": game,
            }[part]
            print(made(stage, scenes, options.repeats, options.seconds).markdown(), flush=True)
    return 0


def built(stage: gl.Stage) -> str:
    source = gl.PROGRAMS.parents[1] / "examples" / "libetp" / "scenes.c"
    gl.compile_program(source, stage.folder / "scenes", "-lEGL", "-lGLESv2", "-lm")
    return str(stage.folder / "scenes")


def calibrate(stage: gl.Stage, scenes: str) -> None:
    for _ in range(6):
        words = ["calibrate", "gl", "--software-gpu", "--", scenes, "changes", "2"]
        done = subprocess.run(
            [gl.HEADWAY, *words], env=stage.environment(), capture_output=True, text=True
        )
        if done.returncode == 0:
            return
    raise SystemExit(done.stderr)


@dataclass
class Seen:
    """What a trace says of the program that changes its scenes, and of the important one."""

    groups: int
    debts_ns: list[int]
    waits_ns: list[int]
    rate: float
    other_rate: float


def together(
    stage: gl.Stage, scenes: str, options: Sequence[str], seconds: float, seed: int
) -> Seen:
    """Both programs for so long, from when both have shown a frame."""
    trace = stage.folder / "run.pftrace"
    daemon = stage.daemon("--no-leases", "--trace", str(trace))
    try:
        important = stage.start(scenes, "gears", "120", options=(*IMPORTANT, "--predict", "recent"))
        words = (scenes, "changes", "120", "0", str(seed))
        other = stage.start(*words, options=("--name", "other", "--policy", "prt", *options))
        rate, other_rate = gl.frame_rates([important, other], seconds)
    finally:
        stage.stop_programs()
        daemon.terminate()
        daemon.wait()
    groups, debts, waits = 0, [], []
    submitted: dict[tuple[str, int], int] = {}
    for event in read_events(trace):
        if isinstance(event, Submitted):
            submitted[event.task, event.index] = event.ns
        elif isinstance(event, Dispatched) and event.task.startswith("important"):
            waits.append(event.ns - submitted.get((event.task, event.index), event.ns))
        elif isinstance(event, Completed) and event.task.startswith("other"):
            groups += 1
            if event.reserve is not None and event.budget_ns < 0:
                debts.append(-event.budget_ns)
    return Seen(groups, debts, waits, rate, other_rate)


def reserve(stage: gl.Stage, scenes: str, repeats: int, seconds: float) -> Table:
    """AE by history against AE by learned costs."""
    seen: dict[str, list[Seen]] = {"history": [], "libetp": [], "adaptive": []}
    for seed in range(1, repeats + 1):
        for model, found in seen.items():
            options = ("--predict", model, "--reserve", RESERVE)
            found.append(together(stage, scenes, options, seconds, seed))
    rows = []
    for model, found in seen.items():
        groups, debts = sum(s.groups for s in found), [d for s in found for d in s.debts_ns]
        debts.sort()
        worst = debts[-1] / 1e6 if debts else 0.0
        mean = statistics.mean(debts) / 1e6 if debts else 0.0
        rows.append(
            [
                model,
                str(groups),
                f"{len(debts)} ({100 * len(debts) / max(1, groups):.1f} %)",
                f"{mean:.1f} ms",
                f"{worst:.1f} ms",
                f"{statistics.median(s.rate for s in found):.0f}",
                f"{statistics.median(s.other_rate for s in found):.1f}",
            ]
        )
    head = [
        f"AE reserve of {RESERVE}, costs by", "groups", "left a debt", "mean debt", "worst",
        "important fps", "its own fps",
    ]  # fmt: skip
    return Table("", head, rows)


def split(stage: gl.Stage, scenes: str, repeats: int, seconds: float) -> Table:
    """Splitting by two rates against splitting by predicted costs."""
    ways = {"by rates": (), "by predicted costs": ("--predict", "adaptive")}
    seen: dict[str, list[Seen]] = {way: [] for way in ways}
    for seed in range(1, repeats + 1):
        for way, options in ways.items():
            seen[way].append(together(stage, scenes, options, seconds, seed))
    rows = []
    for way, found in seen.items():
        waits = sorted(w for s in found for w in s.waits_ns)
        at = [waits[nearest_rank(q, len(waits))] / 1e6 for q in (0.5, 0.99)]
        rows.append(
            [
                way,
                str(sum(s.groups for s in found)),
                *(f"{ms:.2f} ms" for ms in at),
                f"{statistics.median(max(s.waits_ns) for s in found) / 1e6:.1f} ms",
                f"{statistics.median(s.rate for s in found):.0f}",
                f"{statistics.median(s.other_rate for s in found):.1f}",
            ]
        )
    head = [
        "groups that are too long are split", "its groups", "important waits, p50", "p99",
        "worst (median of rounds)", "important fps", "its own fps",
    ]  # fmt: skip
    return Table("", head, rows)


def monitor(stage: gl.Stage, scenes: str, repeats: int, seconds: float) -> Table:
    """Frame times with the context monitor against those without."""
    length = f"build:duration={seconds:g}"
    programs = {
        BUILD: ("glmark2-es2", "-s", "400x300", "-b", length),
        GEARS: (scenes, "gears", f"{seconds:g}"),
    }
    ways = {"without": ROOM, "with": ("--predict", "adaptive", *ROOM)}
    rows = []
    for title, command in programs.items():
        times: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(2 * repeats):
            order = list(ways.items()) if number % 2 else list(ways.items())[::-1]
            for way, options in order:
                daemon = stage.daemon("--no-leases")
                try:
                    said = stage.run(*command, options=("-q", *options)).stdout
                finally:
                    daemon.terminate()
                    daemon.wait()
                times[way].append(frame_us(said, seconds))
        usual = {way: statistics.median(taken) for way, taken in times.items()}
        ratios = [b / a - 1 for a, b in zip(times["without"], times["with"], strict=True)]
        more = usual["with"] / usual["without"] - 1
        each = (usual["with"] - usual["without"]) * 1e3 / COMMANDS
        rows.append(
            [
                title,
                *(f"{us:.0f} us" for us in usual.values()),
                f"{100 * more:+.1f} %",
                f"{100 * min(ratios):+.1f} … {100 * max(ratios):+.1f} %",
                f"{each:.0f} ns" if title == GEARS else "",
            ]
        )
    head = ["a frame takes", *ways, "more", "in the rounds", "for each command"]
    return Table("", head, rows)


def launches(stage: gl.Stage, scenes: str, repeats: int, seconds: float) -> Table:
    """Each launch predicted from what was known before it, by the cost model of that name."""
    programs = opencl.compile_all(stage.folder)
    trace = stage.folder / "launches.pftrace"
    with running_daemon(stage.folder / "cl", "--software-gpu", "--trace", str(trace)) as daemon:
        options = ("--predict", "launches", "--reserve", "95ms/100ms")
        made = opencl.Programs(programs, daemon)
        made.run("shapes", ROUNDS, options=options)
        events = daemon.recorded(trace)
    model, taken = Launches(), collections.defaultdict[tuple[str, Shape], list[int]](list)
    known, new = collections.defaultdict[str, list[float]](list), {}
    for event in events:
        found = shape_of(dict(event.features)) if isinstance(event, Measured) else None
        if not isinstance(event, Measured) or found is None:
            continue
        work, conditions = Kernel(dict(event.features)), Conditions()
        predicted = model.predict(work, conditions)
        model.observe(work, conditions, event.took_ns)
        others = sum(1 for kernel, _ in taken if kernel == found[0])
        if predicted.known:
            known[found[0]].append(abs(predicted.expected_ns / event.took_ns - 1))
        elif found not in taken and others >= KNOWN:
            new[found] = predicted.expected_ns
        taken[found].append(event.took_ns)
    rows = []
    for number, (kernel, errors) in enumerate(sorted(known.items())):
        off = [
            expected / statistics.median(taken[f]) - 1
            for f, expected in new.items()
            if f[0] == kernel
        ]
        title = "copies to the device" if kernel.startswith("copy") else f"kernel {number}"
        rows.append(
            [
                title,
                str(len(errors)),
                f"{100 * statistics.mean(errors):.1f} %",
                f"{100 * statistics.median(errors):.1f} %",
                f"{sum(abs(e) <= UNSEEN for e in off)} of {len(off)}",
                " ".join(f"{100 * e:+.0f} %" for e in off),
            ]
        )
    head = [
        "OpenCL on PoCL", "in known shapes", "mean error", "median", "new shapes within 15 %",
        "each, before it was measured",
    ]  # fmt: skip
    return Table("", head, rows)


def game(stage: gl.Stage, scenes: str, repeats: int, seconds: float) -> Table:
    """TimeGraph's game: history was within 15 % in 8 % of cases here."""
    head = ["OpenArena, costs by", "groups", "mean error", "median", "within 15 %", "over bound"]
    if not has_openarena():
        print(INSTALL, file=sys.stderr)
        return Table("", head, [])
    trace = stage.folder / "game.pftrace"
    daemon = stage.daemon("--no-leases", "--trace", str(trace))
    try:
        options = ("--name", "game", "--predict", "adaptive")
        stage.start(*openarena(stage.folder / "openarena"), options=options)
        gl.wait_until(lambda: stage.is_managed("game"), "the game at the gate", seconds=90)
        time.sleep(5 * seconds)
    finally:
        stage.stop_programs()
        daemon.terminate()
        daemon.wait()
    models = {"history": History(), "adaptive": Adaptive()}
    rows = [
        [
            verdict.model,
            str(verdict.groups),
            *(f"{100 * part:.1f} %" for part in (verdict.mean, verdict.median)),
            f"{100 * verdict.within:.0f} %",
            f"{100 * verdict.over:.1f} %",
        ]
        for verdict in judge(groups_of(read_events(trace)), models)
        if verdict.model in models
    ]
    return Table("", head, rows)


@dataclass
class Kernel:
    """A launch, as a cost model sees it."""

    features: dict[str, int]
    signature: str = ""
    exact_ns: int = 0


def frame_us(said: str, seconds: float) -> float:
    """What a frame took, by what the program says."""
    if found := re.search(r"FPS: (\d+)", said):
        return 1e6 / float(found[1])
    if found := re.match(r"(\d+) groups", said):
        return 1e6 * seconds / float(found[1])
    raise SystemExit(f"found {said!r}, expected a number of frames")


if __name__ == "__main__":
    raise SystemExit(main())
