"""What a program pays for its pieces, on a GPU that is a model: one that trains, beside one that
comes every 20 ms for a moment, where the CPU is now and then away from its work.

    python -m benchmarks.steps_ahead [--rounds 3] [--steps 100]

No GPU is needed, and what is compared is what the model says: a step's time with and without
Headway, less what the important program has of it, and for how long the GPU goes on with a piece
when its gate closes. On two CPUs the daemon and the important program have to share one with the
program, which is what most of the time is that steps take longer beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.launch_cost import SOURCES, environment, headway
from tests.integration.daemon_client import running_daemon

WAYS = {
    "window 0.2 ms": ("--window", "0.2ms"),
    "window 0.5 ms": ("--window", "0.5ms"),
}
WITHOUT = "without Headway, nobody beside"
AWAY_MS = (0, 15, 25)
IMPORTANT = """
import sys, time
from pathlib import Path
from headway.live.wire.protocol import TURNS
from tests.integration.daemon_client import Client, ask

folder = Path(sys.argv[1])
wish = {"do": "run", "name": "important", "priority": 9, "policy": "overlap"}
token = ask(folder, wish, timeout_s=5)["token"]
with Client(folder / "clients.sock", "important", token) as client:
    client.send(TURNS)
    due_s = time.monotonic()
    print(flush=True)
    while True:
        due_s += 0.02
        time.sleep(max(0.0, due_s - time.monotonic()))
        client.set_busy(True)
        if not client.leased:  # who has a lease does not ask
            client.submit()
            client.wait_grant()
        time.sleep(0.0012)
        client.set_busy(False)
        client.rest()
"""


def build(folder: Path) -> Path:
    """The driver, and the program that is linked with it."""
    driver, program = folder / "libcuda.so.1", folder / "steps"
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{driver.name}"]
    gcc = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]
    subprocess.run([*gcc, str(driver), *shared, str(SOURCES / "timed.c"), "-lpthread"], check=True)
    subprocess.run([*gcc, str(program), str(SOURCES / "steps.c"), str(driver)], check=True)
    return program


def measure(program: Path, folder: Path, before: list[str], *told: object) -> dict[str, Any]:
    command = [*before, str(program), *map(str, told)]
    env = environment(program, folder)
    return dict(
        json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
    )


@contextlib.contextmanager
def important(folder: Path) -> Iterator[None]:
    """Somebody comes every 20 ms, and has the GPU for 1.2."""
    command = [sys.executable, "-c", IMPORTANT, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        for away_ms in AWAY_MS:
            print(f"\nthe CPU is away for {away_ms} ms in every third step")
            print(f"{'':34}{'step, ms':>10}{'gates':>8}{'goes on, us: p50':>18}{'p90':>6}")
            told = (options.steps, away_ms)
            plain = [measure(program, folder, [], *told) for _ in range(options.rounds)]
            show(WITHOUT, plain)
            for title, way in WAYS.items():
                found = []
                for number in range(options.rounds):
                    run = folder / f"run-{away_ms}-{len(title)}-{number}"
                    with running_daemon(run, *way), important(run):
                        found.append(measure(program, run, headway(), *told))
                show(title, found)


def show(title: str, found: list[dict[str, Any]]) -> None:
    step_ms, gates = (statistics.median(one[key] for one in found) for key in ("step_ms", "gates"))
    on = [statistics.median(one["went_on_us"][place] for one in found) for place in (0, 1)]
    print(f"{title:34}{step_ms:10.2f}{gates:8.1f}{on[0]:18.0f}{on[1]:6.0f}", flush=True)


if __name__ == "__main__":
    main()
