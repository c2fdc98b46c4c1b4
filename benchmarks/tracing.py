"""What does recording cost, and how large does it get? Real programs, software GPU.

    python -m benchmarks.tracing [--repeats 7] [--seconds 4]

(a) es2gears beside four bombs, without and with `headway trace`, interleaved; the goal is at most
3 % of the frame rate. (b) Bytes of ten minutes, from what a second of five programs takes: an
important one beside four bombs, and five of equal priority, where every group is asked for; the
goal is below 50 MB. (c) A disk that is full: what is dropped, and whether the daemon went on.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.engine.events import Completed, TakenUp
from headway.view.traces import read_events
from tests.integration import gl

BOMBS = 4
TEN_MINUTES_S = 600
MOST_BYTES = 50_000_000
MOST_COST = 0.03


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    fine = True
    with TemporaryDirectory() as folder, gl.xvfb() as display:
        built = gl.compile_programs(Path(folder))
        with gl.stage(display, built) as stage:
            stage.daemon()
            fine &= cost(stage, options.repeats, options.seconds)
            fine &= size(stage, options.seconds)
            fine &= full_disk(stage, options.seconds)
    return 0 if fine else 1


@contextlib.contextmanager
def company(stage: gl.Stage, priority: int) -> Iterator[gl.Program]:
    """Gears beside bombs, all at the gate."""
    bomb = (str(stage.built / "bomb"), gl.BOMB_SECONDS)
    names = [f"bomb{number}" for number in range(BOMBS)]
    try:
        for name in names:
            stage.start(*bomb, options=("--name", name, "--priority", "1"))
        gl.wait_until(lambda: all(map(stage.is_managed, names)), "all bombs at the gate")
        yield stage.start(gl.GEARS, options=("--name", "gears", "--priority", str(priority)))
    finally:
        stage.stop_programs()


@contextlib.contextmanager
def tracing(stage: gl.Stage, trace: Path, *, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """`headway trace` for as long as the block, then Ctrl-C."""
    command = ["bash", "-c", f'{before}exec "$0" "$@"', gl.HEADWAY, "trace", "-o", str(trace)]
    process = subprocess.Popen(command, env=stage.environment(), stderr=subprocess.PIPE, text=True)
    gl.wait_until(lambda: bool(list(trace.parent.glob(f"{trace.name}.*part"))), "a trace")
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def cost(stage: gl.Stage, repeats: int, seconds: float) -> bool:
    """The same programs all the time: recording comes and goes."""
    ratios, plain, recorded = [], [], []
    with company(stage, 9) as gears, TemporaryDirectory() as folder:
        gears.frame_rate(1.0)
        for number in range(repeats):
            without = gears.frame_rate(seconds)
            with tracing(stage, Path(folder) / f"{number}.pftrace"):
                traced = gears.frame_rate(seconds)
            without = (without + gears.frame_rate(seconds)) / 2
            plain.append(without)
            recorded.append(traced)
            ratios.append(traced / without)
            print(f"round {number + 1} of {repeats}", file=sys.stderr)
    lost = 1 - statistics.median(ratios)
    print("## Cost of recording\n\n| | frames per second | spread |\n|---|---|---|")
    for title, rates in (("not recorded", plain), ("recorded", recorded)):
        print(f"| {title} | {statistics.median(rates):.0f} | {min(rates):.0f}-{max(rates):.0f} |")
    spread = f"{100 * (1 - max(ratios)):.1f} to {100 * (1 - min(ratios)):.1f} %"
    print(f"\ncost: {100 * lost:.1f} % ({spread}); goal: at most {100 * MOST_COST:.0f} %")
    return lost <= MOST_COST


def size(stage: gl.Stage, seconds: float) -> bool:
    """Bytes per second, of what the programs do once they are all there."""
    print("\n## Size of ten minutes, five programs\n")
    print("| | groups/s | bytes/group | MB |\n|---|---|---|---|")
    most = 0.0
    for title, priority in (("one important beside four", 9), ("five of equal priority", 1)):
        with company(stage, priority) as gears, TemporaryDirectory() as folder:
            gears.frame_rate(0.5)
            trace = Path(folder) / "t.pftrace"
            start = time.monotonic()
            with tracing(stage, trace):
                time.sleep(2 * seconds)  # it is the time that is measured
                took_s = time.monotonic() - start
            size = trace.stat().st_size
            groups = sum(isinstance(event, Completed) for event in read_events(trace))
        megabytes = size / took_s * TEN_MINUTES_S / 1e6
        most = max(most, megabytes)
        print(f"| {title} | {groups / took_s:.0f} | {size / groups:.0f} | {megabytes:.1f} |")
    print(f"\ngoal: below {MOST_BYTES / 1e6:.0f} MB")
    return most * 1e6 < MOST_BYTES


def full_disk(stage: gl.Stage, seconds: float) -> bool:
    """On a file system of 64 kB where that can be mounted, else in a file that may be so long."""
    with TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder, before = Path(name), "ulimit -f 64; "
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "headway", name]
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            stack.callback(subprocess.run, ["umount", name], check=True)
            before = ""
        trace = folder / "t.pftrace"
        with company(stage, 1) as gears:
            gears.frame_rate(0.5)
            with tracing(stage, trace, before=before):
                before_rate = gears.frame_rate(seconds, warm_up=0)
                after_rate = gears.frame_rate(seconds, warm_up=0)
        dropped = sum(e.dropped for e in read_events(trace) if isinstance(e, TakenUp))
        where = "a mounted file system" if not before else "a limit on the file"
        print(f"\n## Full disk (64 kB, {where})\n")
        print(
            f"{trace.stat().st_size} bytes kept, {dropped} events dropped;"
            f" {before_rate:.0f} frames per second at first, {after_rate:.0f} later"
        )
        checked = subprocess.run(
            [gl.HEADWAY, "check", "--tolerance", "50ms", str(trace)],
            capture_output=True,
            text=True,
            check=False,
        )
        print(checked.stdout.replace(str(trace), "trace"))
        return dropped > 0 and checked.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main())
