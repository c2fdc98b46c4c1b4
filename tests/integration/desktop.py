"""The desktop of PIX/RIX §7 with real programs: widgets, an X client, and an X server they share.

On Xephyr with glamor the X server draws on the GPU; on Xvfb it draws on the CPU, and what gets in
its way is other programs' use of that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.live.desktop.xserver import listeners_of
from tests.integration import gl
from tests.integration.gl import HEADWAY, Program, Stage, wait_until

GLAMOR, ON_CPU = "Xephyr -glamor", "Xvfb"
LEVELS = (5, 4, 3)
X_LEVEL = 1
"""Below the widgets: the default of §7."""
SAME = ("5ms/20ms", "5ms/20ms", "5ms/20ms")
DIFFERENT = ("5ms/10ms", "5ms/20ms", "5ms/40ms")
HOGS = 2
"""Busy loops on the CPU of an X server that is as nice as can be."""


@dataclass(frozen=True)
class Desktop:
    """Who is there, and what the X server inherits from them."""

    title: str
    server: str
    inherit: str
    widgets: int = 3
    reserves: tuple[str, ...] = ()
    server_reserve: str = ""
    client: bool = False
    """An X client beside the widgets, which never uses the GPU itself."""
    hogs: int = 0
    holdoff: str = "2ms"
    """The daemon's own. It makes what PIX mends worse: an idle GPU is kept from the X server."""


@contextlib.contextmanager
def xephyr(stage: Stage, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """An X server that draws with GL, under Headway; the stage's display is its until the end."""
    outer = stage.display
    launch = [HEADWAY, "run", "-q", "--software-gpu", "--name", "xserver", *options, "--"]
    xephyr = ["Xephyr", "-glamor", "-screen", "1000x800"]
    with gl.x_server(*launch, *xephyr, env=stage.environment()) as (server, display):
        stage.display = display
        try:
            yield server
        finally:
            stage.stop_programs()
            stage.display = outer


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """Busy loops where the X server runs."""
    cpu = str(0 if gl.GPU_CPU else os.sched_getaffinity(0).pop())
    loops = [
        subprocess.Popen(["taskset", "-c", cpu, "sh", "-c", "while :; do :; done"])
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def start_widget(stage: Stage, place: int, reserve: str, size: int, clears: int) -> Program:
    options = ["--name", f"widget{place + 1}", "--priority", str(LEVELS[place])]
    options += ["--reserve", reserve] if reserve else []
    corner = str(place * (size + 10))
    return stage.start(
        str(stage.built / "widget"), corner, "0", str(size), str(clears), options=options
    )


def rates(programs: list[Program], seconds: float) -> list[float]:
    """Frames per second of all of them in the same seconds."""
    time.sleep(0.5)
    before, start = [program.frames() for program in programs], time.monotonic()
    time.sleep(seconds)  # it is the time that is measured
    took = time.monotonic() - start
    return [
        (program.frames() - count) / took for program, count in zip(programs, before, strict=True)
    ]


def measure(built: Path, desktop: Desktop, seconds: float) -> list[float]:
    """Frames per second of the widgets, and of the X client if there is one."""
    with contextlib.ExitStack() as stack:
        display = stack.enter_context(gl.xvfb())
        stage = stack.enter_context(gl.stage(display, built))
        options = ["--inherit", desktop.inherit, "--holdoff", desktop.holdoff]
        if desktop.hogs:
            (server,) = listeners_of(display)
            os.setpriority(os.PRIO_PROCESS, server.pid, 19)
            options.append("--nice-server")
        stage.daemon(*options)
        size, clears = 300 if desktop.hogs else 400, 20
        if desktop.server == GLAMOR:
            size, clears = 300, 60
            own = ["--priority", str(X_LEVEL)]
            own += ["--reserve", desktop.server_reserve] if desktop.server_reserve else []
            stack.enter_context(xephyr(stage, *own))
        given = desktop.reserves or ("",) * desktop.widgets
        programs = [
            start_widget(stage, place, given[place], size, clears)
            for place in range(desktop.widgets)
        ]
        if desktop.client:
            xclient = str(stage.built / "xclient")
            programs.append(stage.start(xclient, "0", "450", "300", "20", env=stage.environment()))
        for program in programs:
            wait_until(lambda p=program: p.frames() > 0, "a first frame of everybody")  # type: ignore[misc]
        stack.enter_context(hogs(desktop.hogs))
        return rates(programs, seconds)


def is_raising_permitted() -> bool:
    """Whether a process's CPU priority may be raised here."""
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            os.setpriority(os.PRIO_PROCESS, child.pid, 19)
            os.setpriority(os.PRIO_PROCESS, child.pid, -5)
        except PermissionError:
            return False
        finally:
            child.kill()
    return True
