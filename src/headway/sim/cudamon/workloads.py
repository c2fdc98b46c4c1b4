"""CudaMon's machine, kernels and set-ups as scenarios (report, §3.3 and §5).

Given by the report: a Tesla V100 with 80 multiprocessors, each of which runs 128 threads at once;
kernels of 7168 seeds (56 blocks of 128) that take 4.2 ms alone; a deadline of 4.5 ms; shares of
100 and 20 %; a detector that uses 3 to 4 % of the GPU, with a deadline slightly above its response.

Chosen, for the report does not say: `INTERLEAVE`, `RESTART`, that the tasks run job after job, and
the detector's frames. `INTERLEAVE` is what its own two measurements agree on: two blocks on a
multiprocessor take 4.74 / 4.2, up to four take 5.64 / 4.2, which is 13 and 11 % for each further
one. The detector's `SPREAD` and deadline were searched for, so that 56 and 32 of 100 frames miss.
"""

from __future__ import annotations

from typing import Any

Scenario = dict[str, Any]

MULTIPROCESSORS, THREADS = 80, 128
SEEDS = 7168
BLOCKS = SEEDS // THREADS
ALONE, DEADLINE = "4.2ms", "4.5ms"
RESIDENT = 16
"""Blocks of 128 threads that fit on a V100's multiprocessor: it holds 2048 threads."""
INTERLEAVE = 0.12
RESTART = "300ms"
"""From SIGINT to the first kernel of the program that was started again: mostly CUDA's context."""
HIGH, LOW = "high", "low"
FRAMES = 500
KERNELS_A_FRAME, SPREAD = 20, 0.06


def _kernel(blocks: int) -> Scenario:
    return {"kernel": ALONE, "blocks": blocks, "per_sm": RESIDENT, "interleave": INTERLEAVE}


def prng(name: str, priority: int, *, blocks: int = BLOCKS, share: int = 100) -> Scenario:
    """One PRNG task, job after job."""
    own = {"deadline": DEADLINE, "share": share, "work": [_kernel(blocks)]}
    return {"name": name, "priority": priority, "cuda": own}


def detector() -> Scenario:
    """The TensorFlow application: a frame is many small kernels with CPU time between them."""
    small = {"kernel": "50us", "blocks": 40, "per_sm": RESIDENT, "interleave": INTERLEAVE}
    steps = [small, {"sync": "all"}, {"cpu": "1.2ms", "spread": SPREAD}]
    work = [{"repeat": KERNELS_A_FRAME, "work": steps}]
    own = {"deadline": "25.3ms", "jobs": FRAMES, "work": work}
    return {"name": HIGH, "priority": 2, "cuda": own}


def _scenario(tasks: list[Scenario], duration: str, manager: Scenario, sms: int) -> Scenario:
    return {
        "run": {"duration": duration, "seed": 1},
        "device": {"kind": "interleaved", "multiprocessors": sms},
        "manager": manager,
        "task": tasks,
    }


def alone(blocks: int, *, multiprocessors: int = MULTIPROCESSORS) -> Scenario:
    """One kernel of so many blocks, a few times, with so many multiprocessors."""
    task = prng(HIGH, 1, blocks=blocks)
    task["cuda"]["jobs"] = 3
    return _scenario([task], "1s", {"kind": "none"}, multiprocessors)


def in_one(threads: int) -> Scenario:
    """So many threads in one multiprocessor."""
    return alone(-(-threads // THREADS), multiprocessors=1)


def manual(low_share: int) -> Scenario:
    """Two PRNG tasks, of which the less important one has this share by hand."""
    tasks = [prng(HIGH, 2), prng(LOW, 1, share=low_share)]
    return _scenario(tasks, "1s", {"kind": "none"}, MULTIPROCESSORS)


def detection(low_share: int) -> Scenario:
    """The detector beside a PRNG task that has this share by hand."""
    tasks = [detector(), prng(LOW, 1, share=low_share)]
    return _scenario(tasks, "20s", {"kind": "none"}, MULTIPROCESSORS)


def controlled(controller: str, duration: str, **manager: str) -> Scenario:
    """Two PRNG tasks, and a controller that moves the share of the less important one."""
    how = {"kind": "shares", "controller": controller, **manager}
    return _scenario([prng(HIGH, 2), prng(LOW, 1)], duration, how, MULTIPROCESSORS)
