"""What the gate adds to a launch of a program that is alone, on a driver that does nothing.

    python -m benchmarks.launch_cost [--rounds 7]

No GPU is needed: the difference between a launch with and without Headway is what the interposer
does, and the same whatever the driver then takes (some 4 us on a real one).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.integration.daemon_client import running_daemon

SOURCES = Path(__file__).parent / "launch"
KINDS = {
    "hot": "a launch",
    "cold": "a launch after 256 KiB of other data",
    "frozen": "... after 8 MiB, and 2 MiB of other code",
    "waited": "a launch that is waited for",
    "queried": "a look at an event",
}
Found = dict[str, float]


def build(folder: Path) -> Path:
    """The driver, and the program that is linked with it."""
    driver, program = folder / "libcuda.so.1", folder / "launches"
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{driver.name}"]
    gcc = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]
    subprocess.run([*gcc, str(driver), *shared, str(SOURCES / "null.c")], check=True)
    subprocess.run([*gcc, str(program), str(SOURCES / "launches.c"), str(driver)], check=True)
    return program


def measure(program: Path, folder: Path, *, under: bool) -> Found:
    prefix = [sys.executable, "-m", "headway", "run", "-q", "--require", "--"] if under else []
    env = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), "HEADWAY_DIR": str(folder)}
    done = subprocess.run([*prefix, str(program)], env=env, capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    found: dict[bool, list[Found]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        with running_daemon(folder / "run"):
            for _ in range(options.rounds):
                for under, rows in found.items():
                    rows.append(measure(program, folder / "run", under=under))
    print(f"{'ns':46}{'without':>9}{'with':>9}{'more':>9}{'smallest - largest':>22}")
    for kind, title in KINDS.items():
        plain, ours = ([row[kind] for row in found[under]] for under in (False, True))
        more = [b - a for a, b in zip(plain, ours, strict=True)]
        medians = [f"{statistics.median(values):9.1f}" for values in (plain, ours, more)]
        print(f"{title:46}{''.join(medians)}{f'{min(more):.1f} - {max(more):.1f}':>22}")


if __name__ == "__main__":
    main()
