"""A GPU, the programs built for it, and ways to run them: as they are, under MPS, under Headway."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.building import ROOT, build
from benchmarks.gpu.building import Failed as Failed

START_S = 2.5
"""How long a program may take until it has a CUDA context and is ready to begin."""
LATE_S = 30.0
"""A program that is not done this long after its time hangs."""
SPINS = ("--spin", "20ms")
"""The daemon polls while programs compete: there are CPUs enough, and sleeping costs some 50 us."""


def headway(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headway", *arguments]


def run_as(name: str, *options: str) -> list[str]:
    """What goes before a program that runs under Headway."""
    return headway("run", "--require", "--name", name, *options, "--")


# -- running -------------------------------------------------------------------------------------


@dataclass
class Stage:
    """A folder with programs, and the environment they run in."""

    built: Path
    env: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    missing: dict[str, str] = field(default_factory=dict)
    """What could not be built, and why."""
    cases: tuple[str, ...] = ()
    """Of sections that have cases: which; none named are all."""
    keep: Callable[[Any], None] = lambda outcome: None
    """Given what a section has found so far, so that it is kept whatever comes."""

    def environment(self, **more: str) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), self.env.get("PYTHONPATH", "")]))
        return {**self.env, "PYTHONPATH": path, **more}

    def with_env(self, **more: str) -> Stage:
        return replace(self, env={**self.env, **more})

    def start(
        self, command: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            list(command),
            env=self.environment(**(env or {})),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def program(self, name: str, *arguments: object) -> list[str]:
        if name in self.missing:
            raise Failed(f"{name} was not built: {self.missing[name]}")
        return [str(self.built / name), *map(str, arguments)]

    def app(self, *arguments: object) -> list[str]:
        return self.program("app", *arguments)

    def together(
        self, *commands: Sequence[str], seconds: float, start_s: float = START_S
    ) -> list[dict[str, Any]]:
        """What these programs say, which all begin at the same moment."""
        at = {"START_AT": str(time.time() + start_s)}
        processes = [self.start(command, at) for command in commands]
        return finish(processes, start_s + seconds + LATE_S)

    def status(self) -> dict[str, Any]:
        done = subprocess.run(
            headway("status", "--json"), env=self.environment(), capture_output=True, check=True
        )
        return dict(json.loads(done.stdout))


def finish(processes: Sequence[subprocess.Popen[str]], timeout_s: float) -> list[dict[str, Any]]:
    """The JSON lines that programs end with; Failed if one hangs or says nothing."""
    end = time.monotonic() + timeout_s
    try:
        return [_answer(process, end - time.monotonic()) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _answer(process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    assert isinstance(process.args, list)
    program = " ".join(process.args[-7:])
    try:
        out, err = process.communicate(timeout=max(0.1, timeout_s))
    except subprocess.TimeoutExpired:
        raise Failed(f"{program}: hung") from None
    try:
        return dict(json.loads(out.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        raise Failed(f"{program}: exit {process.returncode}: {err[-600:]}") from None


@contextlib.contextmanager
def opened(built: Path | None = None) -> Iterator[Stage]:
    """A stage with its programs: built for this GPU, or those in a folder."""
    with tempfile.TemporaryDirectory(prefix="headway-gpu-") as name:
        folder = built or Path(name)
        stage = Stage(folder, missing={} if built else build(folder))
        found = subprocess.run(
            stage.app("cal"), env=stage.environment(), capture_output=True, text=True, check=True
        )
        yield stage.with_env(ITERS_PER_US=found.stdout.strip())


# -- ways to share -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How programs share the GPU."""

    title: str
    mps: bool = False
    policy: str | None = None
    """Of the important one, under Headway; None: without."""
    options: tuple[str, ...] = SPINS
    """Of Headway's daemon."""

    @contextlib.contextmanager
    def on(self, stage: Stage) -> Iterator[Stage]:
        with contextlib.ExitStack() as stack:
            at = stack.enter_context(mps(stage)) if self.mps else stage
            yield stack.enter_context(daemon(at, *self.options)) if self.policy else at

    def important(self) -> list[str]:
        if self.policy is None:
            return []
        return run_as("hp", "--priority", "9", "--policy", self.policy)

    def greedy(self) -> list[str]:
        return [] if self.policy is None else run_as("lp", "--priority", "1")


TIME_SLICED = Way("time-sliced")
MPS = Way("MPS", mps=True)
DRAIN = Way("Headway, drain", policy="prt")
OVERLAP = Way("Headway", policy="overlap")
OVERLAP_MPS = Way("Headway + MPS", mps=True, policy="overlap")


@contextlib.contextmanager
def mps(stage: Stage) -> Iterator[Stage]:
    """The same stage with an MPS daemon of its own."""
    folder = tempfile.mkdtemp(prefix="headway-mps-")
    other = stage.with_env(CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=other.environment(), check=True)
    time.sleep(1)
    try:
        yield other
    finally:
        subprocess.run(
            ["nvidia-cuda-mps-control"],
            input="quit\n",
            text=True,
            env=other.environment(),
            check=False,
        )
        time.sleep(1)
        shutil.rmtree(folder, ignore_errors=True)


class Daemon:
    """A Headway daemon in a folder of its own, that can be killed and started again."""

    def __init__(self, stage: Stage, folder: str, *options: str) -> None:
        self.stage = stage.with_env(HEADWAY_DIR=folder)
        self.options = options
        self.log = Path(folder) / "daemon.log"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Returns when it answers."""
        command, env = headway("daemon", *self.options), self.stage.environment()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        end = time.monotonic() + 10
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(subprocess.CalledProcessError):
                if self.stage.status()["pid"] == self.process.pid:
                    return self.process
            time.sleep(0.02)
        self.end()
        raise Failed(f"the daemon does not start: {self.log.read_text()[-600:]}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


@contextlib.contextmanager
def run_daemon(stage: Stage, *options: str) -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(prefix="headway-d-") as folder:
        one = Daemon(stage, folder, *options)
        try:
            yield one
        finally:
            one.end()


@contextlib.contextmanager
def daemon(stage: Stage, *options: str) -> Iterator[Stage]:
    """The same stage with a Headway daemon of its own."""
    with run_daemon(stage, *options) as one:
        yield one.stage
