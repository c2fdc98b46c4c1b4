"""`headway calibrate`"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.errors import INTERRUPTED, UserError, say

if TYPE_CHECKING:
    from headway.engine.rendering import Calibration

PROGRAM_S = 20
"""For so long a program runs at most whose shaders are wanted: it draws with most of them soon."""


@click.group(name="calibrate", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure what work costs on this machine's devices."""
    print_help_if_bare(context)


@command.command(name="gl", context_settings={"allow_interspersed_args": False})
@click.option("--show", is_flag=True, help="Print what was measured before, and measure nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--software-gpu", is_flag=True, help="Measure llvmpipe, as one device on one CPU.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def calibrate_gl(show: bool, as_json: bool, software_gpu: bool, program: tuple[str, ...]) -> int:
    """Measure what OpenGL's commands cost: flush, clears, vertices and fragments.

    The device should be idle, and takes some seconds. With a program (after --) that runs for 20 s
    at most, its shaders are measured, too. What is measured is kept for this user; a measurement
    that is interrupted, or finds the device busy, leaves what was there.
    """
    from headway.live.devices import calibrations

    if not show:
        found = None
        with (
            contextlib.suppress(KeyboardInterrupt),
            tempfile.TemporaryDirectory(prefix="headway-shaders-") as folder,
        ):
            if program:
                _collect(program, folder, software_gpu)
            found = _measure(folder, software_gpu)
        if found is None:
            say("headway calibrate: interrupted; what was known before is kept")
            return INTERRUPTED
        calibrations.store(found)
    try:
        known = calibrations.load()
    except calibrations.CalibrationError as error:
        raise UserError(str(error)) from None
    if not known:
        raise UserError("calibrate: nothing was measured yet; run headway calibrate gl")
    _print(known, as_json)
    return 0


def _environment(software_gpu: bool, **more: str) -> dict[str, str]:
    from headway.live.identity import launcher

    env = {**os.environ, **more}
    if software_gpu:
        env |= launcher.ON_THE_CPU
        env["HEADWAY_SOFTWARE_GPU"] = str(launcher.device_cpu())
        env["LD_PRELOAD"] = str(launcher.library())
    return env


def _collect(program: tuple[str, ...], folder: str, software_gpu: bool) -> None:
    """Run a program with an interposer that keeps its shaders' sources."""
    from headway.live.identity import launcher

    env = _environment(software_gpu, HEADWAY_SHADERS=folder, HEADWAY_SOCKET="/nowhere")
    env["LD_PRELOAD"] = str(launcher.predicting_library())
    try:
        child = subprocess.Popen(  # noqa: S603 - that is what was asked for
            program, env=env, stdin=subprocess.DEVNULL, stdout=sys.stderr
        )
    except OSError as error:
        raise UserError(f"calibrate: {program[0]}: cannot be started: {error.strerror}") from None
    try:
        child.wait(PROGRAM_S)
    except subprocess.TimeoutExpired:
        child.terminate()
        child.wait()
    if not any(Path(folder).glob("*.program")):
        raise UserError(
            f"calibrate: {program[0]} linked no shaders that could be seen in {PROGRAM_S} s,"
            " expected an OpenGL program; without one headway calibrate gl measures the rest"
        )


def _measure(folder: str, software_gpu: bool) -> Calibration | None:
    """What another process measures; None: it was interrupted."""
    from headway.engine.rendering.calibration import from_json
    from headway.view.running import watch

    _refuse_if_busy()
    command_line = [sys.executable, "-P", "-m", "headway.live.devices.gl_calibrating", folder]
    found: Calibration | None = None
    problem = "the driver ended it"
    with (
        watch("calibrating", 1000) as watcher,
        subprocess.Popen(  # noqa: S603 - our own Python, to which Ctrl-C does not go
            command_line,
            env=_environment(software_gpu),
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as child,
        contextlib.ExitStack() as stack,
    ):
        stack.callback(child.terminate)
        assert child.stdout is not None
        for line in child.stdout:
            said: Mapping[str, Any] = json.loads(line)
            if not watcher(round(1000 * said.get("progress", 0))):
                child.terminate()
                break
            if "warning" in said:
                say(f"headway calibrate: {said['warning']}")
            if "calibration" in said:
                found = from_json(said["calibration"])
            problem = said.get("problem", problem)
            if "busy" in said:
                problem = "the device is busy: equal measurements differ by more than two times"
    if watcher.interrupted:
        return None
    if found is None:
        raise UserError(f"calibrate: {problem}; what was known before is kept")
    return found


def _refuse_if_busy() -> None:
    """By what a daemon knows of who uses the GPU now."""
    from headway.live.api import client
    from headway.view.daemons import folder

    try:
        status = client.ask(folder(quiet=True), {"do": "status"})
    except (OSError, client.Refused):
        return
    users = [c["task"] for c in status.get("channels", ()) if (c.get("share") or 0) > 0.05]
    if users:
        raise UserError(
            f"calibrate: the device is busy with {', '.join(sorted(users)[:3])}; what was known"
            " before is kept: try again when headway ps shows nobody"
        )


def _print(known: Mapping[str, Calibration], as_json: bool) -> None:
    from headway.engine.rendering.calibration import to_json
    from headway.view.tables import new_console, new_table

    if as_json:
        click.echo(json.dumps({name: to_json(each) for name, each in known.items()}))
        return
    console = new_console()
    for name, each in known.items():
        table = new_table(name)
        table.add_column("command")
        table.add_column("cost", justify="right")
        table.add_row("flush", f"{each.flush_ns / 1000:.2f} us")
        for mask, ns in each.clear_ns.items():
            table.add_row(f"clear {mask}", f"{1000 * ns:.1f} ns per 1000 pixels")
        for program, cost in {"a simple program": each.usual, **each.programs}.items():
            table.add_row(f"vertices of {program}", f"{1000 * cost.vertex_ns:.1f} ns per 1000")
            table.add_row(f"fragments of {program}", f"{1000 * cost.fragment_ns:.1f} ns per 1000")
        console.print(table)
