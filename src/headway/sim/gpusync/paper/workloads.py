"""GPUSync's two experiments as scenarios, and what the paper does not say about them.

Chosen, because the paper gives no numbers: the periods (a seeded draw), one kernel a job, jobs that
vary by 2 %, budgets of 1.05 C that cover CPU and GPU time, links of 6 GB/s, a hub whose share for
each of four GPUs is the paper's congested bandwidth, 5 us for an interrupt and for a worker, and
the execution times of the video streams. The paper's list of CPU-only tasks adds up to 22 where it
says 28; eight of utilisation 0.3 instead of two make it 28.
"""

from __future__ import annotations

import random
from typing import Any

Scenario = dict[str, Any]
WORST_RATE = 1_242_756_741
"""Bytes a second: 512 KiB in half of the 0.84375 ms that T1's copies take."""
PERIODS_MS = (10, 15, 20, 25, 30, 40, 50, 60, 75)
SECONDS = 180
VISION_SECONDS = 120
SYNTHETIC_SEED = 2013
ABERRANT_EACH = 8
"""Aberrant tasks in each cluster, T1 among them."""
SCHEDULERS = {"C-EDF": "edf", "C-RM": "rm"}
GPUS = 8
MACHINE = {
    "cpus": 12, "cpus_each": 6, "gpus": GPUS, "gpus_each": 4,
    "link": "6GB/s", "hub": f"{4 * WORST_RATE}B/s", "interrupt": "5us", "worker": "5us",
}  # fmt: skip


def synthetic(scheduler: str, *, aberrant: bool, budget: bool, seconds: int = SECONDS) -> Scenario:
    """The 62 tasks of Figures 6 and 7 and of Table 2."""
    rng = random.Random(SYNTHETIC_SEED)
    tasks = []
    wild = [0, 0]
    for number, utilisation in enumerate([0.1] * 14 + [0.25] * 14 + [0.5] * 6):
        name = {0: "T2", 14: "T1"}.get(number, f"gpu{number}")
        period_ms = {"T1": 15, "T2": 75}.get(name) or rng.choice(PERIODS_MS)
        cluster = number % 2
        task = _gpu_task(name, period_ms, utilisation, cluster, rng)
        chosen = name == "T1" or (name != "T2" and wild[cluster] < ABERRANT_EACH - (cluster == 0))
        wild[cluster] += chosen and name != "T1"
        if aberrant and chosen:
            task["aberrant"] = {"every": "5s", "factor": 10}
        tasks.append(task)
    for number, utilisation in enumerate([0.1] * 12 + [0.2] * 8 + [0.3] * 8):
        period_ms = rng.choice(PERIODS_MS)
        tasks.append(
            {
                "name": f"cpu{number}",
                "period": f"{period_ms}ms",
                "offset": f"{rng.randrange(period_ms * 1000)}us",
                "cpu": f"{int(utilisation * period_ms * 1_000_000)}ns",
                "cluster": number % 2,
                "noise": 0.02,
            }
        )
    edf = scheduler == "edf"
    settings = {
        "scheduler": scheduler,
        "rho": 3,
        "allocator": "r2dglp-wc" if edf else "priority",
        "units": "fifo" if edf else "priority",
        "migration": "peer",
        "copies": {"chunk": "2MiB"},
        "budget": {"policy": "early" if budget else "none"},
    }
    return {
        "run": {"duration": f"{seconds}s", "seed": 1},
        "machine": dict(MACHINE),
        "gpusync": settings,
        "task": tasks,
    }


def _gpu_task(
    name: str, period_ms: int, utilisation: float, cluster: int, rng: random.Random
) -> dict[str, Any]:
    """A tenth of a job is CPU time, 67.5 % kernels and 22.5 % copies, half of them inwards."""
    cost_ns = utilisation * period_ms * 1_000_000
    size = int(cost_ns * 0.9 * 0.25 / 2 * WORST_RATE / 1_000_000_000)
    return {
        "name": name,
        "period": f"{period_ms}ms",
        "offset": f"{rng.randrange(period_ms * 1000)}us",
        "cpu": f"{int(cost_ns * 0.1)}ns",
        "kernels": [f"{int(cost_ns * 0.9 * 0.75)}ns"],
        "input": f"{size}B",
        "output": f"{size}B",
        "state": f"{4 * size}B",
        "cluster": cluster,
        "noise": 0.02,
        "split": True,
    }


STREAMS = (("fast", 2, "33333333ns", 1), ("medium", 10, "50ms", 1), ("slow", 18, "100ms", 4))
"""Name, how many, the period, and pixels in units of 320x240."""
ORDERS = {
    "C-EDF, FIFO": ("edf", "r2dglp-wc", "fifo"),
    "C-EDF, priority": ("edf", "priority", "priority"),
    "C-RM, priority": ("rm", "priority", "priority"),
}
SHAPES = {
    "g=1": (1, "peer"),
    "g=2, peer": (2, "peer"),
    "g=2, system": (2, "system"),
    "g=4, peer": (4, "peer"),
    "g=4, system": (4, "system"),
}


def vision(order: str, shape: str, seconds: int = VISION_SECONDS) -> Scenario:
    """The thirty video streams of Figure 8."""
    scheduler, allocator, units = ORDERS[order]
    each, migration = SHAPES[shape]
    clusters = GPUS // each
    tasks: list[dict[str, Any]] = []
    for name, count, period, pixels in STREAMS:
        for number in range(count):
            place = len(tasks) % clusters
            tasks.append(
                {
                    "name": f"{name}{number}",
                    "period": period,
                    "cpu": f"{1 if pixels == 1 else 3}ms",
                    "kernels": [f"{6 * pixels}ms"],
                    "input": f"{512 * pixels}KiB",
                    "output": f"{512 * pixels}KiB",
                    "state": f"{6656 * pixels}KiB",
                    "cluster": place // (clusters // 2),
                    "gpu_cluster": place % (clusters // 2),
                    "noise": 0.02,
                    "split": True,
                }
            )
    return {
        "run": {"duration": f"{seconds}s", "seed": 1},
        "machine": {**MACHINE, "gpus_each": each},
        "gpusync": {
            "scheduler": scheduler,
            "rho": 2,
            "allocator": allocator,
            "units": units,
            "migration": migration,
            "copies": {"chunk": "2MiB"},
        },
        "task": tasks,
    }
