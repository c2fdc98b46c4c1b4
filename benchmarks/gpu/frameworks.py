"""Programs in CuPy, Numba, Triton, JAX, cuda.core and PyTorch, which nobody changed.

Each is started twice, as it is and under Headway. All start together and wait; then each does its
rounds alone, and once more beside a greedy CUDA program. They compute the same every time; that
their work passed the gate is the daemon's to say; how they reach the driver is what the interposer
noted (HEADWAY_LOOKUPS).
"""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu import stage as stages
from benchmarks.gpu.building import ROOT
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.told import Told

FOLDER = ROOT / "examples" / "frameworks"


@dataclass(frozen=True)
class Program:
    file: str
    modules: tuple[str, ...]
    """What it imports that may be missing."""
    options: tuple[str, ...] = ()


PROGRAMS = {
    "CuPy": Program("with_cupy.py", ("cupy",)),
    "Numba": Program("with_numba.py", ("numba", "numba_cuda")),
    "Triton": Program("with_triton.py", ("triton", "torch")),
    "cuda.core": Program("with_cuda_core.py", ("cuda.core", "cuda.bindings")),
    "PyTorch": Program("with_torch.py", ("torch",)),
    "PyTorch, compiled": Program("with_torch.py", ("torch", "triton"), ("--compile",)),
    "JAX": Program("with_jax.py", ("jax", "jax_cuda13_plugin")),
}
GREEDY = (100, 64, 0)
READY_S = 60.0
"""Compilers run before a program is ready."""
BEGIN_S = 2.5
"""Until the greedy program is at work."""
PERIOD_MS = 10
HANGS_S = 10.0
"""A program that takes so much longer than its rounds hangs."""
ALONE, OURS_ALONE = "alone", "Headway, alone"
SLICED, OURS = stages.TIME_SLICED.title, stages.OVERLAP.title
PHASES = (ALONE, OURS_ALONE, SLICED, OURS)


@dataclass
class Found:
    """What is known of one framework."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    passed: int = 0
    free: int = 0
    lookups: str = ""
    problem: str = ""


def missing(program: Program) -> list[str]:
    return [name for name in program.modules if not _is_there(name)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def summary(lookups: str) -> str:
    """Which ways a program took to the driver, and which work nobody waits for."""
    lines = [line.split(" ") for line in lookups.splitlines()]
    ways = Counter(way for _, state, way, *_ in lines if state == "hooked")
    past = sorted({name for _, state, _, name, *_ in lines if state == "passed"})
    said = ", ".join(f"{way} {count}" for way, count in ways.items()) or "linked"
    return f"{said}; not hooked: {', '.join(past)}" if past else said


class Cast:
    """Every program twice: as it is on one stage, under Headway on the other."""

    def __init__(self, plain: Stage, managed: Stage, folder: Path, rounds: int) -> None:
        self.plain, self.managed, self.folder = plain, managed, folder
        self.rounds = rounds
        self.found: dict[str, Found] = {}
        self.actors: dict[tuple[str, bool], Told] = {}

    def start(self, programs: dict[str, Program]) -> None:
        for title, program in programs.items():
            self.found[title] = Found()
            if absent := missing(program):
                self.found[title].problem = f"not installed here: {', '.join(absent)}"
                continue
            numbers = ["--rounds", str(self.rounds), "--period-ms", str(PERIOD_MS)]
            command = [sys.executable, str(FOLDER / program.file), *program.options, *numbers]
            prefix = stages.run_as(program.file, "--priority", "9", "--policy", "overlap")
            lookups = {"HEADWAY_LOOKUPS": str(self._lookups(title))}
            self.actors[title, False] = Told(self.plain, command, {})
            self.actors[title, True] = Told(self.managed, [*prefix, *command], lookups)
        end = time.monotonic() + READY_S
        for (title, managed), actor in self.actors.items():
            if self.found[title].problem:
                continue
            with self._problems(title, "under Headway" if managed else "as it is"):
                actor.heard(end - time.monotonic())

    def _lookups(self, title: str) -> Path:
        return self.folder / f"{list(PROGRAMS).index(title)}.lookups"

    @contextlib.contextmanager
    def _problems(self, title: str, where: str) -> Iterator[None]:
        """A program that fails is out, and the others go on."""
        try:
            yield
        except (Failed, OSError, ValueError) as error:
            self.found[title].problem = f"failed ({where}): {error}"
            print(f"{title}: {self.found[title].problem}", flush=True)
            for managed in (False, True):  # it might hold the GPU
                self.actors[title, managed].end()

    def play(self, phase: str, *, managed: bool) -> None:
        limit_s = self.rounds * PERIOD_MS / 1000 + HANGS_S
        for (title, is_managed), actor in self.actors.items():
            found = self.found[title]
            if is_managed != managed or found.problem:
                continue
            with self._problems(title, phase):
                found.rows[phase] = actor.go(limit_s)
                if managed:
                    self._count(title, actor.pid)
                print(title, phase, found.rows[phase], flush=True)

    def _count(self, title: str, pid: int) -> None:
        try:
            channels = self.managed.status()["channels"]
        except (subprocess.CalledProcessError, ValueError):
            return
        mine = [channel for channel in channels if channel["pid"] == pid]
        self.found[title].passed = sum(channel["passed"] for channel in mine)
        self.found[title].free = sum(channel["free"] for channel in mine)

    def end(self) -> None:
        for actor in self.actors.values():
            actor.end()
        for title, found in self.found.items():
            file = self._lookups(title)
            found.lookups = summary(file.read_text()) if file.exists() else ""


@contextlib.contextmanager
def greedy(stage: Stage, prefix: Sequence[str], seconds: float) -> Iterator[None]:
    """A CUDA program that always wants the GPU, until the block ends."""
    command = [*prefix, *stage.app("lp", *GREEDY, seconds)]
    process = stage.start(command)
    try:
        time.sleep(BEGIN_S)
        if process.poll() is not None:
            raise Failed(f"the greedy program ended: {process.communicate()[1][-300:]}")
        yield
    finally:
        process.kill()
        process.communicate()


def play(stage: Stage, programs: dict[str, Program], rounds: int) -> dict[str, Found]:
    with (
        tempfile.TemporaryDirectory(prefix="headway-f-") as name,
        stages.daemon(stage, *stages.SPINS) as managed,
    ):
        cast = Cast(stage, managed, Path(name), rounds)
        try:
            cast.start(programs)
            cast.play(ALONE, managed=False)
            cast.play(OURS_ALONE, managed=True)
            with greedy(stage, [], stages.LATE_S * len(programs)):
                cast.play(SLICED, managed=False)
            with greedy(managed, stages.OVERLAP.greedy(), stages.LATE_S * len(programs)):
                cast.play(OURS, managed=True)
        finally:
            cast.end()
    return cast.found


def measure(stage: Stage, quick: bool) -> Outcome:
    found = play(stage, PROGRAMS, 100 if quick else 200)
    data = {title: vars(one) for title, one in found.items()}
    return Outcome(tables=[_times(found), _ways(found)], goals=_goals(found), data=data)


def _times(found: dict[str, Found]) -> Table:
    lines = []
    for title, one in found.items():
        cells = [_cell(one.rows.get(phase)) for phase in PHASES]
        lines.append([title, *cells, one.problem or _result(one)])
    title = f"a round every {PERIOD_MS} ms, p50 / p99 in us; the last two beside a greedy program"
    return Table(title, ["", *PHASES, "results"], lines)


def _cell(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['p50_us']:.0f} / {row['p99_us']:.0f}"


def _hashes(one: Found) -> set[str]:
    return {str(row["hash"]) for row in one.rows.values()}


def _result(one: Found) -> str:
    hashes = _hashes(one)
    return f"the same ({min(hashes)})" if len(hashes) == 1 else f"**{len(hashes)} different**"


def _ways(found: dict[str, Found]) -> Table:
    there = {title: one for title, one in found.items() if one.rows}
    lines = [[t, str(one.passed), str(one.free), one.lookups] for t, one in there.items()]
    head = ["under Headway", "passed the gate", "went ungated", "how the driver is reached"]
    return Table("", head, lines)


def _goals(found: dict[str, Found]) -> list[Goal]:
    goals = []
    for title, one in found.items():
        if not one.rows:
            continue
        goals.append(Goal(f"{title}: different results", len(_hashes(one)), 1))
        goals.append(Goal(f"{title}: passed the gate", one.passed, 1, at_least=True))
        if {SLICED, OURS} <= set(one.rows):
            what = f"{title}: p99 at most the time-sliced one, us"
            goals.append(Goal(what, one.rows[OURS]["p99_us"], one.rows[SLICED]["p99_us"]))
    failed = [t for t, one in found.items() if one.problem.startswith("failed")]
    goals.append(Goal("programs that failed", len(failed), 0))
    return goals
