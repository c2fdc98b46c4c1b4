"""A study on three nodes of Ray against one process: the same numbers, and how much sooner.

    python -m benchmarks.fleet_study [--sets 5000]

The nodes are on this machine, so the speed-up is at most its number of CPUs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

from tests.integration.command import HEADWAY
from tests.integration.ray_nodes import cluster

NAMES = ("one", "two", "three")
UTILISATIONS = "0.1:0.2:0.1"


def study(sets: int, *words: str) -> tuple[str, float]:
    """What the study prints, and how long that took."""
    began = time.monotonic()
    command = [str(HEADWAY), "study", "acceptance", "--json", "--tasks", "8", "--sets", str(sets)]
    done = subprocess.run(
        [*command, "--utilisation", UTILISATIONS, *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=5000, help="at each of two utilisations")
    sets = parser.parse_args().sets
    alone, alone_s = study(sets, "--jobs", "1")
    with tempfile.TemporaryDirectory(prefix="hw") as folder, cluster(Path(folder), NAMES) as nodes:
        study(10, "--ray", nodes.address)  # workers are started
        spread, spread_s = study(sets, "--ray", nodes.address)
    assert spread == alone, "the cluster has other numbers than one process"
    print(f"{2 * sets} task sets: the same {len(alone)} bytes of results")
    print(f"one process {alone_s:.1f} s, three nodes on {os.cpu_count()} CPUs {spread_s:.1f} s")
    print(f"speed-up: {alone_s / spread_s:.2f}")


if __name__ == "__main__":
    main()
