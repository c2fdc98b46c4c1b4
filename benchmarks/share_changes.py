"""Changes of a program's share while it launches as fast as it can, on the tests' software driver.

Each change is timed from the new share in the program's page to its first launch under that share.
At the end the program's result, which every kernel takes one step further with a linear
congruential generator, is compared with the same steps done one after the other: a launch that was
lost, done twice or out of order shows there. Beside that, in the same run: how long the same
program takes from its start to the first kernel under its share, which is the least that a restart
for another share costs.

    python -m benchmarks.share_changes [--changes 10000] [--seed S]
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.shares import Changer, with_share
from tests.integration import cuda
from tests.integration.daemon_client import wait_until

SMS, STEP = 132, 8
"""Of the GPU that the software driver plays."""
RESTARTS = 11


def start(managed: cuda.Managed, folder: Path) -> cuda.Program:
    """The program, with a quarter of the multiprocessors."""
    program = with_share(managed, "confined", "25%", folder)
    program.heard()
    program.do("us 5", "grid 1", "sync")
    return program


def restarts(managed: cuda.Managed, folder: Path) -> list[float]:
    """Milliseconds from the start of the program to its first kernel being done, several times."""
    found = []
    for _ in range(RESTARTS):
        began = time.monotonic()
        program = start(managed, folder)
        found.append((time.monotonic() - began) * 1e3)
        program.kill()
    return found


def changes(managed: cuda.Managed, folder: Path, count: int, seed: int) -> tuple[list[float], int]:
    """Microseconds of each change, and how many launches there were meanwhile; the result is
    right."""
    program = start(managed, folder)
    wait_until(lambda: managed.entry(program)["share_told"] < 1000, "it is told")
    changer, draws = Changer(managed, program), random.Random(seed)
    program.tell("flood")
    before, took = 0, []
    for _ in range(count):
        sms = draws.choice([s for s in range(STEP, SMS, STEP) if s != before])
        took.append(changer.change(sms * 1000 // SMS + 1, sms * 1000 // SMS) / 1e3)
        before = sms
    changer.close()
    launched = int(program.do("stop")[0].removeprefix("launched "))
    assert program.do("sum") == ["sum 0"], "the result is not that of the sequential generator"
    assert launched >= count
    return took, launched


def said(values: Sequence[float], unit: str) -> str:
    middle = statistics.median(values)
    half = statistics.quantiles(values, n=4)
    tail = statistics.quantiles(values, n=100)[-1] if len(values) >= 100 else max(values)
    return (
        f"{middle:.3g} {unit} (median; middle half {half[0]:.3g} to {half[2]:.3g},"
        f" {'p99' if len(values) >= 100 else 'worst'} {tail:.3g})"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hw-") as name:
        folder = Path(name)
        gpu = cuda.Gpu(cuda.compile_all(folder), folder / "gpu")
        with cuda.managed(gpu, folder / "run", "--spin", "0ms", "--window", "200us") as managed:
            again = restarts(managed, folder)
            took, launched = changes(managed, folder, options.changes, options.seed)
    print(f"{options.changes} changes of the share during {launched} launches, seed {options.seed}")
    print("    nothing lost, doubled or out of order: the sequential generator agrees")
    print(f"    a change until the first launch under it: {said(took, 'us')}")
    print(f"    the same program from its start to its first kernel: {said(again, 'ms')}")
    print(
        f"    ratio of the medians: {1e3 * statistics.median(again) / statistics.median(took):.0f}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
