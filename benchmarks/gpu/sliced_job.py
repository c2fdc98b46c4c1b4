"""A task on slices of a GPU: jobs with state, one after the other; prints what they came to.

    python benchmarks/gpu/sliced_job.py NAME JOBS [--overruns] [--soft]

`--overruns`: every fourth job is ten times as long, and is told. `--soft`: no GPU is needed;
kernels are pauses, and state is memory of the process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from importlib import import_module
from typing import Any

from headway import gpu
from headway.engine.locks.topology import DISTANCES, Topology

BYTES = 16 << 20
PERIOD_S, KERNEL_S, BUDGET = 0.02, 0.002, "8ms"
MOST_DEVICES = 64


class Soft:
    """Buffers and kernels that are played."""

    def __init__(self, device: int | None = None) -> None:
        self.device = device
        self.data = bytearray(BYTES // 64)
        self.nbytes = len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def like(self, device: int | None) -> Soft:
        return Soft(device)

    def kernel(self, device: gpu.Device) -> None:
        time.sleep(KERNEL_S)


class Torch:
    """A tensor, and products of matrices on the slice's stream."""

    def __init__(self) -> None:
        torch: Any = import_module("torch")
        self.torch = torch
        self.state = torch.zeros(BYTES // 4, device="cuda:0")
        self.matrix = torch.randn(1024, 1024, device="cuda:0")

    def kernel(self, device: gpu.Device) -> None:
        stream = self.torch.cuda.ExternalStream(device.stream)
        with self.torch.cuda.stream(stream):
            self.matrix @ self.matrix
        stream.synchronize()


def main() -> None:
    name, jobs = sys.argv[1], int(sys.argv[2])
    work: Any = Soft(0) if "--soft" in sys.argv else Torch()
    state = gpu.state(work if isinstance(work, Soft) else work.state)
    topology = Topology(MOST_DEVICES)
    moves: Counter[int] = Counter()
    responses_ms, late_ms, told = [], [], 0
    due = time.monotonic()
    for number in range(jobs):
        due += PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))
        kernels = 20 if "--overruns" in sys.argv and number % 4 == 3 else 2
        used_s = 0.0
        try:
            with gpu.token(name, period="20ms", state=state, budget=BUDGET) as device:
                moves[topology.distance(device.home, device.index)] += 1
                for _ in range(kernels):
                    began = time.monotonic()
                    try:
                        with device.unit("compute"):
                            work.kernel(device)
                    finally:
                        used_s += time.monotonic() - began
        except gpu.BudgetExceeded:
            told += 1
            late_ms.append(1000 * (used_s - 0.001 * float(BUDGET.removesuffix("ms"))))
        responses_ms.append(1000 * (time.monotonic() - due))
    print(
        json.dumps(
            {
                "name": name, "pid": os.getpid(), "responses_ms": responses_ms, "told": told,
                "late_ms": late_ms, "moves": [moves[d] for d in range(DISTANCES)],
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
