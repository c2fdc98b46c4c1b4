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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.gpu import stage as stages
from benchmarks.gpu.ordinary.cases import CASES, Actor, Case
from benchmarks.gpu.ordinary.verdicts import (
    ALONE,
    OURS,
    OURS_MPS,
    Found,
    bound_by,
    goals_of,
    summary,
    table,
)
from benchmarks.gpu.results import Outcome
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Told
from benchmarks.gpu.turns import order

READY_S = 150.0
"""Compilers run before a program is ready."""
SOON_S = 0.15
"""All programs of a round are told to begin at the same moment."""
HANGS_S = 20.0
SECONDS = 1.0
ROUNDS = 2
"""Of each case at least: fewer have no interval. All that --quick takes."""
MINUTES = 8.0
"""What the suite takes in full, with the start of its programs and without building them: a machine
that is lent for ten minutes at a time measures all of it in one go."""
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


def _play(case: Case, casts: dict[str, Cast], goes_on: Callable[[int], bool]) -> dict[str, Any]:
    """Every way in every round; alone, the important and each of the others by itself. `goes_on`
    says of a number of rounds whether there is to be one more."""
    number, seconds = 0, SECONDS
    said: dict[str, list[dict[str, Any]]] = {title: [] for title in (ALONE, *casts)}
    plain = casts[WAYS[0].title]
    plain_important = list(zip(plain.important, case.important, strict=True))
    plain_others = list(zip(plain.others, case.others, strict=True))
    while goes_on(number):
        for title in order(list(said), number):
            if title == ALONE:
                whole = _round(plain_important[:1], [], seconds, number)
                for other in plain_others if number < ROUNDS else []:  # it has hardly any spread
                    whole["others"] += _round([], [other], seconds / 2, number)["others"]
            else:
                cast = casts[title]
                important = list(zip(cast.important, case.important, strict=True))
                others = list(zip(cast.others, case.others, strict=True))
                whole = _round(important, others, seconds, number)
            said[title].append(whole)
        number += 1
    return said


@dataclass
class Pace:
    """How many rounds a case may have, so that all of them are over in time."""

    end_s: float
    now: Callable[[], float]
    start_s: float = 0.0
    """The longest that programs of cases took to start."""

    def rounds(self, cases: int, batches: int, since_s: float) -> Callable[[int], bool]:
        """Programs that were started at `since_s` are ready: whether there is to be one more round
        after so many, where so many cases are left with this one, and so many batches of programs
        to be started after this one."""
        now_s = self.now()
        self.start_s = max(self.start_s, now_s - since_s)
        ends_s = now_s + (self.end_s - batches * self.start_s - now_s) / cases

        def goes_on(done: int) -> bool:
            return done < ROUNDS or self.now() < ends_s

        return goes_on


def _gpu_in_jobs(at: Stage, important: Told) -> float | None:
    """For which part of its jobs the program waits for the GPU, as the daemon found out."""
    try:
        tasks = at.status()["channels"]
    except (subprocess.CalledProcessError, ValueError, KeyError):
        return None
    shares = [task.get("gpu_in_jobs") for task in tasks if task.get("pid") == important.pid]
    return next((share for share in shares if share is not None), None)


def _tell_states(at: dict[str, Stage]) -> None:
    """What the daemons know, when a program hangs or fails."""
    for title in (OURS, OURS_MPS):
        with contextlib.suppress(subprocess.CalledProcessError, ValueError):
            print(title, json.dumps(at[title].status()), flush=True)


def measure(stage: Stage, quick: bool) -> Outcome:
    wanted = [case for case in CASES if not stage.cases or case.name in stage.cases]
    outcome = Outcome()
    found: dict[str, Found] = {}
    minutes = 0.0 if quick else MINUTES * len(wanted) / len(CASES)
    pace = Pace(time.monotonic() + 60 * minutes, time.monotonic)
    with _stages(stage) as at:
        for first in range(0, len(wanted), TOGETHER):
            with contextlib.ExitStack() as stack:
                batch = wanted[first : first + TOGETHER]
                started = [(case, _start(case, at, stack)) for case in batch]
                for place, (case, casts) in enumerate(started, first):
                    batches = (len(wanted) - 1) // TOGETHER - first // TOGETHER
                    rounds = partial(pace.rounds, len(wanted) - place, batches, time.monotonic())
                    part = partial(_case, case, casts, at, rounds)
                    result = outcome.tried(case.name, part)
                    if result is not None:
                        found[case.name] = result
                        print(table(case.name, result).markdown(), flush=True)
                        _conclude(outcome, found)
                        stage.keep(outcome)
    _conclude(outcome, found)
    return outcome


def _case(
    case: Case,
    casts: dict[str, Cast],
    at: dict[str, Stage],
    rounds: Callable[[], Callable[[int], bool]],
) -> Found:
    _ready(casts)
    try:
        said = _play(case, casts, rounds())
    except Failed:
        _tell_states(at)
        raise
    said[OURS][-1]["important"][0]["gpu_in_jobs"] = _gpu_in_jobs(at[OURS], casts[OURS].important[0])
    return summary(said)


def _conclude(outcome: Outcome, found: dict[str, Found]) -> None:
    """What is known so far."""
    bounds = {case.name: bound_by(found[case.name], case) for case in CASES if case.name in found}
    rounds = [len(ways[OURS]["round_others"]) for ways in found.values()]
    outcome.data = found
    outcome.tables = [table(f"{name} ({bounds[name]}-bound)", ways) for name, ways in found.items()]
    outcome.goals = goals_of(found, bounds)
    outcome.notes = [
        f"{min(rounds, default=0)} to {max(rounds, default=0)} rounds of {SECONDS:g} s a way and"
        " case, in another order each; p99 of all jobs of all rounds; in brackets the smallest and"
        " the largest of the rounds' own. Throughput is the others' against each of them alone, in"
        " the mean."
    ]
