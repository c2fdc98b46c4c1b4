"""CudaMon's experiments on a real GPU: the PRNG sample under MPS, and the daemon's controllers.

The sample (`examples/prng`) stands for both tasks. Numbers of blocks are scaled to the GPU's
multiprocessors, and the kernel's iterations until it takes alone what the report's takes, so that
the report's claims can be judged. There is no detector here: only the PRNG kernels.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.engine.units import parse_duration
from headway.live.api import client
from headway.live.devices.mps import Mps
from headway.live.launched.program import PERCENTAGE
from headway.sim.cudamon import CudaMonFigure, FigureResult, Measured, Series
from headway.sim.cudamon.controlling import BETTER, DIRECT, FEW, FEW_BETTER
from headway.sim.cudamon.partitions import IN_ALL, IN_ONE
from headway.sim.cudamon.workloads import (
    ALONE,
    BLOCKS,
    DEADLINE,
    HIGH,
    LOW,
    MULTIPROCESSORS,
    THREADS,
)
from headway.view.errors import UserError

ALONE_MS, DEADLINE_MS = (parse_duration(text) / 1e6 for text in (ALONE, DEADLINE))
FIRST_ITERATIONS = 20_000
"""Of the kernel by which the others are calibrated: the shorter it is the larger the error."""
JOBS, FEW_JOBS = 300, 5
RUN_S, RESTARTS_S = 10.0, 30.0
LOOK_S = 0.02
START_S = 20.0
"""A program that has not done a job by then does not work."""


def built(folder: Path, examples: Path) -> Path:
    """The PRNG sample, made by nvcc."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise UserError(
            "--live: nvcc, which builds the PRNG sample, is not on the PATH; give a program that"
            " was built elsewhere with --prng (its source: headway examples prng/prng.cu)"
        )
    program = folder / "prng"
    command = [nvcc, "-O2", "-arch=native", "-o", str(program), str(examples / "prng" / "prng.cu")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise UserError(
            f"--live: nvcc could not build the PRNG sample: {done.stderr.strip()[:300]}"
        )
    return program


@contextlib.contextmanager
def opened(prng: Path | None, examples: Callable[[], Path]) -> Iterator[LiveRuns]:
    """The sample and a daemon with an MPS server of its own, for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="hw-cudamon-") as name:
        folder = Path(name)
        program = built(folder, examples()) if prng is None else prng
        with _daemon(folder / "run"):
            yield LiveRuns(program, folder)


@contextlib.contextmanager
def _daemon(folder: Path) -> Iterator[None]:
    environment = {**os.environ, "HEADWAY_DIR": str(folder)}
    words = ["daemon", "--mps"]
    process = subprocess.Popen(  # noqa: S603 - ourselves
        _headway(*words), env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        end_s = time.monotonic() + START_S
        while not client.is_running(folder):
            if process.poll() is not None or time.monotonic() > end_s:
                raise UserError(f"--live: {_last_line(process)}")
            time.sleep(LOOK_S)
        yield
    finally:
        process.terminate()
        process.communicate()


def _last_line(process: subprocess.Popen[str]) -> str:
    """Why a daemon has not started."""
    if process.poll() is None or process.stderr is None:
        return f"headway daemon --mps does not answer within {START_S:g} s"
    lines = process.stderr.read().splitlines()
    return lines[-1] if lines else "headway daemon --mps ended, and said nothing"


def _headway(*words: str) -> list[str]:
    return [sys.executable, "-m", "headway", *words]


class LiveRuns:
    """Runs what figures ask for on this machine's GPU."""

    def __init__(self, prng: Path, folder: Path) -> None:
        self._prng = prng
        self._folder = folder
        self._directory = folder / "run"
        self._environment = {**os.environ, "HEADWAY_DIR": str(self._directory)}
        self._begun_s = 0.0
        self._done: dict[str, Measured] = {}
        self.multiprocessors = self._ask_multiprocessors()
        self.blocks = BLOCKS * self.multiprocessors // MULTIPROCESSORS or 1
        self.iterations = self._calibrated()

    def run(self, figure: CudaMonFigure, told: Callable[[str, str], None]) -> FigureResult:
        """Run the variants of a figure that a GPU can show, and judge its claims."""
        results = {}
        for name, go in self.variants(figure.id).items():
            if name not in self._done or figure.id.removeprefix("cudamon/") in ("fig4", "fig5"):
                told(figure.id, name)
                self._done[name] = go()
            results[name] = self._done[name]
        return FigureResult(figure, results, figure.claims(results))

    def variants(self, figure: str) -> dict[str, Callable[[], Measured]]:
        """What a figure needs, and how each of it is run."""
        if figure == "cudamon/fig4":
            return {str(n): lambda n=n: self._alone(n, n) for n in IN_ONE}  # type: ignore[misc]
        if figure == "cudamon/fig5":
            return {str(n): lambda n=n: self._alone(self._scaled(n)) for n in IN_ALL}  # type: ignore[misc]
        if figure == "cudamon/manual":
            return {
                "alone": lambda: self._by_hand({HIGH: 100}),
                "100/100": lambda: self._by_hand({HIGH: 100, LOW: 100}),
                "100/20": lambda: self._by_hand({HIGH: 100, LOW: 20}),
            }
        return {
            FEW: lambda: self._launched("aimd"),
            DIRECT: lambda: self._under_the_gate("aimd"),
            BETTER: lambda: self._under_the_gate("bisection"),
            FEW_BETTER: lambda: self._launched("bisection"),
        }

    def _scaled(self, blocks: int) -> int:
        """Threads of as many blocks a multiprocessor as there are on a V100."""
        return THREADS * -(-blocks * self.multiprocessors // MULTIPROCESSORS)

    # -- the sample ------------------------------------------------------------------------------

    def _ask_multiprocessors(self) -> int:
        said = self._output("--info").split()
        if not said or not said[0].isdigit():
            raise UserError(
                f"--prng {self._prng}: found {said}, expected the number that --info says"
            )
        return int(said[0])

    def _output(self, *words: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                [str(self._prng), *words],
                env=self._mps(100),
                capture_output=True,
                text=True,
                check=False,
            )
        except OSError as error:
            raise UserError(f"--prng {self._prng}: {error.strerror}") from None
        if done.returncode:
            said = " ".join(done.stderr.split())[-200:]
            raise UserError(f"--prng {self._prng}: exit code {done.returncode}: {said}")
        return done.stdout

    def _mps(self, share: int) -> dict[str, str]:
        return {**os.environ, **Mps(self._directory).environment, PERCENTAGE: str(share)}

    def _words(
        self, seeds: int, iterations: int, jobs: int = 0, threads: int = THREADS
    ) -> list[str]:
        numbers = {
            "--seeds": seeds,
            "--threads": threads,
            "--iterations": iterations,
            "--jobs": jobs,
            "--period-ms": 0,
            "--deadline-ms": DEADLINE_MS,
            "--times": 1,
        }
        return [text for key, value in numbers.items() for text in (key, f"{value:g}")]

    def _calibrated(self) -> int:
        """Iterations with which a kernel takes alone what the report's takes."""
        iterations = FIRST_ITERATIONS
        for _ in range(2):
            words = self._words(THREADS * self.blocks, iterations, FEW_JOBS)
            typical_ms = self._series(self._output(*words)).typical_ms
            iterations = max(1, round(iterations * ALONE_MS / typical_ms))
        return iterations

    def _series(self, said: str, shares: Sequence[tuple[float, float]] = ()) -> Series:
        """From lines such as "123.456 4.210": when a job ended, and how long it took. The first job
        loads the kernel, and does not count."""
        pairs = [line.split() for line in said.splitlines() if line.count(" ") == 1]
        jobs = [(float(at) - self._begun_s, float(ms)) for at, ms in pairs][1:]
        return Series(jobs, [ms > DEADLINE_MS for _, ms in jobs], list(shares))

    def _alone(self, seeds: int, threads: int = THREADS) -> Measured:
        words = self._words(seeds, self.iterations, FEW_JOBS, threads)
        series = self._series(self._output(*words))
        return Measured(sum(ms for _, ms in series.responses) / 1e3, {HIGH: series})

    def _by_hand(self, shares: Mapping[str, int]) -> Measured:
        """Job after job, each with its share, until the first has done enough."""
        self._begun_s = time.monotonic()
        words = self._words(THREADS * self.blocks, self.iterations)
        running = {}
        for name, share in shares.items():
            with (self._folder / name).open("w") as out:
                running[name] = subprocess.Popen(  # noqa: S603
                    [str(self._prng), *words],
                    env=self._mps(share),
                    stdout=out,
                    stderr=subprocess.DEVNULL,
                )
        self._wait_for_jobs(JOBS)
        end_s = time.monotonic()
        for process in running.values():
            process.send_signal(signal.SIGINT)
            process.wait()
        return self._collect(end_s, {}, shares)

    def _wait_for_jobs(self, jobs: int) -> None:
        end_s = time.monotonic() + START_S + jobs
        while len((self._folder / HIGH).read_text().splitlines()) < jobs:
            if time.monotonic() > end_s:
                raise UserError(f"--live: the PRNG sample has not done {jobs} jobs in time")
            time.sleep(LOOK_S)

    def _collect(
        self,
        end_s: float,
        shares: Mapping[str, list[tuple[float, float]]],
        names: Mapping[str, Any],
    ) -> Measured:
        tasks = {
            name: self._series((self._folder / name).read_text(), shares.get(name, ()))
            for name in names
        }
        return Measured(end_s - self._begun_s, tasks)

    # -- controllers -----------------------------------------------------------------------------

    def _launched(self, controller: str) -> Measured:
        """By `headway shell`: another share takes a restart."""
        words = " ".join(self._words(THREADS * self.blocks, self.iterations))
        lines = [
            f"launch {priority} --name {name} sh -c"
            f" 'exec {self._prng} {words} >> {self._folder / name}'"
            for name, priority in ((HIGH, 2), (LOW, 1))
        ]
        shell = subprocess.Popen(  # noqa: S603 - ourselves
            _headway("shell", "--no-gate", "--controller", controller),
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert shell.stdin is not None
        with self._watching(_launched_shares) as shares:
            shell.stdin.write("\n".join(lines) + "\n")
            shell.stdin.flush()
            time.sleep(RESTARTS_S)
            end_s = time.monotonic()
        shell.communicate("quit\n")
        return self._collect(end_s, shares, {HIGH: 0, LOW: 0})

    def _under_the_gate(self, controller: str) -> Measured:
        """By `headway run`: another share is there with the next launch."""
        client.ask(self._directory, {"do": "share", "act": "controller", "name": controller})
        options = {HIGH: ["--priority", "2", "--deadline", DEADLINE], LOW: ["--priority", "1"]}
        words = self._words(THREADS * self.blocks, self.iterations)
        with self._watching(_told_shares) as shares:
            running = []
            for name, own in options.items():
                with (self._folder / name).open("w") as out:
                    command = _headway("run", "-q", "--name", name, *own, "--", str(self._prng))
                    running.append(
                        subprocess.Popen(  # noqa: S603 - ourselves
                            [*command, *words],
                            env=self._environment,
                            stdout=out,
                            stderr=subprocess.DEVNULL,
                        )
                    )
            time.sleep(RUN_S)
            end_s = time.monotonic()
            for process in running:
                process.send_signal(signal.SIGINT)
                process.wait()
        return self._collect(end_s, shares, options)

    @contextlib.contextmanager
    def _watching(
        self, look: Callable[[Path], Mapping[str, float]]
    ) -> Iterator[dict[str, list[tuple[float, float]]]]:
        """Shares over time, from now on until the end of the block."""
        for name in (HIGH, LOW):
            (self._folder / name).write_text("")
        self._begun_s = time.monotonic()
        found: dict[str, list[tuple[float, float]]] = {HIGH: [], LOW: []}
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_S):
                with contextlib.suppress(client.NoDaemon, client.Refused):
                    for name, share in look(self._directory).items():
                        series = found.get(name, [])
                        if not series or series[-1][1] != share:
                            series.append((time.monotonic() - self._begun_s, share))

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            over.set()
            thread.join()


def _launched_shares(folder: Path) -> Mapping[str, float]:
    told = client.ask(folder, {"do": "share", "act": "look"})
    return {task["task"]: task["share"] / 10 for task in told["tasks"]}


def _told_shares(folder: Path) -> Mapping[str, float]:
    told = client.ask(folder, {"do": "status"})
    return {channel["name"]: channel["share_told"] / 10 for channel in told["channels"]}
