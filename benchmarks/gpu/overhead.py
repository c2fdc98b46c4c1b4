"""What Headway costs a program that is alone: the same program with and without it, in turns.

Every round runs both, one right after the other, so that what slows the machine down meets them
alike; the cost is the median of the rounds' own differences, shown with how far it can be trusted.
Programs that are told what to do take many rounds that are too short for the machine to change in.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.gpu import models, spread
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Told

W4 = (20, 500)
LAUNCHES, EVERY = 200_000, 1000
READY_S = 60.0


@dataclass(frozen=True)
class Case:
    """A program alone, and the number that Headway should leave as it is."""

    title: str
    unit: str
    command: Callable[[Stage], list[str]]
    value: Callable[[dict[str, Any]], float]
    """Smaller is better."""
    goal: float
    rounds: int
    relative: bool = True
    """The goal is a fraction of the value without Headway, or a number of its own."""
    same: tuple[str, ...] = ()
    """What must be the same in every run."""
    short: Mapping[str, float] | None = None
    """What makes a round, for a program that is started once and told: starting takes long."""


def cases(quick: bool) -> list[Case]:
    seconds = 0.5 if quick else 1.0
    rounds = 3 if quick else 4
    us, kernels = W4
    return [
        Case(
            "W4's greedy loop",
            "us per job",
            lambda stage: stage.app("lp", us, kernels, 0, seconds),
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
            rounds=rounds,
            same=("checksum",),
        ),
        *(_torch(title, *found, quick) for title, found in models.throughput().items()),
    ]


def _torch(title: str, command: list[str], short: Mapping[str, float], quick: bool) -> Case:
    return Case(
        title,
        "ms each",
        lambda _: command,
        lambda said: 1000 / float(said["per_s"]),
        goal=0.01,
        rounds=6 if quick else 40,
        same=("hash",),
        short=short,
    )


@dataclass(frozen=True)
class Cost:
    without: list[float]
    under: list[float]
    goal: float
    relative: bool

    @property
    def differences(self) -> list[float]:
        pairs = zip(self.without, self.under, strict=True)
        return [(b - a) / a if self.relative else b - a for a, b in pairs]

    @property
    def spread(self) -> spread.Spread:
        return spread.spread(self.differences)

    @property
    def middle(self) -> float:
        return self.spread.median


def compare(stage: Stage, case: Case) -> Cost:
    """Both, round by round; what is computed must be the same each time."""
    cost = Cost([], [], case.goal, case.relative)
    first: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        managed = stack.enter_context(stages.daemon(stage))
        ways = {"without": (stage, case.command(stage))}
        ways["under"] = (managed, [*stages.run_as("alone"), *case.command(stage)])
        run = _afresh(ways) if case.short is None else _told(stack, ways, case)
        for number in range(case.rounds):
            for way in list(ways)[:: -1 if number % 2 else 1]:  # who goes first may matter
                said = run[way]()
                _check(case, said, first)
                getattr(cost, way).append(case.value(said))
    return cost


def _check(case: Case, said: dict[str, Any], first: dict[str, Any]) -> None:
    for key in case.same:
        found = said[key]
        if found == models.TOO_FEW or found != first.setdefault(key, found):
            raise Failed(f"{case.title}: {key} {found}, and {first.get(key, 'nothing')} before")


Runs = dict[str, Callable[[], dict[str, Any]]]
Ways = dict[str, tuple[Stage, list[str]]]


def _afresh(ways: Ways) -> Runs:
    def run(at: Stage, command: list[str]) -> dict[str, Any]:
        return at.together(command, seconds=60, start_s=0)[0]

    return {way: partial(run, *found) for way, found in ways.items()}


def _told(stack: contextlib.ExitStack, ways: Ways, case: Case) -> Runs:
    """Each does its work at full length first, which is compared and does not count. From then on
    all are on the same CPU, for some are slower than others; no two of them work at once."""
    programs = {way: Told(at, command, {}) for way, (at, command) in ways.items()}
    for program in programs.values():
        stack.callback(program.end)
    wish, first = {"at": 0, "graph": False}, dict[str, Any]()
    for program in programs.values():
        program.heard(READY_S)
        _check(case, program.go(60, json.dumps(wish)), first)
        program.pin(max(os.sched_getaffinity(0)))
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
        rows.append(_row(case, cost))
        print(*rows[-1], sep="  ", flush=True)
        outcome.goals.append(Goal(f"{case.title}: cost", cost.middle, case.goal))
        outcome.data[case.title] = {**asdict(cost), "spread": asdict(cost.spread)}
    head = ["one program alone", "", "without", "with Headway", "cost", spread.COLUMN]
    head += ["middle half", "smallest - largest", "rounds"]
    outcome.tables.append(Table("", head, rows))
    outcome.notes.append(
        "The loop's checksum and PyTorch's outputs and losses: the same in every run, or it fails. "
        "PyTorch with and without Headway is on one and the same CPU."
    )
    return outcome


def _row(case: Case, cost: Cost) -> list[str]:
    def shown(value: float) -> str:
        return f"{value:+.2%}" if cost.relative else f"{value:+.0f}"

    found = cost.spread
    middles = (statistics.median(cost.without), statistics.median(cost.under))
    numbers = [f"{value:.4g}" for value in middles]
    around = (found.interval(shown), found.middle_half(shown), found.whole(shown))
    return [case.title, case.unit, *numbers, shown(cost.middle), *around, str(found.rounds)]
