"""Long kernels beside jobs that come regularly, on the software driver: they do not begin just
before a job, all of them get done, and nobody hangs."""

from __future__ import annotations

import bisect
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.wire.protocol import TURNS
from tests.bench.cuda_pieces import LEARNED, LOW, SLOW_ARRIVALS, SPINS, fates, kernels, log, rival
from tests.bench.softcuda import WARM_UP, expected_checksum
from tests.integration import cuda
from tests.integration.daemon_client import Client

__all__ = ["log"]
pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

LONG_US = 10_000
PERIOD_MS = 100
COUNT, UNTIL_KNOWN = 40, 10
"""Jobs, and after how many of them the estimator knows their period."""
JUST_BEFORE_NS = 3_000_000
"""Less than the lead, which is 5 ms in slow motion: timers of a busy machine may be late by some of
that."""
HIGH = ("--priority", "9", "--policy", "overlap")


def begins(regular: bool, numbers: random.Random) -> Iterator[float]:
    """When the jobs of an important program begin."""
    next_s = time.monotonic()
    for _ in range(COUNT):
        next_s += PERIOD_MS / 1000 * (1 if regular else numbers.uniform(0.75, 1.25))
        yield next_s


def just_before(client: Client, log: Path, low: cuda.Program, *, regular: bool) -> int:
    """How many long kernels began just before one of the jobs. How long these take differs, so when
    the kernels behind them would begin is anybody's guess."""
    low.tell(f"series {LONG_US} {COUNT * PERIOD_MS * 1000 // LONG_US}")
    numbers, asked = random.Random(1), []
    for at_s in begins(regular, numbers):
        time.sleep(max(0.0, at_s - time.monotonic()))
        asked.append(time.monotonic_ns())
        client.set_busy(True)
        client.submit()
        client.wait_grant()
        time.sleep(numbers.uniform(1, 2) * LONG_US / 1e6)
        client.set_busy(False)
        client.rest()
    assert low.heard() == "series 0"
    assert low.do("right") == ["bad 0"]
    begun = sorted(kernels(log, low))
    counts = (
        bisect.bisect(begun, at_ns) - bisect.bisect(begun, at_ns - JUST_BEFORE_NS)
        for at_ns in asked[UNTIL_KNOWN:]
    )
    return sum(counts)


@SLOW_ARRIVALS
@pytest.mark.timeout(120)
def test_fewer_long_kernels_begin_just_before_a_job_that_is_regular(
    managed: cuda.Managed, log: Path
) -> None:
    """If nothing were held back as many would begin as before jobs that come at any time, some ten.
    On a busy machine jobs may not be regular, and the daemon's timers late: then it is tried
    again."""
    found = []
    with rival(managed) as client:
        client.send(TURNS)
        low = fates(managed, log, *LOW)
        for _ in range(LEARNED):
            assert low.do(f"series {LONG_US} 1", "right") == ["series 0", "bad 0"]
        for _ in range(5):
            any_time = just_before(client, log, low, regular=False)
            regularly = just_before(client, log, low, regular=True)
            if 3 * regularly < any_time:
                return
            found.append((any_time, regularly))
    raise AssertionError(f"at any time, and regularly: {found}")


@SPINS
def test_both_get_their_work_done_with_right_results(managed: cuda.Managed) -> None:
    """On one GPU, whose driver takes a long kernel off it for the other one."""
    high = managed.start("cudaapp", "fix", 1000, 1, 10, 80, options=HIGH)
    low = managed.start("cudaapp", "fix", 5000, 4, 0, 20, options=LOW)
    for program, count, each in ((high, 80, 1), (low, 20, 4)):
        answer = cuda.answer(program.finish())
        assert answer["jobs"] == count
        assert answer["checksum"] == expected_checksum(WARM_UP + count, each)
