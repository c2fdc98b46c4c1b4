"""Runs a program to see what it does with the GPU, and tells that in findings.

It runs as `headway run` would start it: managed if a daemon runs, with nobody at the gate if none
does. However it ends, what was seen until then is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.view.doctor import Finding, bad, ok, warn
from headway.view.doctor.survey import APIS, LINK, Api, Passed, Survey, known_apis, read_survey

PATIENCE_S = 3.0
"""How long a program may take to end when it is asked to."""
LOOK_S = 0.02
WIDTH = 100
_PR_SET_CHILD_SUBREAPER = 36
NEWER = "a newer Headway, if there is one; until then this work goes unmanaged"
REBUILD = "install OpenCL's headers (opencl-headers) and build headway again"


@dataclass(frozen=True, slots=True)
class Run:
    """How a program ran, in words, and what was seen of it."""

    ended: str
    managed: str
    survey: Survey


def run(command_line: Sequence[str], *, limit_s: float | None, quiet: bool) -> Run:
    """`quiet`: standard output is for the doctor alone, so the program's goes to standard error."""
    from headway.live.identity import launcher
    from headway.live.identity.program import find_program

    path = find_program(command_line[0])
    with tempfile.TemporaryDirectory(prefix="headway-doctor-") as folder:
        lookups = Path(folder, "lookups")
        lookups.with_name("lookups.calls").touch()
        env, managed = environment(Path(folder), path)
        env["HEADWAY_LOOKUPS"] = str(lookups)
        ended = _run(command_line, env, limit_s, sys.stderr.fileno() if quiet else None)
        return Run(ended, managed, read_survey(lookups, known_apis(launcher.library())))


def environment(nowhere: Path, path: str) -> tuple[dict[str, str], str]:
    """And whether the program is managed, in words. Without a daemon it meets the same interposer,
    which finds nobody `nowhere`."""
    from headway.live.api import client, launch
    from headway.live.identity import launcher
    from headway.live.wire import paths

    try:
        return launch.managed(paths.runtime_folder(), path, {}, starts_daemon=False), "managed"
    except launcher.LaunchError as error:  # it might not even start with the interposer
        return dict(os.environ), f"unmanaged ({error})"
    except (OSError, client.Refused) as error:
        why = "no daemon runs" if type(error) is client.NoDaemon else str(error)
        return launcher.environment(nowhere, "", software_gpu=None), f"unmanaged ({why})"


# -- the process -----------------------------------------------------------------------------------


def _run(
    command_line: Sequence[str], env: dict[str, str], limit_s: float | None, out: int | None
) -> str:
    # What it leaves behind becomes ours, so all of it can be ended.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        process = subprocess.Popen(list(command_line), env=env, stdout=out)  # noqa: S603
    except OSError as error:
        return f"did not start: {error.strerror}"
    try:
        return _told(process.wait(limit_s))
    except subprocess.TimeoutExpired:
        _end(process, signal.SIGTERM)
        return f"was ended after {limit_s:g} s"
    except KeyboardInterrupt:
        # A terminal tells everybody in the foreground; whoever else interrupts us told us alone.
        _end(process, 0 if sys.stdin.isatty() else signal.SIGINT)
        return "was interrupted"


def _told(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _end(process: subprocess.Popen[bytes], first: int) -> None:
    """The program and everything it started: asked, asked again, and then not asked."""
    for number in (first, signal.SIGTERM, signal.SIGKILL):
        for pid in list(_descendants(os.getpid())):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(LOOK_S)
                if not any(_living(process)):
                    return


def _living(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """What is left of the program. Those of its children that came to us have nobody else to ask
    how they ended."""
    process.poll()
    for pid in list(_descendants(os.getpid())):
        with contextlib.suppress(ChildProcessError):
            if pid != process.pid and os.waitpid(pid, os.WNOHANG)[0]:
                continue
        yield pid


def _descendants(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from _descendants(child)


# -- telling ---------------------------------------------------------------------------------------


def findings(seen: Run) -> dict[str, Finding]:
    """What was seen, as checks are told."""
    survey = seen.survey
    how = f"the program {seen.ended}, {seen.managed}"
    if seen.ended.startswith("did not start"):
        return {"run": bad(how, "a program that runs without Headway, too")}
    if not survey.processes:
        fix = "a dynamically linked program that keeps its environment"
        return {"run": warn(f"{how}; the interposer was let into none of its processes", fix)}
    told = {"run": ok(f"{how}; the interposer was in {_count(survey.processes, 'process')}")}
    if not survey.apis:
        told["GPU"] = ok(f"it used none of {', '.join(APIS)}")
    for api in survey.apis:
        told[api.name] = _hooked(api)
        if api.passed:
            told[f"{api.name} passed by"] = _passed(api)
    return told


def _hooked(api: Api) -> Finding:
    called = api.called
    if not api.hooked:
        return warn("nothing of it was hooked", "see what passed by")
    ways = [LINK, *(way for way in api.ways if way != LINK)] if LINK in api.ways else api.ways
    functions = _count(len(api.hooked), "function")
    found = f"reached by {', '.join(ways)}: {functions} hooked, {len(called)} called"
    if len(api.processes) > 1:
        names = [f"{name} ({pid})" for pid, name in api.processes.items()]
        found += f"\n{_wrapped('in ', names)}"
    calls = [f"{name} {count}" for name, count in called.items()]
    return ok(f"{found}\n{_wrapped('', calls)}" if calls else found)


def _wrapped(start: str, items: list[str]) -> str:
    """Lines that are broken between items only."""
    line = start + ", ".join(item.replace(" ", "\0") for item in items)
    return textwrap.fill(line, WIDTH, break_long_words=False).replace("\0", " ")


def _passed(api: Api) -> Finding:
    """Libraries find much that nobody calls; nothing has to be done about that."""
    used = [entry for entry in api.passed if entry.calls != 0]
    lines = [f"{entry.name} (by {entry.way}, {_calls(entry)}): {entry.why}" for entry in used]
    idle: dict[str, list[str]] = {}
    for entry in api.passed:
        if entry.calls == 0:
            idle.setdefault(entry.why, []).append(entry.name)
    lines += [_wrapped(f"found and not called ({why}): ", names) for why, names in idle.items()]
    if not used:
        return ok("\n".join(lines))
    without = any("built without" in entry.why for entry in used)
    return warn("\n".join(lines), REBUILD if without else NEWER)


def _calls(entry: Passed) -> str:
    return "calls cannot be seen" if entry.calls is None else f"called {entry.calls} times"


def _count(number: int, what: str) -> str:
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{number} {what if number == 1 else plural}"
