"""OpenGL ES beside CUDA: frames that keep their time, and one set of books over two APIs.

Frames are drawn without a window (EGL's device platform) and each is waited for. Beside them a
greedy CUDA program: as the driver shares the GPU, and under Headway. Then both are greedy and have
reserves; shares are said by what each gets alone, and by what the daemon charged it with.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.gpu import books
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table, latencies
from benchmarks.gpu.stage import Stage, Way

DRAW_US = 100
FRAME = (10, 10)
"""Draws, and ms from one frame to the next."""
GREEDY = (100, 64, 0)
GREEDY_FRAME, GREEDY_JOB = 100, (500, 20, 0)
"""Draws of a frame and kernels of a job that take 10 ms, for the reserves."""
PARTS = {"gl": 30, "cuda": 70}
PERIOD_MS = 100
WITHIN_POINTS = 5.0
WAYS = (stages.TIME_SLICED, stages.OVERLAP, stages.DRAIN)
ALONE = "alone"


def calibrated(stage: Stage) -> tuple[Stage, str]:
    """The same stage with draws that are as long as they should be, and what draws them."""
    command = stage.program("glapp", "cal", DRAW_US)
    (said,) = stages.finish([stage.start(command)], stages.LATE_S)
    return stage.with_env(LOOPS=str(said["loops"])), str(said["renderer"])


def frames(stage: Stage, way: Way | None, seconds: float) -> dict[str, Any]:
    """How long frames take, alone or beside the greedy program."""
    command = stage.program("glapp", "hp", *FRAME, seconds)
    if way is None:
        (said,) = stage.together(command, seconds=seconds, start_s=0)
        return said
    greedy = stage.app("lp", *GREEDY, seconds)
    with way.on(stage) as at, books.kept(at) as seen:
        said, other = at.together(
            [*way.important(), *command], [*way.greedy(), *greedy], seconds=seconds
        )
    granted, leased = (seen.last("hp", what) for what in ("groups", "passed"))
    passed = {"passed": granted + leased} if way.policy else {}
    return {**said, "share": other["busy"], **passed}


def reserves(stage: Stage, seconds: float) -> dict[str, Any]:
    """What two greedy programs of two APIs got, in percent: of alone, and by the books."""
    commands = {
        "gl": stage.program("glapp", "lp", GREEDY_FRAME, 0, seconds),
        "cuda": stage.app("lp", *GREEDY_JOB, seconds),
    }
    rate = {"gl": "per_s", "cuda": "busy"}
    alone = {
        name: stage.together(command, seconds=seconds, start_s=0)[0][rate[name]]
        for name, command in commands.items()
    }
    prefixed = [
        [*stages.run_as(name, "--reserve", f"{PARTS[name]}ms/{PERIOD_MS}ms"), *command]
        for name, command in commands.items()
    ]
    with stages.daemon(stage, *stages.SPINS) as at, books.kept(at) as seen:
        answers = at.together(*prefixed, seconds=seconds)
        charged = seen.shares(*commands)
    got = zip(commands, answers, strict=True)
    return {
        "got": {name: 100 * said[rate[name]] / alone[name] for name, said in got},
        "charged": {name: 100 * part for name, part in zip(commands, charged, strict=True)},
    }


def measure(stage: Stage, quick: bool) -> Outcome:
    seconds = 1.5 if quick else 4.0
    stage, renderer = calibrated(stage)
    outcome = Outcome(data={"renderer": renderer}, notes=[f"Drawn by {renderer}."])
    rows = outcome.data["frames"] = {}
    for way in (None, *WAYS):
        title = ALONE if way is None else way.title
        if row := outcome.tried(title, partial(frames, stage, way, seconds)):
            rows[title] = row
    outcome.tables.append(_frames_table(rows))
    outcome.goals += _frames_goals(rows)
    if found := outcome.tried("reserves", lambda: reserves(stage, 2 * seconds)):
        outcome.data["reserves"] = found
        outcome.tables.append(_reserves_table(found))
        outcome.goals += _reserves_goals(found)
    return outcome


def _frames_table(rows: dict[str, dict[str, Any]]) -> Table:
    draws, period_ms = FRAME
    title = f"frames of {draws} draws of {DRAW_US} us every {period_ms} ms beside a CUDA program"
    return latencies(title, rows, "hash")


def _frames_goals(rows: dict[str, dict[str, Any]]) -> list[Goal]:
    goals = [Goal("different pictures", len({row["hash"] for row in rows.values()}), 1)]
    sliced = rows.get(stages.TIME_SLICED.title)
    for way in (stages.OVERLAP, stages.DRAIN):
        if way.title not in rows:
            continue
        row = rows[way.title]
        goals.append(Goal(f"{way.title}: passed the gate", row["passed"], 1, at_least=True))
        if sliced is not None:
            what = f"{way.title}: p99 at most the time-sliced one, us"
            goals.append(Goal(what, row["p99_us"], sliced["p99_us"]))
    return goals


def _reserves_table(found: dict[str, dict[str, float]]) -> Table:
    names = {"gl": "OpenGL ES", "cuda": "CUDA"}
    head = ["both greedy", "reserve", "of alone, %", "by the daemon's books, %"]
    lines = [
        [names[n], f"{p}ms/{PERIOD_MS}ms", f"{found['got'][n]:.1f}", f"{found['charged'][n]:.1f}"]
        for n, p in PARTS.items()
    ]
    return Table("", head, lines)


def _reserves_goals(found: dict[str, dict[str, float]]) -> list[Goal]:
    goals = []
    for how, title in (("got", "of alone"), ("charged", "by the books")):
        off = max(abs(found[how][name] - part) for name, part in PARTS.items())
        goals.append(Goal(f"reserves over two APIs: points off, {title}", off, WITHIN_POINTS))
    return goals
