"""What Headway costs a program that is alone: the same program with and without it, in turns.

Every round runs both, one right after the other, so that what slows the machine down meets them
alike; the cost is the median of the rounds' own differences, shown with how far it can be trusted.
Programs that are told what to do take many rounds that are too short for the machine to change in.
Two processes of one program differ too, for as long as they live, and by more than is looked for:
so each of these runs without Headway twice, which shows what a difference of nothing looks like,
and there are generations of them, each with a daemon of its own, which are all started at once. It
is generations that are independent of each other, not their rounds. What a program finds in its
environment is as long without Headway as under it: where things lie in memory may depend on it.

With a more important program there, however little that does, work goes in pieces that fit the
window: what that costs a program that has the GPU to itself is shown, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from benchmarks.gpu import models, spread
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Start, Told, start_alike
from benchmarks.gpu.turns import order

W4, W4_S = (20, 500), 0.5
LAUNCHES, EVERY = 40_000, 1000
READY_S = 120.0
ROUNDS = 120
"""Of all generations together."""
TWICE = "(the same, twice without)"
IDLE = """
import headway, sys
with headway.task("important", priority=9):
    print("{}", flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Case:
    """A program alone, and the number that Headway should leave as it is."""

    title: str
    unit: str
    command: Callable[[Stage], list[str]]
    value: Callable[[dict[str, Any]], float]
    """Smaller is better."""
    goal: float | None
    """None: it is only shown."""
    rounds: int
    """Of each generation."""
    generations: int = 1
    relative: bool = True
    """The goal is a fraction of the value without Headway, or a number of its own."""
    same: tuple[str, ...] = ()
    """What must be the same in every run."""
    short: Mapping[str, float] | None = None
    """What makes a round, for a program that is told: starting takes long."""
    window: bool = False
    """Under Headway there is a more important program, which does nothing."""


def cases(quick: bool) -> list[Case]:
    rounds = 3 if quick else 8
    us, kernels = W4
    torch = [_torch(title, found, quick) for title, found in models.throughput().items()]
    few = 1 if quick else 2
    trained = replace(torch[-1], title=f"{torch[-1].title}, with a window", generations=few)
    trained = replace(trained, goal=None, window=True)
    return [
        Case(
            "W4's greedy loop",
            "us per job",
            lambda stage: stage.app("lp", us, kernels, 0, W4_S),
            lambda said: us * kernels / said["busy"],
            goal=0.02,
            rounds=rounds,
        ),
        Case(
            "empty kernels",
            "ns per launch",
            lambda stage: stage.program("loop", LAUNCHES, EVERY),
            lambda said: float(said["ns_per_launch"]),
            goal=150,
            relative=False,
            rounds=rounds * 5,
            same=("checksum",),
        ),
        *torch,
        trained,
    ]


def _torch(title: str, program: models.Throughput, quick: bool) -> Case:
    return Case(
        title,
        "ms each",
        lambda _: program.command,
        _each_ms,
        goal=0.01,
        rounds=12 if quick else ROUNDS // program.generations,
        generations=1 if quick else program.generations,
        same=("hash",),
        short=program.short,
    )


def _each_ms(said: dict[str, Any]) -> float:
    """The median of a round's requests: one that was interrupted does not count. Steps of training
    are not waited for one by one."""
    return float(said["p50_ms"]) if "p50_ms" in said else 1000 / float(said["per_s"])


@dataclass(frozen=True)
class Difference:
    """Between two runs of every round, generation after generation."""

    before: list[float]
    after: list[float]
    relative: bool = True
    generations: int = 1

    @property
    def rounds(self) -> list[float]:
        pairs = zip(self.before, self.after, strict=True)
        return [(b - a) / a if self.relative else b - a for a, b in pairs]

    @property
    def spread(self) -> spread.Spread:
        return spread.spread(self.rounds)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def medians(self) -> list[float]:
        """Of each generation: further apart than chance has it, they say that processes differ."""
        found, many = self.rounds, len(self.before) // self.generations
        return [statistics.median(found[at : at + many]) for at in range(0, len(found), many)]

    @property
    def interval(self) -> str:
        """Of the median: rounds of one generation are those of the same processes."""
        independent = self.medians if self.generations > 1 else self.rounds
        return spread.spread(independent).interval(self.shown)

    def shown(self, value: float) -> str:
        return f"{value:+.2%}" if self.relative else f"{value:+.0f}"


@dataclass(frozen=True)
class Cost:
    """What the runs of every round took, generation after generation."""

    without: list[float]
    under: list[float]
    again: list[float]
    """Without once more; empty where every run is a process of its own."""
    relative: bool = True
    generations: int = 1

    @property
    def plain(self) -> list[float]:
        """Every round without Headway: of two runs the mean."""
        if not self.again:
            return self.without
        return [statistics.mean(two) for two in zip(self.without, self.again, strict=True)]

    @property
    def found(self) -> Difference:
        return Difference(self.plain, self.under, self.relative, self.generations)

    @property
    def of_nothing(self) -> Difference:
        """The second run without Headway against the first."""
        return Difference(self.without, self.again, self.relative, self.generations)

    @property
    def one_by_one(self) -> Difference:
        """Against each run without Headway. Where noise only ever slows down, the mean of two runs
        is more often above a third than below it, and hides some of what that one costs."""
        under = self.under * 2 if self.again else self.under
        return Difference(self.without + self.again, under, self.relative)


def compare(stage: Stage, case: Case) -> Cost:
    """All, round by round; what is computed must be the same each time."""
    cost = Cost([], [], [], case.relative, case.generations)
    first, full = dict[str, Any](), dict[str, Any]()
    with contextlib.ExitStack() as stack:
        generations = [_ways(stack, stage, case) for _ in range(case.generations)]
        if case.short is not None:
            told = [_started(stack, _turned(*found)) for found in enumerate(generations)]
            for program in (program for programs in told for program in programs.values()):
                program.heard(READY_S)
        for generation, ways in enumerate(generations):
            numbers = range(generation * case.rounds, (generation + 1) * case.rounds)
            run = _afresh(ways) if case.short is None else _told(told[generation], case, full)
            for way in (way for number in numbers for way in order(list(ways), number)):
                said = run[way]()
                _check(case, said, first)
                getattr(cost, way).append(case.value(said))
    return cost


def _ways(stack: contextlib.ExitStack, stage: Stage, case: Case) -> Ways:
    managed = stack.enter_context(stages.daemon(stage))
    if case.window:
        stack.enter_context(_idle(managed))
    ways: Ways = {"without": (stage, [], case.command(stage))}
    ways["under"] = (managed, stages.run_as("alone"), case.command(stage))
    if case.short is not None:
        ways["again"] = ways["without"]
    return ways


@contextlib.contextmanager
def _idle(stage: Stage) -> Iterator[None]:
    """A more important program that is there."""
    program = Told(stage, [sys.executable, "-c", IDLE], {})
    try:
        program.heard(READY_S)
        yield
    finally:
        program.end()


def _check(case: Case, said: dict[str, Any], first: dict[str, Any]) -> None:
    for key in case.same:
        found = said[key]
        if found == models.TOO_FEW or found != first.setdefault(key, found):
            raise Failed(f"{case.title}: {key} {found}, and {first.get(key, 'nothing')} before")


Runs = dict[str, Callable[[], dict[str, Any]]]
Ways = dict[str, Start]


def _afresh(ways: Ways) -> Runs:
    def run(at: Stage, before: Sequence[str], command: Sequence[str]) -> dict[str, Any]:
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {_cpu()})
        try:
            return at.together([*before, *command], seconds=60, start_s=0)[0]
        finally:
            os.sched_setaffinity(0, everywhere)

    return {way: partial(run, *found) for way, found in ways.items()}


def _cpu() -> int:
    """The one that programs run on: some are slower than others."""
    return max(os.sched_getaffinity(0))


def _turned(generation: int, ways: Ways) -> Ways:
    """Each is the first to start in one generation: who is may matter."""
    by = generation % len(ways)
    return dict([*ways.items()][by:] + [*ways.items()][:by])


def _started(stack: contextlib.ExitStack, ways: Ways) -> dict[str, Told]:
    return dict(zip(ways, start_alike(stack, list(ways.values())), strict=True))


def _told(programs: dict[str, Told], case: Case, first: dict[str, Any]) -> Runs:
    """Each does its work at full length first, which is compared and does not count. From then on
    all are on the same CPU; no two of them work at once."""
    wish = {"at": 0, "graph": False}
    for program in programs.values():
        _check(case, program.go(60, json.dumps(wish)), first)
        program.pin(_cpu())
    line = json.dumps({**wish, **(case.short or {})})
    return {way: partial(program.go, 60, line) for way, program in programs.items()}


def measure(stage: Stage, quick: bool) -> Outcome:
    outcome = Outcome(data={})
    rows: list[Sequence[str]] = []
    for case in cases(quick):
        try:
            cost = compare(stage, case)
        except Failed as error:  # the other programs may still be measured
            outcome.error += f"{case.title}: {error}; "
            continue
        rows.extend(found := _rows(case, cost))
        print(*("  ".join(row) for row in found), sep="\n", flush=True)
        if case.goal is not None:
            what = f"{case.title}: cost, one by one"
            outcome.goals.append(Goal(what, cost.one_by_one.median, case.goal))
        outcome.data[case.title] = _data(cost)
    head = ["one program alone", "", "without", "with Headway", "cost", "one by one", spread.COLUMN]
    head += ["middle half", "smallest - largest", "rounds", "median of each generation"]
    outcome.tables.append(Table("", head, rows))
    outcome.notes.append(
        "The loop's checksum and PyTorch's outputs and losses: the same in every run, or it fails. "
        "All are on one and the same CPU. PyTorch has two processes without Headway: its cost is "
        "against the mean of their two runs in the same round, and one by one against each. Below "
        "it, the second of them is against the first: what is found of no difference at all. Each "
        "generation is of other processes, and where there are any the interval is that of their "
        "medians."
    )
    return outcome


def _data(cost: Cost) -> dict[str, Any]:
    parts = {"cost": cost.found} | ({"of_nothing": cost.of_nothing} if cost.again else {})
    found = {
        name: {"spread": asdict(part.spread), "generations": part.medians}
        for name, part in parts.items()
    }
    return {**asdict(cost), **found, "one_by_one": cost.one_by_one.median}


def _rows(case: Case, cost: Cost) -> list[list[str]]:
    rows = [_row(case.title, case.unit, cost.found, cost.one_by_one)]
    if cost.again:
        rows.append(_row(TWICE, case.unit, cost.of_nothing, cost.of_nothing))
    return rows


def _row(title: str, unit: str, found: Difference, one_by_one: Difference) -> list[str]:
    numbers = [f"{statistics.median(values):.4g}" for values in (found.before, found.after)]
    of_all, shown = found.spread, found.shown
    numbers += [shown(of_all.median), shown(one_by_one.median), found.interval]
    numbers += [of_all.middle_half(shown), of_all.whole(shown), str(of_all.rounds)]
    parts = found.medians if found.generations > 1 else []
    return [title, unit, *numbers, ", ".join(shown(median) for median in parts)]
