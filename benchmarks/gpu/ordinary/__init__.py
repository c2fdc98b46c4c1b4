"""Ordinary programs of well-known libraries beside others, in every way of sharing a GPU.

All programs of a case are started once for each way and then take turns in short rounds, in another
order each: what slows the machine down meets all ways alike. Headway runs as it is installed: no
option of its daemon but --mps, and of its programs the priority alone.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu import stage as stages
from benchmarks.gpu.ordinary.cases import CASES, Actor, Case
from benchmarks.gpu.ordinary.verdicts import ALONE, OURS, OURS_MPS, goals_of, summary, table
from benchmarks.gpu.results import Outcome
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Told
from benchmarks.gpu.turns import order

READY_S = 150.0
"""Compilers run before a program is ready."""
SOON_S = 0.15
"""All programs of a round are told to begin at the same moment."""
HANGS_S = 20.0
ROUNDS, SECONDS = 4, 1.5
QUICK_ROUNDS, QUICK_SECONDS = 2, 1.0
TOGETHER = 3
"""Cases whose programs are started together, for starting takes longer than measuring."""
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class Way:
    title: str
    mps: bool = False
    client_priority: bool = False
    headway: bool = False

    def prefix(self, important: bool, name: str) -> list[str]:
        if not self.headway:
            return []
        return stages.run_as(name, "--priority", "9" if important else "1")

    def environment(self, important: bool) -> dict[str, str]:
        if not self.client_priority:
            return JAX
        return {**JAX, "CUDA_MPS_CLIENT_PRIORITY": "0" if important else "1"}


WAYS = (
    Way("time-sliced"),
    Way("MPS", mps=True),
    Way("MPS, client priority", mps=True, client_priority=True),
    Way(OURS, headway=True),
    Way(OURS_MPS, mps=True, headway=True),
)


@dataclass
class Cast:
    """The programs of one case under one way."""

    important: list[Told] = field(default_factory=list)
    others: list[Told] = field(default_factory=list)


@contextlib.contextmanager
def _stages(stage: Stage) -> Iterator[dict[str, Stage]]:
    """Where the programs of every way run."""
    with contextlib.ExitStack() as stack:
        beside = stack.enter_context(stages.mps(stage))
        at = {way.title: beside if way.mps else stage for way in WAYS}
        at[OURS] = stack.enter_context(stages.daemon(stage))
        at[OURS_MPS] = stack.enter_context(stages.daemon(stage, "--mps"))
        yield at


def _start(case: Case, at: dict[str, Stage], stack: contextlib.ExitStack) -> dict[str, Cast]:
    casts = {}
    for way in WAYS:
        cast = casts[way.title] = Cast()
        place = at[way.title]
        for actors, told, important in (
            (case.important, cast.important, True),
            (case.others, cast.others, False),
        ):
            for number, actor in enumerate(actors):
                name = f"{actor.workload.replace(':', '-')}-{number}"
                command = [*way.prefix(important, name), *actor.command(place)]
                told.append(Told(place, command, way.environment(important)))
                stack.callback(told[-1].end)
    return casts


def _ready(casts: dict[str, Cast]) -> None:
    end = time.monotonic() + READY_S
    for title, cast in casts.items():
        for program in (*cast.important, *cast.others):
            try:
                program.heard(end - time.monotonic())
            except Failed as failure:
                raise Failed(f"{title}: {failure}") from None


Part = tuple[Told, Actor]


def _round(important: list[Part], others: list[Part], seconds: float, seed: int) -> dict[str, Any]:
    at = time.time() + SOON_S
    for program, actor in (*important, *others):
        program.tell(actor.told(at, seconds, seed))
    limit_s = SOON_S + seconds + HANGS_S
    return {
        "important": [_said(program, actor, limit_s) for program, actor in important],
        "others": [_said(program, actor, limit_s) for program, actor in others],
    }


def _said(program: Told, actor: Actor, limit_s: float) -> dict[str, Any]:
    try:
        return program.heard(limit_s)
    except Failed as failure:
        raise Failed(f"{actor.workload}, {program.pid}: {failure}") from None


def _play(case: Case, casts: dict[str, Cast], rounds: int, seconds: float) -> dict[str, Any]:
    """Every way in every round; alone, the important and each of the others by itself."""
    said: dict[str, list[dict[str, Any]]] = {title: [] for title in (ALONE, *casts)}
    plain = casts[WAYS[0].title]
    plain_important = list(zip(plain.important, case.important, strict=True))
    plain_others = list(zip(plain.others, case.others, strict=True))
    for number in range(rounds):
        for title in order(list(said), number):
            if title == ALONE:
                whole = _round(plain_important[:1], [], seconds, number)
                for other in plain_others if number < 2 else []:  # it has hardly any spread
                    whole["others"] += _round([], [other], seconds / 2, number)["others"]
            else:
                cast = casts[title]
                important = list(zip(cast.important, case.important, strict=True))
                others = list(zip(cast.others, case.others, strict=True))
                whole = _round(important, others, seconds, number)
            said[title].append(whole)
    return said


def _tell_states(at: dict[str, Stage]) -> None:
    """What the daemons know, when a program hangs or fails."""
    for title in (OURS, OURS_MPS):
        with contextlib.suppress(subprocess.CalledProcessError, ValueError):
            print(title, json.dumps(at[title].status()), flush=True)


def measure(stage: Stage, quick: bool) -> Outcome:
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    wanted = [case for case in CASES if not stage.cases or case.name in stage.cases]
    outcome = Outcome()
    found: dict[str, Any] = {}
    with _stages(stage) as at:
        for first in range(0, len(wanted), TOGETHER):
            with contextlib.ExitStack() as stack:
                batch = wanted[first : first + TOGETHER]
                started = [(case, _start(case, at, stack)) for case in batch]
                for case, casts in started:

                    def part(case: Case = case, casts: dict[str, Cast] = casts) -> dict[str, Any]:
                        _ready(casts)
                        try:
                            return summary(_play(case, casts, rounds, seconds))
                        except Failed:
                            _tell_states(at)
                            raise

                    result = outcome.tried(case.name, part)
                    if result is not None:
                        found[case.name] = result
                        print(table(case.name, result).markdown(), flush=True)
    outcome.data = found
    outcome.tables = [table(name, ways) for name, ways in found.items()]
    outcome.goals = goals_of(found, {case.name: case.bound_by for case in CASES})
    outcome.notes = [
        f"{rounds} rounds of {seconds:g} s a way and case, in another order each; p99 of all jobs"
        " of all rounds; in brackets the smallest and the largest of the rounds' own. Throughput is"
        " the others' against each of them alone, in the mean."
    ]
    return outcome
