"""What the gate adds to a launch, on a driver that does nothing: of a program that is alone, and of
one that has a window because there is a more important one.

    python -m benchmarks.launch_cost [--rounds 7]

No GPU is needed: the difference between a launch with and without Headway is what the interposer
does, and the same whatever the driver then takes (some 4 us on a real one).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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


def headway(*options: str) -> list[str]:
    return [sys.executable, "-m", "headway", "run", "-q", "--require", *options, "--"]


def measure(program: Path, folder: Path, before: list[str]) -> Found:
    done = subprocess.run(
        [*before, str(program)], env=environment(program, folder), capture_output=True, check=True
    )
    return dict(json.loads(done.stdout))


def environment(program: Path, folder: Path) -> dict[str, str]:
    own = {"LD_LIBRARY_PATH": str(program.parent), "HEADWAY_DIR": str(folder)}
    return {**os.environ, **own}


@contextlib.contextmanager
def important(program: Path, folder: Path) -> Iterator[None]:
    """One that is there, and does nothing."""
    with subprocess.Popen(
        [*headway("--priority", "9"), str(program), "idle"],
        env=environment(program, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()
        yield
        idle.kill()


def show(title: str, plain: list[Found], ours: list[Found]) -> None:
    print(f"{title + ', ns':46}{'without':>9}{'with':>9}{'more':>9}{'smallest - largest':>22}")
    for kind, name in KINDS.items():
        pairs = [(a[kind], b[kind]) for a, b in zip(plain, ours, strict=True)]
        more = [b - a for a, b in pairs]
        columns = [*zip(*pairs, strict=True), more]
        medians = [f"{statistics.median(values):9.1f}" for values in columns]
        print(f"{name:46}{''.join(medians)}{f'{min(more):.1f} - {max(more):.1f}':>22}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    plain, alone, beside = list[Found](), list[Found](), list[Found]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, run = build(folder), folder / "run"
        with running_daemon(run):
            for _ in range(options.rounds):
                plain.append(measure(program, run, []))
                alone.append(measure(program, run, headway()))
                with important(program, run):
                    beside.append(measure(program, run, headway()))
    show("alone", plain, alone)
    show("\nbeside a more important one", plain, beside)


if __name__ == "__main__":
    main()
