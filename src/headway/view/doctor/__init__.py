"""What Headway needs, looked at piece by piece.

A check is one function in one of the files here, registered by `check` under the name a person
sees. It says `ok`, `warn` (something works less well) or `bad` (something required is missing),
what it found, and how to put it right. What can hang or crash is looked at in a child process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headway.engine.registry import Registry
from headway.live.api import isolated

CHILD_S = 10.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check came to."""

    state: str
    found: str
    fix: str = ""


def ok(found: str) -> Finding:
    return Finding("ok", found)


def warn(found: str, fix: str) -> Finding:
    return Finding("warn", found, fix)


def bad(found: str, fix: str) -> Finding:
    return Finding("bad", found, fix)


Check = Callable[[], Finding]
check = Registry[Check]("check", __name__)
"""The decorator that makes a check of the machine known by the name that a person sees."""


def checks() -> dict[str, Check]:
    """Every check by name."""
    return check.all()


def examine(selected: Mapping[str, Check]) -> dict[str, Finding]:
    """Run checks one after the other. One that fails itself says so and stops nobody."""
    return {name: _guarded(function) for name, function in selected.items()}


def _guarded(function: Check) -> Finding:
    try:
        return function()
    except Exception as error:
        what = f"could not be looked at ({type(error).__name__}: {error})"
        return warn(what, "report this; it is a mistake of headway doctor")


@dataclass(frozen=True, slots=True)
class Child:
    """How a child process ended; `code` is None if it had to be ended."""

    code: int | None
    out: str
    err: str


def run_child(command: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
    """Run something that may hang. It is not waited for longer than that, even if the kernel does
    not let go of it."""
    process = subprocess.Popen(  # noqa: S603 - commands of this package
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd="/",
        env={**isolated.environment(), **(env or {})},
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=CHILD_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        return Child(None, "", "")
    return Child(process.returncode, out.strip(), err.strip())


def run_python(code: str, env: Mapping[str, str] | None = None) -> Child:
    """A few lines of Python in a child, without anything installed."""
    return run_child([sys.executable, "-I", "-S", "-c", code], env)


def last_line(child: Child, otherwise: str = "") -> str:
    """What a child said last of what went wrong."""
    if child.code is None:
        return f"no answer within {CHILD_S:g} s"
    lines = child.err.splitlines() or child.out.splitlines()
    return lines[-1] if lines else otherwise or f"it ended with {child.code}"
