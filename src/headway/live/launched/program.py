"""One launched program: how it starts, what it says on stderr, and how it is asked to end.

Nothing kills a program unless a person says so (see ending.py). Who is still there after the last
request to end is left alone, and that is said.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from headway.engine.shares import WHOLE_PERMILLE, Range, percent
from headway.live.identity.program import SHELL
from headway.live.launched import processes
from headway.live.launched.ending import Ending
from headway.live.launched.words import Words

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PATIENCE_S = 5.0
"""How long a program may take to end after each thing that is done to have it end."""


class State(Enum):
    """Where a program is in its life."""

    RUNS = "runs"
    ENDS = "ends"
    """It was asked to."""
    LEFT = "left alone"
    """It did not, and is not asked again."""
    OVER = "over"


class StartError(OSError):
    """A program cannot be started; one line."""


@dataclass(eq=False)
class Program:
    """What one launcher knows of one of its programs. The launcher alone writes to this."""

    name: str
    priority: int
    shares: Range | None
    path: str
    command: Sequence[str]
    patience_s: float
    """How long it may take to end after each thing that is done to have it end."""
    environment: Callable[[], Mapping[str, str]]
    """Makes the environment anew for each start."""
    mark: str
    """By which its processes are known."""
    share: int = WHOLE_PERMILLE
    """In thousandths: what it was started with,"""
    wanted: int = WHOLE_PERMILLE
    """and what it is to have."""
    state: State = State.OVER
    process: subprocess.Popen[bytes] | None = None
    stderr: int = -1
    """The pipe from which its stderr is read; -1: it is closed."""
    words: Words = field(default_factory=Words)
    starts: int = 0
    started_s: float = 0.0
    jobs: int = 0
    misses: int = 0
    code: int | None = None
    goes_on: bool = False
    """It is started again when it has ended."""
    ending: Ending = field(default_factory=lambda: Ending(PATIENCE_S))

    @property
    def pid(self) -> int:
        return 0 if self.process is None else self.process.pid

    def pids(self) -> list[int]:
        """All of its processes that live."""
        first = self.process if self.process and self.process.returncode is None else None
        return processes.belonging(self.mark, first.pid if first else 0)

    # -- the start ---------------------------------------------------------------------------

    def start(self, stdin: int) -> None:
        """Start it with the share that is wanted. StartError says why that is not possible."""
        env = {
            **self.environment(),
            processes.MARK: self.mark,
            PERCENTAGE: f"{self.wanted / 10:g}",
        }
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            self.process = self._spawn([self.path, *self.command[1:]], env, stdin, writer)
        except OSError as error:
            os.close(reader)
            raise StartError(f"{self.command[0]}: cannot be started: {error.strerror}") from None
        finally:
            os.close(writer)
        os.set_blocking(reader, False)
        self.stderr, self.words = reader, Words()
        self.share, self.state, self.code = self.wanted, State.RUNS, None
        self.goes_on = False
        self.starts += 1
        self.started_s = time.monotonic()

    def _spawn(
        self, command: list[str], env: Mapping[str, str], stdin: int, stderr: int
    ) -> subprocess.Popen[bytes]:
        parent = os.getpid()

        def spawn(words: list[str]) -> subprocess.Popen[bytes]:
            return subprocess.Popen(  # noqa: S603 - that is the point
                words,
                env=env,
                stdin=stdin,
                stderr=stderr,
                preexec_fn=lambda: processes.begin_child(parent),
            )

        try:
            return spawn(command)
        except OSError as error:
            if error.errno != 8:  # ENOEXEC: a script without a first line, as execvp(3) has it
                raise
            return spawn([SHELL, *command])

    # -- its words ---------------------------------------------------------------------------

    def read(self) -> tuple[str, bytes]:
        """What it said of its jobs since the last time, and what else. At the end the pipe is
        closed."""
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return "", b""
        except OSError:
            data = b""
        if data:
            jobs, rest = self.words.feed(data)
        else:
            jobs, rest = self.words.flush()
            self.close()
        self._count(jobs)
        return jobs, rest

    def pause(self) -> tuple[str, bytes]:
        """It says nothing for a while."""
        jobs, rest = self.words.flush()
        self._count(jobs)
        return jobs, rest

    def _count(self, jobs: str) -> None:
        self.jobs += len(jobs)
        self.misses += jobs.count("m")

    def close(self) -> None:
        if self.stderr >= 0:
            os.close(self.stderr)
            self.stderr = -1

    # -- the end -----------------------------------------------------------------------------

    def why_not_ended(self, *, mps: bool) -> str:
        """Why it cannot be restarted without harm; empty: it can."""
        if not mps or any(processes.survives(pid, signal.SIGINT) for pid in self.pids()):
            return ""
        return "it has no handler for SIGINT, so it could end inside a kernel"

    def ask_to_end(self) -> None:
        """The first step: SIGINT, to every process that has a handler for it."""
        self.state, self.ending = State.ENDS, Ending(self.patience_s)

    def urge(self, now_s: float, *, mps: bool, terminate: Callable[[int], bool]) -> str:
        """The next step, if the last had its time. Returns a line where the last step is over."""
        pids = self.pids()
        if self.state is not State.ENDS or not self.ending.urge(
            pids, now_s, mps=mps, terminate=terminate
        ):
            return ""
        self.state, self.goes_on = State.LEFT, False
        tried = "SIGINT, SIGTERM and MPS' terminate_client" if mps else "SIGINT and SIGTERM"
        numbers = ", ".join(map(str, pids))
        return (
            f"{self.name} (process {numbers}) does not end on {tried}: it is left alone, with"
            f" {percent(self.share)}"
        )

    def reap(self) -> bool:
        """Whether its first process has ended by now."""
        if self.process is None or self.process.poll() is None:
            return False
        self.code = self.process.returncode
        return True

    def kill(self) -> None:
        """Because a person says so."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
