"""Real GL programs on a software GPU under Xvfb: how tests start and measure them."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from headway.live.identity import launcher

PROGRAMS = Path(__file__).parent.parent / "programs"
HEADWAY = str(Path(sys.executable).with_name("headway"))
GPU_CPU = (os.cpu_count() or 1) - 1
"""The CPU that plays the GPU: what `headway run --software-gpu` takes."""
LIBRARIES = {
    "bomb": ["-lEGL", "-lGLESv2"],
    "frames": ["-lEGL", "-lGLESv2", "-lpthread", "-ldl"],
    "gates": ["-lEGL", "-lGLESv2"],
    "glx": ["-lGL", "-lX11"],
    "ends": ["-lEGL", "-lGLESv2", "-lpthread"],
    "count": ["-ldl"],
    "deepbind": ["-rdynamic", "-ldl"],
    "late": ["-ldl"],
    "locked": [],
    "nulls": ["-lEGL", "-lGLESv2", "-ldl"],
    "static": ["-static"],
    "varied": ["-lEGL", "-lGLESv2"],
    "widget": ["-lEGL", "-lGLESv2", "-lX11"],
    "xclient": ["-lX11"],
}
PRELOADED = ("count", "late")
NEEDED = (
    "Xvfb",
    "Xephyr",
    "gcc",
    "es2gears_x11",
    "glxgears",
    "glmark2-es2",
    "mplayer",
    "taskset",
)


def missing() -> list[str]:
    """What these tests need and this machine does not have."""
    return [name for name in NEEDED if shutil.which(name) is None]


def wait_until(
    condition: Callable[[], bool], what: str, *, seconds: float = 20.0, step: float = 0.01
) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{seconds:g} s went by without {what}"
        time.sleep(step)


@contextlib.contextmanager
def x_server(
    *command: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """An X server on a free display: its process and its DISPLAY."""
    reader, writer = os.pipe()
    server = subprocess.Popen(
        [*command, "-displayfd", str(writer), "-noreset"],
        pass_fds=[writer],
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as answer:
            number = answer.readline().strip()
        assert number, f"{command} did not start"
        yield server, f":{number}"
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def xvfb(*options: str) -> Iterator[str]:
    """An X server, kept off the CPU that plays the GPU; its DISPLAY."""
    with x_server("Xvfb", *options, "-screen", "0", "1280x1024x24") as (server, display):
        if GPU_CPU > 0:
            os.sched_setaffinity(server.pid, set(range(GPU_CPU)))
        yield display


def compile_programs(folder: Path) -> Path:
    """Build everything in tests/programs."""
    for source in sorted(PROGRAMS.glob("*.c")):
        shared = ["-shared", "-fPIC"] if source.stem in PRELOADED else []
        target = folder / (f"{source.stem}.so" if shared else source.stem)
        compile_program(source, target, *shared, *LIBRARIES[source.stem])
    compile_program(PROGRAMS / "frames.c", folder / "unlinked", "-DUNLINKED", "-lpthread", "-ldl")
    return folder


def compile_program(source: Path, target: Path, *options: str) -> None:
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(target), str(source), *options], check=True)


@contextlib.contextmanager
def machine_alone() -> Iterator[None]:
    """There is one software GPU: whoever measures on it waits for the others to finish."""
    with (Path(tempfile.gettempdir()) / f"headway-gl-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class Program:
    """A program that runs, and the frames it has shown."""

    process: subprocess.Popen[str]
    counter: Path

    def frames(self) -> int:
        try:
            data = self.counter.read_bytes()
        except FileNotFoundError:
            return 0
        return int(struct.unpack_from("<Q", data)[0]) if len(data) >= 8 else 0

    def frame_rate(self, seconds: float, *, warm_up: float = 0.5) -> float:
        return frame_rates([self], seconds, warm_up=warm_up)[0]

    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self, number: int = signal.SIGTERM) -> int:
        if not self.ended():
            self.process.send_signal(number)
        return self.process.wait(timeout=20)


def frame_rates(
    programs: Sequence[Program], seconds: float, *, warm_up: float = 0.5
) -> list[float]:
    """Frames per second of programs that run at the same time."""
    for program in programs:
        wait_until(lambda p=program: p.frames() > 0 or p.ended(), "a first frame")  # type: ignore[misc]
        assert not program.ended(), "the program ended before it was measured"
    time.sleep(warm_up)
    before, start = [program.frames() for program in programs], time.monotonic()
    time.sleep(seconds)  # it is the time that is measured
    took = time.monotonic() - start
    return [(p.frames() - was) / took for p, was in zip(programs, before, strict=True)]


@dataclass
class Stage:
    """A display, the built programs and a private Headway folder."""

    display: str
    built: Path
    folder: Path
    programs: list[Program] = field(default_factory=list)
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)
    complaint: str = ""
    """Why `headway status` last failed."""

    def environment(self, **more: str) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADWAY_")}
        env |= {"DISPLAY": self.display, "HEADWAY_DIR": str(self.folder)}
        env |= {"MPLAYER_HOME": str(self.folder)}  # mplayer writes one, and ours is none of its
        return env | {"LIBGL_ALWAYS_SOFTWARE": "1", **more}

    def unmanaged(self) -> dict[str, str]:
        """One device as under --software-gpu, with nobody at the gate."""
        preload = f"{launcher.library()}:{self.built / 'count.so'}"
        device = {"LP_NUM_THREADS": "1", "HEADWAY_SOFTWARE_GPU": str(GPU_CPU)}
        return self.environment(LD_PRELOAD=preload, **device)

    def run(
        self, *command: str, options: Sequence[str] = (), headway: bool = True, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, under Headway or not."""
        prefix = [HEADWAY, "run", "--software-gpu", *options, "--"] if headway else []
        env = self.environment(**more.pop("env", {}))
        settings: dict[str, Any] = {"text": True, "capture_output": True, "timeout": 60, **more}
        return subprocess.run([*prefix, *command], env=env, check=False, **settings)

    def start(
        self,
        *command: str,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        stdout: int | IO[str] = subprocess.DEVNULL,
    ) -> Program:
        """Start a program under Headway, or in the given environment as it is."""
        counter = self.folder / f"frames-{len(self.programs)}"
        counter.unlink(missing_ok=True)  # what the one before showed does not count
        if env is None:
            prefix = [HEADWAY, "run", "-q", "--software-gpu", *options, "--"]
            env = self.environment(LD_PRELOAD=str(self.built / "count.so"))
        else:
            prefix = []
        process = subprocess.Popen(
            [*prefix, *command],
            env={**env, "FRAME_COUNT": str(counter)},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        program = Program(process, counter)
        self.programs.append(program)
        return program

    def daemon(self, *options: str) -> subprocess.Popen[bytes]:
        """A daemon of our own, ready to serve."""
        process = subprocess.Popen(
            [HEADWAY, "daemon", *options],
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.daemons.append(process)
        wait_until(lambda: self.status() is not None, "a daemon that answers")
        return process

    def status(self) -> dict[str, Any] | None:
        result = subprocess.run(
            [HEADWAY, "status", "--json"],
            env=self.environment(),
            check=False,
            capture_output=True,
            text=True,
        )
        self.complaint = f"exit {result.returncode}: {result.stderr}" if result.returncode else ""
        return None if result.returncode else dict(json.loads(result.stdout))

    def channels(self, name: str | None = None) -> list[dict[str, Any]]:
        """The daemon's channels, all or those of one task."""
        status = self.status() or {"channels": []}
        return [c for c in status["channels"] if name is None or c["task"].startswith(name)]

    def is_managed(self, name: str) -> bool:
        """Its groups went to the gate: the hooks fire."""
        return any(c["groups"] > 0 for c in self.channels(name))

    def stop_programs(self) -> None:
        for program in self.programs:
            program.stop(signal.SIGKILL)
        self.programs.clear()

    def close(self) -> None:
        self.stop_programs()
        for process in self.daemons:
            process.kill()
            process.wait()
        self.daemons.clear()
        subprocess.run([HEADWAY, "stop"], env=self.environment(), check=False, capture_output=True)


@contextlib.contextmanager
def stage(display: str, built: Path) -> Iterator[Stage]:
    # Not pytest's own folder: the name of a socket may have 107 characters only.
    with tempfile.TemporaryDirectory(prefix="headway-gl-") as name:
        folder = Path(name)
        made = Stage(display, built, folder)
        try:
            with machine_alone():
                yield made
        finally:
            made.close()


@contextlib.contextmanager
def new_stage() -> Iterator[Stage]:
    """Display, programs and folder, all of them new: for a measurement of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        xvfb() as display,
        stage(display, compile_programs(Path(folder))) as made,
    ):
        yield made


@functools.cache
def runs_as_one_device() -> bool:
    """With one CPU the GPU and everything else share it, and nothing can be measured."""
    return (os.cpu_count() or 1) > 1


GEARS = "es2gears_x11"
BOMB_SECONDS = "60"
TENTH = "2.5ms/25ms"
"""A tenth of the GPU for all bombs together; TimeGraph divides it among five as well (§6.1)."""


@dataclass(frozen=True)
class Case:
    """The important program beside some bombs."""

    title: str
    bombs: int = 0
    policy: str | None = "prt"
    """None: nobody at the gate."""
    reserve: tuple[str, ...] = ()
    """Options that give the bombs a budget."""
    own: tuple[str, ...] = ()
    """Options of the important program."""


def cases(bombs: int) -> list[Case]:
    """What an important program can meet beside so many bombs."""
    part = TENTH if bombs == 1 else f"{2.5 / bombs:g}ms/25ms"
    shared = ("--reserve", TENTH, "--shared", "all")
    return [
        Case("unmanaged", bombs, None),
        Case("PRT", bombs),
        Case("HT", bombs, "ht"),
        Case(f"PRT, bombs in PE {part}", bombs, "prt", ("--reserve", f"{part}:pe")),
        Case(f"PRT, bombs in AE {part}", bombs, "prt", ("--reserve", f"{part}:ae")),
        Case(f"PRT, bombs share {TENTH}", bombs, "prt", shared),
    ]


def start_rivals(stage: Stage, case: Case, command: Sequence[str] = ()) -> None:
    """The bombs, or others in their place, at work."""
    command = command or (str(stage.built / "bomb"), BOMB_SECONDS)
    names = [f"bomb{number}" for number in range(case.bombs)]
    for name in names:
        if case.policy is None:
            stage.start(*command, env=stage.unmanaged())
        else:
            low = ("--name", name, "--priority", "1", "--policy", case.policy, *case.reserve)
            stage.start(*command, options=low)
    if case.policy is not None:
        wait_until(lambda: all(map(stage.is_managed, names)), "all bombs at the gate")


def start_important(stage: Stage, case: Case, command: Sequence[str] = (GEARS,)) -> Program:
    if case.policy is None:
        return stage.start(*command, env=stage.unmanaged())
    high = ("--name", "important", "--priority", "9", "--policy", case.policy, *case.own)
    return stage.start(*command, options=high)


def measure(stage: Stage, case: Case, seconds: float) -> float:
    """Frames per second of the important program in such company."""
    try:
        start_rivals(stage, case)
        return start_important(stage, case).frame_rate(seconds)
    finally:
        stage.stop_programs()


def gate_rate(output: str) -> float:
    """Groups per second, from what tests/programs/gates.c says."""
    return 1e9 / number_in(r"(\d+) ns per group", output)


def number_in(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, f"expected {pattern!r} in the program's output, found:\n{text}"
    return float(found[1])


def table(rates: Mapping[str, float], alone: float) -> str:
    """Frame rates, and what part of alone they are."""
    width = max(map(len, rates))
    lines = [
        f"{title:{width}}  {rate:7.0f} fps  {rate / alone:5.2f}" for title, rate in rates.items()
    ]
    return "\n".join([f"{'alone':{width}}  {alone:7.0f} fps   1.00", *lines])
