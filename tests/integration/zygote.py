"""Many short `headway` commands, each in a process of its own, without a Python's start for each.

As a program (`python -P -m tests.integration.zygote`) it has imported what the command needs and
forks for every line that it is told, with the given folder, variables and standard streams.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 100
CLOSED, FULL = "closed", "/dev/full"


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


class Zygote:
    """Runs commands; one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.integration.zygote"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT_S)

    def run(
        self,
        *words: str | Path,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        out: str = "",
        err: str = "",
    ) -> Result:
        """`headway WORDS`; its standard output and error go to files of these names, or nowhere if
        they are CLOSED, or come back."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"words": [*map(str, words)], "cwd": str(cwd), "env": dict(env or {})}
        self._process.stdin.write(json.dumps({**request, "out": out, "err": err}) + "\n")
        return Result(**json.loads(self._process.stdout.readline()))


def main() -> None:
    from headway.view import cli

    for name in cli.COMMANDS:
        importlib.import_module(f"headway.view.cli.{name}")
    for line in sys.stdin:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            request = json.loads(line)
            child = os.fork()
            if child == 0:
                _become(request, out.fileno(), err.fileno())
            _, status = os.waitpid(child, 0)
            out.seek(0)
            err.seek(0)
            texts = {"out": out.read().decode(), "err": err.read().decode()}
            print(json.dumps({"code": os.waitstatus_to_exitcode(status), **texts}), flush=True)


def _become(request: dict[str, Any], out: int, err: int) -> None:
    """In the child: the command, and then its end, as Python itself would have it."""
    from headway.view.cli import main

    code: Any = 1
    try:
        signal.alarm(LIMIT_S)
        os.chdir(request["cwd"])
        os.environ.update(request["env"])
        sys.argv = ["headway", *request["words"]]
        sys.modules["__main__"].__package__ = ""  # what runs is a script
        _stream(0, "stdin", os.devnull, -1)
        _stream(1, "stdout", request["out"], out)
        _stream(2, "stderr", request["err"], err)
        try:
            main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            sys.excepthook(*sys.exc_info())
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:
            code = 120
            if sys.stderr is not None:
                print("Exception ignored when Python ended: Traceback", file=sys.stderr)
        if sys.stderr is not None:
            sys.stderr.flush()
    finally:
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _stream(fd: int, name: str, wanted: str, file: int) -> None:
    """What Python finds there when it starts: nothing, if the descriptor is closed."""
    if wanted == CLOSED:
        os.close(fd)
        setattr(sys, name, None)
        return
    opened = os.open(wanted, os.O_RDWR) if wanted else file
    os.dup2(opened, fd)
    setattr(sys, name, os.fdopen(fd, "r" if fd == 0 else "w", closefd=False))


if __name__ == "__main__":
    main()
