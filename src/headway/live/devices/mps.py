"""NVIDIA's Multi-Process Service, started and owned by the daemon for its programs alone.

Under MPS the kernels of several processes run side by side instead of in time slices, so a turn
changes hands in microseconds. They also share one context on the GPU: a program that faults there
(an illegal address, say) takes the others down with it. No setting of the system is touched: the
server has a folder of its own, and only programs that are started by `headway run` know it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from headway.live.identity.process import variables_of

if TYPE_CHECKING:
    from headway.engine.priorities import PriorityRule

CONTROL = "nvidia-cuda-mps-control"
START_S = 20.0
MEANING = (
    "MPS: programs started here share one GPU context, so a fault of one on the GPU ends the"
    " others' work too; without --mps each has its own"
)


PIPES = "CUDA_MPS_PIPE_DIRECTORY"
CLIENT_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
NORMAL, BELOW_NORMAL = "0", "1"
"""The two levels that MPS knows."""
DEFAULT_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's programs look


def may_use(pid: int) -> bool:
    """Whether a program may run under MPS, ours or another: a server's folder is where it looks for
    one, or nobody can say."""
    try:
        folder = variables_of(pid, PIPES).get(PIPES, DEFAULT_PIPES)
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return not Path(f"/proc/{pid}").exists()
    except OSError:
        return True


TERMINATE_S = 3.0


def terminate_client(pipes: Path, pid: int) -> bool:
    """Have the servers in this folder end the GPU work of one process, and only that; whether one
    of them did."""

    def said(words: str) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603 - by its name, as it was found
                [CONTROL],
                input=words,
                env={**os.environ, PIPES: str(pipes)},
                capture_output=True,
                text=True,
                timeout=TERMINATE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    servers = [word for word in (said("get_server_list\n") or "").split() if word.isdigit()]
    answers = [said(f"terminate_client {server} {pid}\n") for server in servers]
    return any(answer is not None for answer in answers)


class MpsError(OSError):
    """MPS cannot be started; one line."""


class Mps:
    """An MPS server in a folder of the daemon's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mps"

    @property
    def environment(self) -> dict[str, str]:
        """What tells a program where the server is."""
        return {
            PIPES: str(self.folder),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder),
        }

    @property
    def known(self) -> dict[str, tuple[str, ...]]:
        """What each variable that a program may be told can say."""
        each = {name: (value,) for name, value in self.environment.items()}
        return {**each, CLIENT_PRIORITY: (NORMAL, BELOW_NORMAL)}

    def environment_of(self, priority: PriorityRule | None) -> dict[str, str]:
        """The same for a program of this priority: blocks of programs that must be on time go to
        free multiprocessors before those of the others."""
        from headway.engine.priorities import is_on_time  # headway run starts without the engine

        level = NORMAL if is_on_time(priority) else BELOW_NORMAL
        return {**self.environment, CLIENT_PRIORITY: level}

    def start(self) -> None:
        if shutil.which(CONTROL) is None:
            raise MpsError(f"--mps: {CONTROL} is not on the PATH; it comes with NVIDIA's driver")
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self._answers():  # one that a killed daemon left behind: programs may still use it
            return
        try:
            done = self._run(["-d"], "")
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MpsError(f"--mps: {CONTROL} did not start ({error})") from None
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split())[:200]
            raise MpsError(f"--mps: {CONTROL} did not start: {said or 'it says nothing'}")

    def _answers(self) -> bool:
        try:
            return self._run([], "get_server_list\n").returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def stop(self) -> None:
        """End the server; programs that still use it end with it, so this comes last."""
        self._quit()

    def _quit(self) -> None:
        try:
            self._run([], "quit -t 1\n")
        except (OSError, subprocess.TimeoutExpired):
            return

    def _run(self, arguments: list[str], said: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # noqa: S603 - by its name, as it was found
            [CONTROL, *arguments],
            input=said,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
