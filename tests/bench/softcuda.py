"""The software CUDA driver's program: what it prints, and what it computes."""

from __future__ import annotations

import itertools

CHECKS: dict[str, dict[str, object]] = {
    "bad_address": {},
    "callbacks": {},
    "captures": {},
    "contexts": {},
    "crash": {},
    "destroyed": {},
    "devices": {"SOFTCUDA_DEVICES": 2},
    "errors": {},
    "events": {},
    "fork": {},
    "graphs": {},
    "kernels": {},
    "large": {},
    "legacy": {},
    "lookup": {},
    "memory": {},
    "no_values": {"SOFTCUDA_NO_MEMOPS": 1},
    "order": {},
    "streams": {},
    "threads": {},
    "values": {},
}
STREAMS = ("null", "legacy", "thread", "blocking", "nonblocking")
JOBS, KERNELS, WARM_UP = 4, 6, 3


def expected_checksum(jobs: int, kernels: int) -> int:
    """What cudaapp's kernels make of its memory, in order and each once, by the formula."""
    words = [1] * 64
    for _, number in itertools.product(range(jobs), range(kernels)):
        words = [((x ^ number) * 1664525 + 1013904223 + i) % 2**32 for i, x in enumerate(words)]
    value = 2166136261
    for word in words:
        value = (value ^ word ^ word >> 16) * 16777619 % 2**32
    return value


CHECKSUM = expected_checksum(WARM_UP + JOBS, KERNELS)
