"""Programs that are told what to do: each says a JSON line when it is ready, and one for every line
it is told. They can be started together and measured one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.stage import Failed, Stage

ALIKE = {"PYTHONHASHSEED": "0"}
"""What can be made the same in processes that are compared."""
PADDING = "PADDING"
"""A variable that makes the environment longer."""

Start = tuple[Stage, Sequence[str], Sequence[str]]
"""Where, what goes before the program, and the program."""


class Told:
    """A program, and what it has said so far."""

    def __init__(self, stage: Stage, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the program
        self._said = b""
        self.process = subprocess.Popen(
            list(command),
            env=stage.environment(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def pin(self, cpu: int) -> None:
        """Have it run on one CPU from now on."""
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(int(thread.name), {cpu})

    def heard(self, timeout_s: float) -> dict[str, Any]:
        """The next JSON line; other lines are somebody else's."""
        end = time.monotonic() + timeout_s
        while True:
            line, found, rest = self._said.partition(b"\n")
            if not found:
                self._said += self._more(end - time.monotonic())
                continue
            self._said = rest
            if line.startswith(b"{"):
                return dict(json.loads(line))

    def _more(self, left_s: float) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, left_s))
        if not ready:
            raise Failed("hung")
        more = os.read(self.process.stdout.fileno(), 65536)
        if not more:
            raise Failed(f"exit {self.process.wait()}: {self._last_error()}")
        return more

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it says nothing"

    def go(self, timeout_s: float, line: str = "") -> dict[str, Any]:
        """Have it do its work once more."""
        self.tell(line)
        return self.heard(timeout_s)

    def tell(self, line: str = "") -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"exit {self.process.wait()}: {self._last_error()}") from None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def start_alike(stack: contextlib.ExitStack, starts: Sequence[Start]) -> list[Told]:
    """Programs to be compared, with as many bytes of environment for each: with more or fewer of
    them all that is on their stacks lies elsewhere, which may be a matter of some per cent."""
    lengths = [_environment(at, before) for at, before, _ in starts]
    programs = []
    for (at, before, command), length in zip(starts, lengths, strict=True):
        padding = {PADDING: "x" * (max(lengths) - length)}
        programs.append(Told(at, [*before, *command], {**ALIKE, **padding}))
        stack.callback(programs[-1].end)
    return programs


def _environment(at: Stage, before: Sequence[str]) -> int:
    """How long it is."""
    command = [*before, "cat", "/proc/self/environ"]
    return len(
        subprocess.run(command, env=at.environment(), capture_output=True, check=True).stdout
    )
