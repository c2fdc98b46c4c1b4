"""What the programs beside this file have in common: rounds of work, timed, with a hash.

A program says one line when it is ready. For every line it is told it then does the same rounds,
one per period, and says one JSON line: quantiles of the time a round takes, and the hash of
everything that came back from the GPU, which is always the same. It ends when its input ends.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable

WARM_UP = 10
SPIN_S = 0.001
"""A sleep may end late: the last bit before a round is due is waited for awake."""


def serve(work: Callable[[int], bytes]) -> None:
    """`work` does a round, given its number, and returns what it computed."""
    parser = argparse.ArgumentParser(description="rounds of work on a GPU, for every line of input")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--period-ms", type=float, default=10)
    options = parser.parse_args()
    for number in range(WARM_UP):
        work(number)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(measure(work, options.rounds, options.period_ms / 1e3)), flush=True)


def measure(work: Callable[[int], bytes], rounds: int, period_s: float) -> dict[str, float | str]:
    found, times_us = hashlib.sha256(), []
    due_s = time.monotonic()
    for number in range(rounds):
        wait_until(due_s)
        since_s = time.monotonic()
        output = work(number)
        times_us.append((time.monotonic() - since_s) * 1e6)
        found.update(output)
        due_s = max(due_s + period_s, time.monotonic())
    times_us.sort()
    last = len(times_us) - 1
    return {
        "p50_us": times_us[int(0.5 * last)],
        "p99_us": times_us[int(0.99 * last)],
        "max_us": times_us[-1],
        "hash": found.hexdigest()[:16],
    }


def wait_until(due_s: float) -> None:
    left_s = due_s - time.monotonic()
    if left_s > SPIN_S:
        time.sleep(left_s - SPIN_S)
    while time.monotonic() < due_s:
        pass
