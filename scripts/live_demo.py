#!/usr/bin/env python3
"""The live demonstration: es2gears, an unmodified program, beside five clear bombs.

On a GPU made of one CPU (llvmpipe) it measures the frame rate of es2gears alone, beside the bombs
without Headway, beside them with priorities, and with a reserve around them, too; prints a table
and draws a picture. Run it through `make demo`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / ".venv" / "bin"
BOMBS = 5
PATIENCE_S = 30.0
"""es2gears reports its frame rate every five seconds, and begins later on a busy machine."""
ROUNDS = 2
COLOURS = ("#98a2ad", "#d55e00", "#0072b2", "#00916a")
DEVICE = str((os.cpu_count() or 1) - 1)


@contextlib.contextmanager
def screen(folder: Path) -> Iterator[str]:
    """A virtual screen on a display of its own, off the CPU that plays the GPU."""
    read, write = os.pipe()
    others = {cpu for cpu in range(os.cpu_count() or 1) if str(cpu) != DEVICE} or {0}
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x1024x24", "-nolisten", "tcp"],
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "xvfb.log").open("wb"),
    )
    os.close(write)
    with os.fdopen(read) as lines:
        number = lines.readline().strip()
    if not number:
        sys.exit("live_demo: Xvfb did not start")
    with contextlib.suppress(OSError):
        os.sched_setaffinity(server.pid, others)
    try:
        yield f":{number}"
    finally:
        server.terminate()
        server.wait()


def library(env: dict[str, str]) -> str:
    code = "from headway.live.identity.launcher import library; print(library())"
    return subprocess.check_output([BIN / "python", "-c", code], text=True, env=env).strip()


class Stage:
    """Starts programs with and without Headway."""

    def __init__(self, folder: Path, display: str) -> None:
        self.env = {**os.environ, "DISPLAY": display, "HEADWAY_DIR": str(folder / "run")}
        self.bomb = str(folder / "bomb")
        source = ROOT / "tests" / "programs" / "bomb.c"
        libraries = ["-lEGL", "-lGLESv2"]
        subprocess.run(["gcc", "-O2", "-o", self.bomb, source, *libraries], check=True)
        # Without a socket the interposer manages nothing: it only makes llvmpipe one device.
        self.device = {
            "LD_PRELOAD": library(self.env),
            "HEADWAY_SOFTWARE_GPU": DEVICE,
            "LP_NUM_THREADS": "1",
            "LIBGL_ALWAYS_SOFTWARE": "1",
        }

    def start(self, command: list[str], options: list[str] | None) -> subprocess.Popen[str]:
        """`options` of headway run; None: without Headway."""
        env = self.env
        if options is None:
            env = {**env, **self.device}
        else:
            command = [str(BIN / "headway"), "run", "--software-gpu", *options, "--", *command]
        return subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def frames_per_second(self, options: list[str] | None, bombs: list[str] | int | None) -> float:
        """Of es2gears, beside bombs with these options (0: alone)."""
        crowd = []
        if not isinstance(bombs, int):
            seconds = str(int(2 * PATIENCE_S))
            crowd = [self.start([self.bomb, seconds], bombs) for _ in range(BOMBS)]
            time.sleep(1)
        gears = self.start(["stdbuf", "-oL", "es2gears_x11"], options)
        late = threading.Timer(PATIENCE_S, gears.terminate)
        late.start()
        assert gears.stdout is not None
        reports = (re.search(r"= *([0-9.]+) FPS", line) for line in gears.stdout)
        rate = next((float(found[1]) for found in reports if found), 0.0)
        late.cancel()
        for program in (gears, *crowd):
            program.kill()
            program.wait()
        return rate


def draw(path: Path, rates: dict[str, float], made_with: str) -> None:
    from headway.view.plots import new_figure, save

    figure = new_figure(9, 4.8)
    axes = figure.subplots()
    drawn = axes.bar(list(rates), list(rates.values()), 0.62, color=COLOURS)
    alone = next(iter(rates.values())) or 1.0
    labels = [f"{rate:.0f}  ({rate / alone:.0%})" for rate in rates.values()]
    axes.bar_label(drawn, labels, padding=3, fontsize=11)
    axes.margins(y=0.12)
    axes.set_ylabel("frames per second")
    figure.suptitle(
        f"es2gears, unmodified, beside {BOMBS} programs that flood one GPU",
        x=0.01, ha="left", weight="bold",
    )  # fmt: skip
    axes.set_title(made_with, fontsize="small", weight="normal", color="#5f6b7a")
    save(figure, str(path))


def machine() -> str:
    """What the kernel calls the processor, and whether the machine is a virtual one."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = found[1] if found else os.uname().machine
    return f"{name}, virtual machine" if re.search(r"^flags.* hypervisor", text, re.M) else name


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out"
    out.mkdir(exist_ok=True)
    for needed in ("Xvfb", "es2gears_x11", "gcc", "stdbuf"):
        if shutil.which(needed) is None:
            sys.exit(f"live_demo: {needed} is missing; run scripts/install-packages")
    important = ["--priority", "9"]
    greedy = ["--priority", "1"]
    capped = [*greedy, "--reserve", "2.5ms/25ms", "--shared", "bombs"]
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as name, screen(Path(name)) as display:
        stage = Stage(Path(name), display)
        cases: dict[str, tuple[list[str] | None, list[str] | int | None]] = {
            "alone": (None, 0),
            "beside them,\nwithout Headway": (None, None),
            "beside them,\nwith priorities": (important, greedy),
            "beside them,\npriorities and a budget": (important, capped),
        }
        found: dict[str, list[float]] = {label: [] for label in cases}
        for number in range(ROUNDS):  # there and back, so that a machine that warms up favours none
            for label in list(cases)[:: -1 if number % 2 else 1]:
                what = label.replace("\n", " ")
                print(f"round {number + 1} of {ROUNDS}: es2gears {what}", flush=True)
                found[label].append(stage.frames_per_second(*cases[label]))
        rates = {label: sum(rounds) / len(rounds) for label, rounds in found.items()}
        subprocess.run(
            [BIN / "headway", "stop"], env=stage.env, stderr=subprocess.DEVNULL, check=False
        )
    alone = rates["alone"] or 1.0
    print(f"es2gears on one software GPU, beside {BOMBS} programs that flood it")
    for label, rate in rates.items():
        print(f"  {label.replace(chr(10), ' '):<36} {rate:8.1f} fps   {rate / alone:5.2f} of alone")
    rights = "root" if os.geteuid() == 0 else "an ordinary user"
    made_with = f"Mesa's software GPU on one of {os.cpu_count()} CPUs ({machine()}), as {rights}; "
    made_with += f"mean of {ROUNDS} rounds, {time.strftime('%Y-%m-%d', time.gmtime())}"
    draw(out / "live.png", rates, made_with)
    print(f"picture: {out / 'live.png'}")
    print("""
Try next:
  export PATH=$PWD/.venv/bin:$PATH
  headway run -- PROGRAM                     any program of yours; headway top beside it
  headway report out/demo.pftrace --open     what happened in the simulation, as a page
  headway web --open                         the same, live
  docs/priorities.md                         which priority, and which budget""")


if __name__ == "__main__":
    main()
