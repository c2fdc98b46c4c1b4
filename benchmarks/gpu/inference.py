"""PyTorch: transformer inference every 20 ms beside training in another process.

Ordinary programs on the default stream, the inference eager and as a CUDA graph. The programs of
every way are started once and then take turns, way by way, in many short rounds: what slows the
machine down meets all of them alike, and training is compared with time-sliced training of the same
round, of which there are two pairs. All processes find as much around them, and those that train
are on one CPU. What they compute is compared with what they compute alone: the same outputs and
losses, bit by bit.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.gpu import models, spread
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Failed, Stage, Way
from benchmarks.gpu.told import Start, Told, start_alike
from benchmarks.gpu.turns import order

AGAIN = replace(stages.TIME_SLICED, title="time-sliced, once more")
"""What two pairs of processes differ by, and half of what the others are compared with."""


def _wide(way: Way) -> Way:
    """Training meets a third of the gates, and inference waits for three times as much."""
    return replace(way, title=f"{way.title}, 0.6 ms", options=(*way.options, "--window", "0.6ms"))


OURS = (
    stages.OVERLAP,
    _wide(stages.OVERLAP),
    stages.OVERLAP_MPS,
    _wide(stages.OVERLAP_MPS),
)
WAYS = (stages.TIME_SLICED, stages.MPS, *OURS, AGAIN)
QUICK = (stages.TIME_SLICED, stages.OVERLAP)
READY_S = 120.0
ENOUGH_ROUNDS = 10
SOON_S = 0.05
"""Both are told to begin at the same moment."""
GOAL_KIND, GOAL_MS = "graph", 1.9
"""Eager inference keeps its turn for as long as its own CPU takes: that is shown, and no goal."""
ALONE = "alone"
TAIL_MS = 100
"""For about so long training goes on when its time is over, for it is ahead of the GPU, and by more
in some ways than in others."""
UPPER = 0.75
HOW = (
    "Of time-sliced: the median over all rounds, against each of the two time-sliced ways in the "
    "same round. Undisturbed: the upper quartile of a way's rounds against the mean of theirs; all "
    "that disturbs a round makes it slower. All processes that train are on one CPU, all others on "
    "another, each daemon on one of its own; each process has as many bytes of environment. "
    "Requests go on until training's last work is done; those do not count."
)

CPUS = {"inference": 5, "training": -1}
DAEMONS = (2, 6, 8, 10)
"""Far enough from each other not to be of one core; where there are fewer, the last. Daemons have
one each: those of other ways wake up now and then."""

Pair = tuple[Told, Told]
Row = dict[str, list[dict[str, Any]]]
Rows = dict[str, Row]
"""What inference and training said in every round, way by way."""


@dataclass(frozen=True)
class Kind:
    """How inference is done, and how often and how long that is measured."""

    name: str
    rounds: int
    seconds: float

    @property
    def requests(self) -> int:
        """Those that count. There are more of them, so that none of training's time is without."""
        return int(self.seconds * 1000 / models.PERIOD_MS)

    def wish(self, begin_s: float, *, together: bool) -> str:
        """Alone, training follows inference, and half as long says enough."""
        wish: dict[str, object] = {"graph": self.name == "graph", "at": begin_s}
        wish["requests"] = self.requests + TAIL_MS // models.PERIOD_MS
        return json.dumps({**wish, "seconds": self.seconds if together else self.seconds / 2})


KINDS = (Kind("graph", 30, 0.4), Kind("eager", 4, 1.0))
QUICK_KINDS = (Kind("graph", 2, 1.2),)


def measure(stage: Stage, quick: bool) -> Outcome:
    kinds, ways = (QUICK_KINDS, QUICK) if quick else (KINDS, WAYS)
    data: dict[str, Rows] = {}
    error = ""
    with contextlib.ExitStack() as stack:
        pairs = _started(stack, stage, ways)
        pairs = {ALONE: pairs[stages.TIME_SLICED.title], **pairs}
        for kind in kinds:
            try:
                data[kind.name] = _rounds(kind, pairs)
            except Failed as failure:  # what was found before counts
                error = f"{kind.name}: {failure}"
    found = {
        kind: {title: _summary(row, rows) for title, row in rows.items()}
        for kind, rows in data.items()
    }
    return Outcome(
        tables=[_table(kind, rows) for kind, rows in data.items()],
        goals=goals_of(data),
        notes=[models.described(), _said(kinds, data), HOW],
        data={"rounds": data, "found": found},
        error=error,
    )


def _said(kinds: tuple[Kind, ...], data: dict[str, Rows]) -> str:
    done = {kind: len(data[kind.name][ALONE]["training"]) for kind in kinds if kind.name in data}
    said = (f"{kind.name}: {rounds} rounds of {kind.seconds:g} s" for kind, rounds in done.items())
    return f"{', '.join(said)}, in another order each; training alone half as long."


def _started(stack: contextlib.ExitStack, stage: Stage, ways: tuple[Way, ...]) -> dict[str, Pair]:
    infer = [*models.inference(0, graph=True), models.TOLD]  # how much, each line says
    train = [*models.training(0, models.BESIDE), models.TOLD]
    starts: list[Start] = []
    beside = stack.enter_context(stages.mps(stage)) if any(way.mps for way in ways) else stage
    cpus = itertools.cycle(DAEMONS)
    for way in ways:
        at = beside if way.mps else stage
        if way.policy is not None:
            pinned = ("--cpu", str(_cpu(next(cpus))))
            at = stack.enter_context(stages.daemon(at, *way.options, *pinned))
        starts += [(at, way.important(), infer), (at, way.greedy(), train)]
    programs = start_alike(stack, starts)
    pairs = list(zip(programs[::2], programs[1::2], strict=True))
    for pair in pairs:
        for program, what in zip(pair, ("inference", "training"), strict=True):
            program.heard(READY_S)
            program.pin(_cpu(CPUS[what]))
    return {way.title: pair for way, pair in zip(ways, pairs, strict=True)}


def _cpu(number: int) -> int:
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[number if number < len(cpus) else -1]


def _rounds(kind: Kind, pairs: dict[str, Pair]) -> Rows:
    rows: Rows = {title: {"inference": [], "training": []} for title in pairs}
    for number in range(kind.rounds):
        try:
            found = {title: _told(kind, title, pairs) for title in order(list(pairs), number)}
        except Failed as error:  # so many programs may use up the GPU's memory in the end
            if number < ENOUGH_ROUNDS:
                raise
            print(f"no more than {number} rounds: {error}", flush=True)
            break
        for title, (infer, train) in found.items():
            rows[title]["inference"].append(infer)
            rows[title]["training"].append(train)
    return rows


def _told(kind: Kind, title: str, pairs: dict[str, Pair]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One way's part of a round."""
    infer, train = _segment(kind, *pairs[title], together=title != ALONE)
    del infer["latencies_ms"][kind.requests :]
    short = f"max {max(infer['latencies_ms']):.2f} ms, {train['per_s']:.2f} steps/s"
    print(kind.name, title, short, f"{train.get('memory_gib', 0):.1f} GiB", flush=True)
    return infer, train


def _segment(
    kind: Kind, infer: Told, train: Told, *, together: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    timeout_s = kind.seconds + stages.LATE_S
    wish = kind.wish(time.time() + SOON_S, together=together)
    infer.tell(wish)
    if not together:
        found = infer.heard(timeout_s)
    train.tell(wish)
    if together:
        found = infer.heard(timeout_s)
    return found, train.heard(timeout_s)


# -- what was found ------------------------------------------------------------------------------


def _latencies(row: Row) -> list[float]:
    return sorted(ms for part in row["inference"] for ms in part["latencies_ms"])


def _p99_ms(row: Row) -> float:
    latencies = _latencies(row)
    return latencies[int(0.99 * (len(latencies) - 1))]


def _steps(row: Row) -> list[float]:
    return [part["per_s"] for part in row["training"]]


def _ratios(row: Row, rows: Rows) -> list[list[float]]:
    """Training's steps as a part of those that are done time-sliced in the same round, by each who
    does them but itself."""
    sliced = [rows[way.title] for way in (stages.TIME_SLICED, AGAIN) if way.title in rows]
    others = [other for other in sliced if other is not row] or sliced
    return [
        [ours / theirs for ours, theirs in zip(_steps(row), _steps(other), strict=True)]
        for other in others
    ]


def _ratio(row: Row, rows: Rows) -> float:
    """One by one: where noise only ever slows down, the mean of two rounds is more often below a
    third than above it."""
    return statistics.median(ratio for ratios in _ratios(row, rows) for ratio in ratios)


def _spread(row: Row, rows: Rows) -> spread.Spread:
    """Of rounds, for those that are compared with one of them are no more than that."""
    return spread.spread([statistics.mean(of) for of in zip(*_ratios(row, rows), strict=True)])


def _undisturbed(row: Row, rows: Rows) -> float:
    sliced = [rows[way.title] for way in (stages.TIME_SLICED, AGAIN) if way.title in rows]
    return _upper(row) / statistics.mean(_upper(other) for other in sliced)


def _upper(row: Row) -> float:
    steps = sorted(_steps(row))
    return steps[round(UPPER * (len(steps) - 1))]


def _summary(row: Row, rows: Rows) -> dict[str, Any]:
    rounds_ms = [max(part["latencies_ms"]) for part in row["inference"]]
    return {
        "p99_ms": _p99_ms(row),
        "median_of_rounds_max_ms": statistics.median(rounds_ms),
        "rounds_max_ms": rounds_ms,
        "of_time_sliced": _ratio(row, rows),
        "undisturbed_of_time_sliced": _undisturbed(row, rows),
        "rounds_of_time_sliced": asdict(_spread(row, rows)),
    }


def _table(kind: str, rows: Rows) -> Table:
    head = [f"{kind} inference every {models.PERIOD_MS} ms", "p50 ms", "p99 ms", "max ms"]
    head += ["training steps/s", "of time-sliced", spread.COLUMN]
    head += ["undisturbed steps/s", "of time-sliced"]
    lines = []
    for title, row in rows.items():
        latencies, steps = _latencies(row), _steps(row)
        numbers = (statistics.median(latencies), _p99_ms(row), latencies[-1])
        per_s = f"{statistics.median(steps):.1f} ({min(steps):.1f} - {max(steps):.1f})"
        part = (f"{_ratio(row, rows):.3f}", _spread(row, rows).interval("{:.3f}".format))
        best = (f"{_upper(row):.1f}", f"{_undisturbed(row, rows):.3f}")
        lines.append([title, *(f"{number:.2f}" for number in numbers), per_s, *part, *best])
    return Table("", head, lines)


def goals_of(data: dict[str, Rows]) -> list[Goal]:
    goals = []
    for kind, rows in data.items():
        for way in OURS:
            row = rows.get(way.title)
            if row is None or kind != GOAL_KIND:
                continue
            goals.append(Goal(f"{way.title}, {kind}: p99, ms", _p99_ms(row), GOAL_MS))
            what = f"{way.title}, {kind}: training, of time-sliced"
            goals.append(Goal(what, _ratio(row, rows), 1.0, at_least=True))
            goals.append(Goal(f"{what}, undisturbed", _undisturbed(row, rows), 1.0, at_least=True))
        goals.extend(
            Goal(f"{kind}: ways with different results of {part}", _different(rows, part), 0)
            for part in ("inference", "training")
        )
    return goals


def _different(rows: Rows, part: str) -> int:
    """How many ways did not compute one and the same, which is what was computed alone."""
    found = [{one["hash"] for one in row[part]} - {models.TOO_FEW} for row in rows.values()]
    right = {one["hash"] for one in rows[ALONE][part]} - {models.TOO_FEW}
    return sum(len(hashes) != 1 or hashes != right for hashes in found)
