"""CUDA programs beside each other: the window, priorities, deadlines and reserves, on the software
driver. What can be counted is counted; what is timed has wide margins."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import cuda, gl
from tests.integration.daemon_client import PATIENCE_S, Client, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(90)]

LOW, HIGH = ("--priority", "1"), ("--priority", "9")


@pytest.fixture
def recorded(gpu: cuda.Gpu, tmp_path: Path, spin: str) -> Iterator[cuda.Managed]:
    """Whatever happens is recorded, and keeps the rules."""
    trace = str(tmp_path / "trace.pftrace")
    with cuda.managed(gpu, tmp_path / "run", "--trace", trace, "--spin", spin) as managed:
        yield managed
        managed.daemon.kill(signal.SIGTERM)
    check = [cuda.HEADWAY, "check", "--tolerance", "50ms", trace]  # late timers: 36 ms was seen
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").touch()
    return tmp_path / "log"


def fates(managed: cuda.Managed, log: Path, *options: str) -> cuda.Program:
    program = managed.start("fates", options=options, env={"SOFTCUDA_LOG": log})
    assert program.heard().startswith("ready")
    return program


def kernels(log: Path, program: cuda.Program) -> list[tuple[int, int]]:
    """When its kernels that are over began and ended on the GPU."""
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 4]
    return [
        (int(start), int(end))
        for pid, _, kind, start, end in lines
        if (int(pid), kind) == (program.pid, "spin_us")
    ]


def rival(managed: cuda.Managed, priority: int) -> Client:
    """One who is on the GPU until it says otherwise."""
    token = managed.daemon.ask(do="run", name="rival", priority=priority)["token"]
    client = managed.daemon.client("rival", token)
    client.submit()
    client.wait_grant()
    return client


# -- the window ------------------------------------------------------------------------------------


def test_corunning_others_no_more_than_the_window_is_in_flight(
    managed: cuda.Managed, log: Path
) -> None:
    """The program is far ahead; of what it has queued no more than a window goes on."""
    high, low = fates(managed, log, *HIGH), fates(managed, log, *LOW)
    assert low.do("launches 150 100", "sync") == ["launched 0", "synced 0"]  # that is learned
    went_on = []
    for _ in range(5):
        assert low.do("launches 150 1000") == ["launched 0"]
        asked_ns = time.monotonic_ns()
        assert high.do("launch 50", "sync") == ["launched 0", "synced 0"]
        begun_ns = kernels(log, high)[-1][0]
        went_on.append(sum(asked_ns < start < begun_ns for start, _ in kernels(log, low)))
        assert low.do("sync") == ["synced 0"]
        queued = sum(start > begun_ns for start, _ in kernels(log, low))
        assert queued > 40, "the rest waited on the GPU"
    assert min(went_on) <= 6  # a piece is one or two of them; to be heard takes some time
    assert len(kernels(log, low)) == 5100


def test_without_gates_on_the_gpu_the_program_waits(managed: cuda.Managed, log: Path) -> None:
    hidden = {"SOFTCUDA_LOG": log, "SOFTCUDA_NO_MEMOPS": 1}
    fates(managed, log, *HIGH)
    low = managed.start("fates", options=LOW, env=hidden)
    assert low.heard().startswith("ready")
    assert low.do("launches 20000 5") == ["launched 0"]
    assert len(kernels(log, low)) >= 4  # each is longer than the window: one at a time
    assert low.do("sync", "launches 50 100") == ["synced 0", "launched 0"]
    in_flight = 5 + 100 - len(kernels(log, low))
    assert in_flight <= 10  # 200 us are 4 of them


def test_alone_there_is_no_window_and_the_most_important_one_has_none(
    managed: cuda.Managed, log: Path
) -> None:
    alone = fates(managed, log, *HIGH)
    for _ in range(2):
        assert alone.do("launches 20000 20") == ["launched 0"]
        assert len(kernels(log, alone)) % 20 < 10  # that would be 0.2 s of them
        assert alone.do("sync") == ["synced 0"]
        assert len(kernels(log, alone)) % 20 == 0
        fates(managed, log, *LOW)  # the second time it has company


# -- priorities ------------------------------------------------------------------------------------


def test_prt_waits_for_the_drain(managed: cuda.Managed, log: Path) -> None:
    low, high = fates(managed, log, *LOW), fates(managed, log, *HIGH, "--policy", "prt")
    tried = 0
    for number in range(8):
        assert low.do("launch 40000") == ["launched 0"]
        tried += len(kernels(log, low)) == number
        assert high.do("launch 50", "sync") == ["launched 0", "synced 0"]
        assert low.do("sync") == ["synced 0"]
        (before_ns, after_ns), (start_ns, _) = kernels(log, low)[-1], kernels(log, high)[-1]
        assert not before_ns < start_ns < after_ns
    assert tried > 0, "the machine is too busy: the short kernel never met the long one"
    assert managed.entry(low)["overdue"] == 0


def test_what_a_destroyed_stream_had_in_flight_is_waited_for(
    managed: cuda.Managed, log: Path
) -> None:
    low, high = fates(managed, log, *LOW), fates(managed, log, *HIGH)
    assert high.do("launches 15000 4", "destroy") == ["launched 0", "destroyed 0"]
    assert low.do("launch 50", "sync") == ["launched 0", "synced 0"]
    assert len(kernels(log, high)) == 4
    assert kernels(log, low)[0][0] >= kernels(log, high)[-1][1]
    assert high.do("launch 50", "sync") == ["launched 0", "synced 0"]


def test_overlap_goes_at_once_beside_a_long_kernel(managed: cuda.Managed, log: Path) -> None:
    low = fates(managed, log, *LOW)
    high = fates(managed, log, *HIGH, "--policy", "overlap")
    assert low.do("launch 800000") == ["launched 0"]
    assert high.do("launch 50", "sync") == ["launched 0", "synced 0"]
    assert kernels(log, low) == []  # it is still on the GPU
    assert managed.entry(low)["overdue"] == 0  # and was not given up
    assert low.do("sync") == ["synced 0"]
    assert kernels(log, high)[0][1] < kernels(log, low)[0][1]


@pytest.mark.parametrize("wait", ["sync", "read"])
def test_an_important_kernel_that_takes_long_is_not_taken_for_idle(
    managed: cuda.Managed, log: Path, wait: str
) -> None:
    """However its program waits for it."""
    low, high = fates(managed, log, *LOW), fates(managed, log, *HIGH)
    assert high.do("launch 50", "sync") == ["launched 0", "synced 0"]
    high.tell("launch 400000")
    assert high.heard() == "launched 0"
    high.tell(wait, "sync")
    assert low.do("launches 50 10", "sync") == ["launched 0", "synced 0"]
    assert [high.heard(), high.heard()][-1] == "synced 0"
    assert kernels(log, low)[0][0] >= kernels(log, high)[-1][1]


@pytest.mark.parametrize("spin", ["0ms", "20ms"])
@pytest.mark.parametrize("policy", ["prt", "overlap"])
def test_the_important_program_goes_first_and_the_other_gets_the_rest(
    recorded: cuda.Managed, policy: str
) -> None:
    low = recorded.greedy(*LOW)
    high = recorded.start(
        "cudaapp", "hp", 500, 2, 10, 2, options=(*HIGH, "--policy", policy), env={"LINGER": 1}
    )
    answer = json.loads(high.heard())
    assert answer["jobs"] > 50  # of 200 that it wants
    entry = recorded.entry(high)
    assert entry["free"] == 0
    assert entry["jobs"] > 10  # those that follow each other without a rest are one
    recorded.goes_on(low)


def test_equals_share_by_slices(recorded: cuda.Managed) -> None:
    both = [recorded.greedy(seconds=3), recorded.greedy(seconds=3)]
    shares = [json.loads(program.heard())["busy"] for program in both]
    assert max(shares) < 3 * min(shares)
    assert sum(shares) > 0.1  # on a machine that does other things besides


# -- deadlines -------------------------------------------------------------------------------------


def test_the_earlier_deadline_goes_first(managed: cuda.Managed, log: Path) -> None:
    edf = ("--priority", "edf")
    late = fates(managed, log, *edf, "--period", "100s")
    soon = fates(managed, log, *edf, "--period", "100s", "--deadline", "50s")
    with rival(managed, 9) as holder:
        for program in (late, soon):
            program.tell("launch 5000", "sync")
            wait_until(
                lambda who=program: managed.entry(who)["state"] == "waiting",  # type: ignore[misc]
                "it waits",
            )
        holder.complete()
        for program in (late, soon):
            assert [program.heard(), program.heard()] == ["launched 0", "synced 0"]
    assert kernels(log, soon)[0][1] <= kernels(log, late)[0][0]


def test_jobs_that_take_longer_than_their_deadline_are_counted(managed: cuda.Managed) -> None:
    for deadline, missed in (("1ms", True), ("100s", False)):
        program = managed.start(
            "cudaapp", "fix", 2000, 2, 0, 10, options=("--deadline", deadline), env={"LINGER": 1}
        )
        program.heard()
        entry = managed.entry(program)
        assert entry["jobs"] >= 13
        assert (entry["misses"] >= 13) == missed
        assert entry["misses"] == 0 or missed


def test_a_program_says_itself_what_a_job_is(managed: cuda.Managed, log: Path) -> None:
    program = fates(managed, log)
    before = managed.entry(program)
    assert program.do("job 1 2000", "job 100000000 100", "job 0 0") == ["job 1"] * 3
    after = managed.entry(program)
    assert after["jobs"] - before["jobs"] == 3  # though it waited for the GPU six times
    assert after["misses"] - before["misses"] == 1


# -- reserves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel_us", [500, 5000])
def test_a_reserve_bounds_what_a_greedy_program_gets(managed: cuda.Managed, kernel_us: int) -> None:
    """Kernels longer than the budget run into debt, and pay for it."""
    reserve = ("--reserve", "3ms/10ms")
    program = managed.start("cudaapp", "lp", kernel_us, 4, 0, 2, options=reserve)
    answer = json.loads(program.heard())
    assert 0.15 < answer["busy"] < 0.4
    assert program.finish().returncode == 0


@pytest.mark.parametrize(("kernel_us", "kernels"), [(100, 40), (5000, 2)])
def test_a_program_that_nobody_waits_for_is_charged_with_what_it_uses(
    managed: cuda.Managed, kernel_us: int, kernels: int
) -> None:
    """Nobody sees when its turns begin and end but the GPU."""
    reserve = ("--reserve", "70ms/100ms")
    program = managed.start("cudaapp", "lp", kernel_us, kernels, 0, 3, options=reserve)
    assert 0.3 < json.loads(program.heard())["busy"] < 0.77
    assert program.finish().returncode == 0


def test_a_program_that_says_nothing_pays_for_kernels_that_nobody_knows(
    managed: cuda.Managed, log: Path
) -> None:
    """It queues 0.2 s of them and makes no call meanwhile."""
    program = fates(managed, log, "--reserve", "30ms/100ms")
    program.tell("series 5000 40")
    wait_until(lambda: len(kernels(log, program)) == 40, "all of them are done")
    begun_ns = kernels(log, program)[0][0]
    used_ns: Counter[int] = Counter()
    for start_ns, end_ns in kernels(log, program):
        used_ns[(start_ns - begun_ns) // 100_000_000] += end_ns - start_ns
    assert max(used_ns.values()) < 80_000_000, used_ns  # a period's, with what is looked at late
    assert len(used_ns) >= 5


def test_two_with_reserves_get_their_parts(recorded: cuda.Managed) -> None:
    options = [("--reserve", "2ms/20ms"), ("--reserve", "10ms/20ms")]
    both = [recorded.start("cudaapp", "lp", 500, 4, 0, 3, options=o) for o in options]
    small, large = (json.loads(program.heard())["busy"] for program in both)
    assert small < 0.2
    assert small * 2 < large < 0.65


def test_kernels_that_run_over_the_end_of_a_period_are_charged_to_both(
    recorded: cuda.Managed,
) -> None:
    """A program that is charged only when its work is done pays twice for every other period, and
    gets half of what it may have."""
    program = recorded.start("cudaapp", "lp", 20_000, 1, 0, 3, options=("--reserve", "90ms/100ms"))
    assert 0.7 < json.loads(program.heard())["busy"] < 0.97


def test_two_greedy_programs_with_long_kernels_share_the_gpu_by_their_reserves(
    recorded: cuda.Managed,
) -> None:
    options = [("--reserve", "30ms/100ms"), ("--reserve", "70ms/100ms")]
    start = {"START_AT": time.time() + 1.5}  # both are there by then
    both = [recorded.start("cudaapp", "lp", 5000, 2, 0, 3, options=o, env=start) for o in options]
    small, large = (json.loads(program.heard())["busy"] for program in both)
    assert 0.2 < small / (small + large) < 0.4
    assert small + large > 0.6


def test_gl_and_cuda_programs_are_under_one_set_of_books(stage: gl.Stage, gpu: cuda.Gpu) -> None:
    """Who is more important goes first, whatever it speaks; and both are charged."""
    shares = {}
    for cuda_first in (True, False):
        priorities = ("9", "1") if cuda_first else ("1", "9")
        bomb = (str(stage.built / "bomb"), gl.BOMB_SECONDS)
        stage.start(*bomb, options=("--name", "bomb", "--priority", priorities[1]))
        gl.wait_until(lambda: stage.is_managed("bomb"), "the bomb is at the gate")
        run = [cuda.HEADWAY, "run", "-q", "--name", "cuda", "--priority", priorities[0], "--"]
        program = subprocess.Popen(
            [*run, *gpu.command("cudaapp", "lp", 1000, 4, 0, 1.5)],
            env=gpu.environment({"HEADWAY_DIR": stage.folder, "LINGER": 1}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with program:
            assert program.stdout is not None
            shares[cuda_first] = json.loads(program.stdout.readline())["busy"]
            for name in ("cuda", "bomb"):
                assert stage.channels(name)[0]["gpu_ns"] > 0
            program.kill()
        stage.stop_programs()
        gl.wait_until(lambda: not stage.channels(), "all are gone", seconds=PATIENCE_S)
    assert shares[True] > 1.5 * shares[False], shares
