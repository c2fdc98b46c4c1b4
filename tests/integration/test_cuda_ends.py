"""How the end of a job is told to others, on the software driver: where programs run side by side
the GPU says it by a mark, before the program can; elsewhere nothing is put behind its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.live.devices import mps
from tests.bench.cuda_pieces import LOW, done, fates, log
from tests.integration import cuda
from tests.integration.daemon_client import DaemonProcess, wait_until

__all__ = ["log"]
pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

HIGH = ("--priority", "9", "--policy", "overlap")
POLLS = pytest.mark.parametrize("spin", ["1000ms"])
JOBS, KERNEL_US = 10, 3000


@pytest.fixture
def server(tmp_path: Path) -> dict[str, str]:
    """What a program under MPS has in its environment."""
    folder = tmp_path / "pipes"
    folder.mkdir()
    (folder / "control").touch()
    return {mps.PIPES: str(folder)}


def behind_kernels(log: Path, program: cuda.Program) -> list[list[str]]:
    """What the GPU has done for it after each of its kernels, up to the next."""
    parts: list[list[str]] = []
    for kind, _, _ in done(log, program):
        if kind == "spin_us":
            parts.append([])
        elif parts:
            parts[-1].append(kind)
    return parts


def jobs(managed: cuda.Managed, log: Path, end: str, more: dict[str, str]) -> list[list[str]]:
    """Of an important program beside a greedy one, each waited for in this way."""
    low = fates(managed, log, *LOW, more=more)
    high = fates(managed, log, *HIGH, more=more)
    assert high.do(f"launch {KERNEL_US}", "sync") == ["launched 0", "synced 0"]
    low.tell("series 500 2000")
    wait_until(lambda: managed.passed(low) > 20, "the other one has the GPU")
    for _ in range(JOBS):
        answers = high.do(f"launch {KERNEL_US}", end, "sync")
        assert [answer.split()[1] for answer in answers] == ["0", "0", "0"]
    assert low.heard() == "series 0"
    assert low.do("right") == ["bad 0"]
    return behind_kernels(log, high)[1:]


def mostly(found: list[list[str]]) -> list[str]:
    """A job may be over before the daemon has looked; and one that has just begun when a lease ends
    has a mark behind it anyway."""
    assert len(found) == JOBS
    return max(found, key=found.count)


@POLLS
@pytest.mark.parametrize(
    ("end", "expected"), [("read", ["write", "copy"]), ("sync", ["write"])], ids=["read", "sync"]
)
def test_side_by_side_a_mark_stands_between_a_jobs_work_and_the_copy_it_is_waited_for_in(
    managed: cuda.Managed, log: Path, server: dict[str, str], end: str, expected: list[str]
) -> None:
    assert mostly(jobs(managed, log, end, server)) == expected


@POLLS
def test_in_time_slices_nothing_is_put_behind_a_job(managed: cuda.Managed, log: Path) -> None:
    assert mostly(jobs(managed, log, "read", {mps.PIPES: str(log)})) == ["copy"]


@pytest.mark.parametrize("spin", ["0ms"])
def test_nor_where_the_daemon_does_not_look_all_the_time(
    managed: cuda.Managed, log: Path, server: dict[str, str]
) -> None:
    assert mostly(jobs(managed, log, "read", server)) == ["copy"]


@POLLS
def test_nor_behind_one_that_is_alone(
    managed: cuda.Managed, log: Path, server: dict[str, str]
) -> None:
    high = fates(managed, log, *HIGH, more=server)
    for _ in range(JOBS):
        assert high.do(f"launch {KERNEL_US}", "read", "sync")[1] == "read 0"
    assert behind_kernels(log, high) == [["copy"]] * JOBS


@POLLS
def test_a_daemon_that_dies_before_a_mark_is_reached_harms_nobody(
    managed: cuda.Managed, log: Path, server: dict[str, str]
) -> None:
    low, high = fates(managed, log, *LOW, more=server), fates(managed, log, *HIGH, more=server)
    for _ in range(3):
        for program in (low, high):
            wait_until(
                lambda who=program: (  # type: ignore[misc]
                    who.do("series 50 1", "right")[1] == "bad 0" and managed.passed(who) > 0
                ),
                "the daemon serves it",
            )
        low.tell("series 500 400")
        high.tell(f"launch {10 * KERNEL_US}", "read")
        assert high.heard() == "launched 0"
        managed.daemon.kill()
        assert high.heard() == "read 0"
        assert low.heard() == "series 0"
        managed.daemon = DaemonProcess(managed.daemon.folder, *managed.daemon.options)
    assert low.do("right") == ["bad 0"]
