"""CUDA programs on the software driver: how tests build, start and measure them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.live.identity import launcher
from tests.integration.daemon_client import PATIENCE_S, DaemonProcess, wait_until

GOES_ON_S = 8.0
"""Generous: what is waited for takes some tenths of a second at most."""
HEADWAY = str(Path(sys.executable).with_name("headway"))
SOURCES = Path(__file__).parent.parent / "programs" / "cuda"
DRIVER = ("driver", "engine", "gpu", "green", "launch", "lookup", "stream")
PROGRAMS = ("checks", "confined", "cudaapp", "fates", "gpus")
Env = Mapping[str, object]
GCC = ("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror")


def compile_driver(folder: Path) -> Path:
    """Build libcuda.so.1, bound to itself: its look-ups must not find an interposer's wrappers."""
    library = folder / "libcuda.so.1"
    shared = ("-shared", "-fPIC", "-fvisibility=hidden")
    linker = ("-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,defs")
    sources = [str(SOURCES / f"{name}.c") for name in DRIVER]
    command = [*GCC, *shared, *linker, "-o", str(library), *sources, "-lpthread"]
    subprocess.run(command, check=True)
    return library


def compile_all(folder: Path) -> Path:
    """Build the driver and each program twice: linked with the driver, and one that looks it up."""
    library = str(compile_driver(folder))
    for name in PROGRAMS:
        source, target = str(SOURCES / f"{name}.c"), str(folder / name)
        subprocess.run([*GCC, "-o", target, source, "-ldl", "-lm", "-lpthread"], check=True)
        linked = [*GCC, "-DLINKED", "-o", f"{target}-linked", source, library, "-lm", "-lpthread"]
        subprocess.run(linked, check=True)
    return folder


@dataclass(frozen=True)
class Gpu:
    """A software GPU: processes given the same one compete for it."""

    built: Path
    file: Path

    def environment(self, env: Env | None = None) -> dict[str, str]:
        ours = ("SOFTCUDA_", "HEADWAY_", "CUDA_VISIBLE_DEVICES")
        base = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        base |= {"LD_LIBRARY_PATH": str(self.built), "SOFTCUDA_GPU": str(self.file)}
        return base | {name: str(value) for name, value in (env or {}).items()}

    def command(self, program: str, *arguments: object) -> list[str]:
        return [str(self.built / program), *map(str, arguments)]

    def start(
        self, program: str, *arguments: object, env: Env | None = None
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(program, *arguments),
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, program: str, *arguments: object, env: Env | None = None
    ) -> subprocess.CompletedProcess[str]:
        return finish(self.start(program, *arguments, env=env))

    def app(
        self, *arguments: object, program: str = "cudaapp", env: Env | None = None
    ) -> dict[str, Any]:
        """What cudaapp measured."""
        return answer(self.run(program, *arguments, env=env))


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Wait for a program that was started."""
    with process:
        try:
            out, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def answer(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


# -- under Headway -------------------------------------------------------------------------------


@dataclass
class Program:
    """A program under Headway: it says lines, and does one thing for each line it is told."""

    process: subprocess.Popen[str]
    name: str
    said: bytes = b""
    """What was not listened to yet."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def heard(self, timeout_s: float = PATIENCE_S) -> str:
        """The next line it says, without waiting for ever."""
        assert self.process.stdout is not None
        end = time.monotonic() + timeout_s
        while b"\n" not in self.said:
            left_s = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left_s)
            assert ready, f"{self.name} said nothing for {timeout_s:g} s"
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, f"{self.name} ended: {self.process.communicate()}"
            self.said += more
        line, _, self.said = self.said.partition(b"\n")
        return line.decode().strip()

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        for word in words:
            self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def do(self, *words: str) -> list[str]:
        """Have it do these, one after the other; what it says to each."""
        answers = []
        for word in words:
            self.tell(word)
            answers.append(self.heard())
        return answers

    def finish(self) -> subprocess.CompletedProcess[str]:
        return finish(self.process)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(PATIENCE_S)
        elif number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def is_alive(self) -> bool:
        return self.process.poll() is None


@dataclass
class Managed:
    """A software GPU and a real daemon that decides who uses it."""

    gpu: Gpu
    daemon: DaemonProcess
    programs: list[Program] = field(default_factory=list)

    def start(
        self, program: str, *arguments: object, options: Sequence[str] = (), env: Env | None = None
    ) -> Program:
        """By `headway run`, under a name of its own."""
        name = f"p{len(self.programs)}"
        prefix = [HEADWAY, "run", "-q", "--no-daemon", "--name", name, *options, "--"]
        environment = self.gpu.environment(env) | {"HEADWAY_DIR": str(self.daemon.folder)}
        return self._start([*prefix, *self.gpu.command(program, *arguments)], environment, name)

    def start_directly(
        self, program: str, *arguments: object, env: Env | None = None, **wishes: str
    ) -> Program:
        """As `headway run` does it, without the time it takes: for many programs."""
        name = f"p{len(self.programs)}"
        token = self.daemon.ask(do="run", name=name, **wishes)["token"]
        given = launcher.environment(self.daemon.folder, token, software_gpu=None)
        ours = {k: v for k, v in given.items() if k.startswith(("HEADWAY_", "LD_PRELOAD"))}
        environment = self.gpu.environment(env) | ours
        return self._start(self.gpu.command(program, *arguments), environment, name)

    def _start(self, command: list[str], environment: dict[str, str], name: str) -> Program:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        program = Program(process, name)
        self.programs.append(program)
        return program

    def run(
        self, program: str, *arguments: object, options: Sequence[str] = (), env: Env | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self.start(program, *arguments, options=options, env=env).finish()

    def greedy(self, *options: str, kernel_us: int = 500, seconds: int = 60) -> Program:
        """A program that always wants the GPU, and has it by now."""
        program = self.start("cudaapp", "lp", kernel_us, 10, 0, seconds, options=options)
        wait_until(lambda: self.passed(program) > 0, "the greedy program has the GPU")
        return program

    def entry(self, program: Program) -> dict[str, Any]:
        """What the daemon says of it."""
        found = self._entries(program)
        assert len(found) == 1, found
        return found[0]

    def _entries(self, program: Program) -> list[dict[str, Any]]:
        return [c for c in self.daemon.status()["channels"] if c["pid"] == program.pid]

    def passed(self, program: Program) -> int:
        """What went through its gate; before the daemon knows it: nothing."""
        return sum(int(c["passed"]) for c in self._entries(program))

    def goes_on(self, program: Program) -> None:
        """It gets some more work through."""
        before = self.passed(program)
        wait_until(lambda: self.passed(program) > before + 20, f"{program.name} goes on", GOES_ON_S)

    def close(self) -> None:
        for program in self.programs:
            program.process.kill()
            program.process.wait()
            for pipe in (program.process.stdin, program.process.stdout, program.process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@contextlib.contextmanager
def managed(gpu: Gpu, folder: Path, *options: str, module: str = "headway") -> Iterator[Managed]:
    """A daemon and programs that end with the block. The software GPU plays an H200."""
    daemon = DaemonProcess(folder, "--profile", "h200", *options, module=module)
    made = Managed(gpu, daemon)
    try:
        yield made
    finally:
        made.close()
        made.daemon.end()
