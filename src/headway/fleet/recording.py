"""What the daemons of a node do for a while, as traces, and how its clock differs from another."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headway.fleet.nodes import Node
from headway.live.api import isolated

PROBES = 9
SPARE_S = 30.0
"""How much longer than the recording its process may take."""


def record(node: Node, seconds: float) -> list[tuple[int, bytes]]:
    """The number of each GPU whose daemon answers, and its trace."""
    with tempfile.TemporaryDirectory(dir=node.folder) as folder:
        running = []
        for gpu in node.gpus:
            file = Path(folder) / f"{gpu.index}.pftrace"
            words = ["trace", "-o", str(file), "--for", f"{round(seconds * 1e6)}us"]
            process = subprocess.Popen(  # noqa: S603 - ourselves
                isolated.headway(*words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=isolated.environment(HEADWAY_DIR=str(node.gpu_folder(gpu.index))),
            )
            running.append((gpu.index, file, process))
        found = []
        for index, file, process in running:
            try:
                process.wait(seconds + SPARE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if file.exists():
                found.append((index, file.read_bytes()))
        return found


def clock_difference_ns(read_other: Callable[[], int]) -> tuple[int, int]:
    """What to add to another clock's times to have ours, and by how much that may be wrong: by the
    quickest of some questions, whose answer was made somewhere between its two ends."""
    found: list[tuple[int, int]] = []
    for _ in range(PROBES):
        began_ns = time.monotonic_ns()
        other_ns = read_other()
        ended_ns = time.monotonic_ns()
        found.append((ended_ns - began_ns, (began_ns + ended_ns) // 2 - other_ns))
    width_ns, difference_ns = min(found)
    return difference_ns, -(-width_ns // 2)
