"""libETP's experiments on this machine's GPU: the scenes run, and cost models judge their groups.

A daemon without leases records `examples/libetp/scenes.c`, so every group is asked for, measured
and recorded with its features. A program's shaders are calibrated before it runs, as libETP does
(its section IV-E); history, libETP's model and ours then predict each group by what was known.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from headway.engine.cost_models import CostModel
from headway.engine.cost_models.adaptive import Adaptive
from headway.engine.cost_models.history import History
from headway.engine.cost_models.libetp import LibEtp
from headway.live.api import client
from headway.live.devices import calibrations
from headway.live.devices.discovery import nvidia_gpus
from headway.sim.papers.libetp import PROGRAMS, FigureResult, LibEtpFigure, Measured
from headway.trace.predictions import FEWEST, Observed, groups_of, judge
from headway.view.errors import UserError
from headway.view.traces import TraceError, read_events

SECONDS: Final = 10.0
"""How long a program runs, unless it is told."""
FLUSHES, SOFTWARE_FLUSHES = 1_000_000, 100_000
"""The paper's number (section VI-B); a tenth where a CPU plays the GPU."""
SEED: Final = "1"
GROUPS: Final = 10_000
"""The paper's number of groups (section VI-C)."""
SOFTWARE_CLEARS: Final = 30
"""Clears of a group where a CPU plays the GPU, in place of the paper's 300: a group of these would
take a second."""
CLEARS: Final = ("flush", "clears", "random", "contexts")
"""What draws nothing, so has no shaders to calibrate."""
BEGINNING: Final = 10
"""Groups that are not judged: the paper's numbers hold "after OpenGL initialization"."""
ATTEMPTS: Final = 6
"""Calibrations of a device that others use at times, before it is taken to be busy."""
RENDERERS: Final = Path("/dev/dri")
"""Where the kernel's drivers show GPUs; without one a CPU plays the GPU."""
START_S: Final = 20.0
LOOK_S: Final = 0.02
RECORDS: Final = 1_000_000
"""History's table is as large as the paper's, which has no bound."""


def built(folder: Path, examples: Path) -> Path:
    """The scenes, made by the C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise UserError("--live: no C compiler (cc), which builds the scenes, is on the PATH")
    program, source = folder / "scenes", examples / "libetp" / "scenes.c"
    libraries = ["-lEGL", "-lGLESv2", "-lm"]
    command = [compiler, "-O2", "-o", str(program), str(source), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = " ".join(done.stderr.split())[:300]
        raise UserError(
            f"--live: {compiler} could not build the scenes, which need the headers of EGL and"
            f" OpenGL ES 2.0 (Debian: libgles-dev, libegl-dev): {said}"
        )
    return program


@contextlib.contextmanager
def opened(
    examples: Callable[[], Path], *, seconds: float | None = None, software_gpu: bool = False
) -> Iterator[LiveRuns]:
    """The scenes, with a folder of their own for what is calibrated, for as long as the block."""
    with tempfile.TemporaryDirectory(prefix="hw-libetp-") as name:
        folder = Path(name)
        software = software_gpu or not (nvidia_gpus() or any(RENDERERS.glob("renderD*")))
        yield LiveRuns(built(folder, examples()), folder, seconds, software)


class LiveRuns:
    """Runs what figures ask for on this machine's GPU."""

    def __init__(
        self, program: Path, folder: Path, seconds: float | None, software_gpu: bool
    ) -> None:
        self._program = program
        self._folder = folder
        self._seconds = seconds
        self._software = software_gpu
        self._words = ("--software-gpu",) if software_gpu else ()
        self._environment = {
            **os.environ,
            "HEADWAY_DIR": str(folder / "run"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def run(self, figure: LibEtpFigure, told: Callable[[str, str], None]) -> FigureResult:
        """Run a figure's programs, and judge its claims."""
        results = {}
        for mode in PROGRAMS[figure.id]:
            told(figure.id, f"{mode}, calibrating")
            models = self.calibrated(mode)
            told(figure.id, mode)
            results[mode] = self.judged(mode, self.recorded(mode), models)
        return FigureResult(figure, results, figure.claims(results))

    def calibrated(self, mode: str) -> Mapping[str, CostModel]:
        """The cost models, where a calibration of the program's shaders has them begin."""
        program = [] if mode in CLEARS else ["--", str(self._program), mode, "1"]
        for attempt in range(ATTEMPTS):
            done = subprocess.run(  # noqa: S603 - ourselves
                _headway("calibrate", "gl", *self._words, "--json", *program),
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if not done.returncode:
                break
            if "busy" not in done.stderr or attempt == ATTEMPTS - 1:
                raise UserError(f"--live: {_last(done.stderr) or 'headway calibrate gl ended'}")
        file = calibrations.path(Path(self._environment["XDG_STATE_HOME"]))
        last = list(calibrations.load(file).values())[-1]
        models = (History(RECORDS), LibEtp(last), Adaptive(start=last.start()))
        return {model.name: model for model in models}

    def recorded(self, mode: str) -> list[Observed]:
        """The program's groups, as its daemon measured them."""
        most = GROUPS
        if mode == "flush":
            most = SOFTWARE_FLUSHES if self._software else FLUSHES
        seconds = self._seconds or (0.0 if mode == "flush" else SECONDS)
        command = [str(self._program), mode, f"{seconds:g}", str(most), SEED]
        if self._software:
            command.append(str(SOFTWARE_CLEARS))
        trace = self._folder / f"{mode}.pftrace"
        with self._daemon("--no-leases", "--trace", str(trace)):
            done = subprocess.run(  # noqa: S603 - ourselves
                _headway(
                    "run", "-q", *self._words, "--name", mode, "--predict", "adaptive", "--",
                    *command,
                ),
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )  # fmt: skip
        if done.returncode:
            raise UserError(f"--live: scenes {mode}: {_last(done.stderr) or 'ended'}")
        try:
            tasks = groups_of(read_events(trace))
        except TraceError as error:
            raise UserError(f"--live: {error}") from None
        found = max(tasks.values(), key=len, default=[])
        if len(found) < BEGINNING + FEWEST:
            raise UserError(
                f"--live: scenes {mode}: found {len(found)} groups, expected"
                f" {BEGINNING + FEWEST} or more; run it for longer with --seconds"
            )
        return found[BEGINNING:]

    def judged(
        self, mode: str, groups: list[Observed], models: Mapping[str, CostModel]
    ) -> Measured:
        verdicts = judge({mode: groups}, models, learning=0.0)
        by_model = {v.model: v for v in verdicts if v.model in models}
        missing = models.keys() - by_model.keys()
        if missing:
            raise UserError(f"--live: scenes {mode}: its groups came without features")
        return Measured([group.took_ns for group in groups], by_model)

    @contextlib.contextmanager
    def _daemon(self, *words: str) -> Iterator[None]:
        """A daemon of our own, and what it recorded written at the end of the block."""
        folder = Path(self._environment["HEADWAY_DIR"])
        process = subprocess.Popen(  # noqa: S603 - ourselves
            _headway("daemon", *self._words, *words),
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            end_s = time.monotonic() + START_S
            while not client.is_running(folder):
                if process.poll() is not None or time.monotonic() > end_s:
                    process.kill()
                    said = process.communicate()[1]
                    raise UserError(f"--live: {_last(said) or 'headway daemon does not answer'}")
                time.sleep(LOOK_S)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def _headway(*words: str) -> list[str]:
    return [sys.executable, "-m", "headway", *words]


def _last(said: str) -> str:
    """The last line that a command of ours said."""
    lines = said.splitlines()
    return lines[-1] if lines else ""
