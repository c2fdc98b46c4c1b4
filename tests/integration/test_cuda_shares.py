"""Programs that get a share of the multiprocessors while they run, on the software driver's green
contexts: nothing is lost, doubled or out of order, and everything they ask means what it meant."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.bench.cuda_programs import SETS_AND_COPIES, WAYS
from tests.bench.shares import Changer, beside_others, parts, wait_until_told, with_share
from tests.bench.softcuda import CHECKS, CHECKSUM, JOBS, KERNELS, STREAMS, WARM_UP
from tests.integration import cuda
from tests.integration.command import headway
from tests.integration.daemon_client import DaemonProcess, wait_until

pytestmark = pytest.mark.timeout(120)

SMS, STEP = 132, 8
QUARTER = "25%"
QUARTER_SMS = 32
QUARTER_KEPT = QUARTER_SMS * 1000 // SMS
CHANGES = 200


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").touch()
    return tmp_path / "log"


@pytest.fixture
def confined(managed: cuda.Managed, tmp_path: Path, log: Path) -> cuda.Program:
    """A program with a quarter of the multiprocessors, which it knows nothing of."""
    return start(managed, tmp_path, log)


def start(
    managed: cuda.Managed, folder: Path, log: Path, share: str = QUARTER, **env: object
) -> cuda.Program:
    program = with_share(managed, "confined", share, folder, SOFTCUDA_LOG=log, **env)
    assert program.heard().startswith("ready")
    assert program.do("us 1", "grid 1", "sync") == ["us 1", "grid 0", "sync 0"]
    wait_until(lambda: managed.entry(program)["share_told"] < 1000, "it is told")
    return program


def places(log: Path, program: cuda.Program, *words: str) -> list[str]:
    """Where the kernels ran that it launched for these words; its results are right."""
    before = len(parts(log, program))
    assert program.do(*words, "sum") == [*(f"{word.split()[0]} 0" for word in words), "sum 0"]
    return parts(log, program)[before:]


def explained(managed: cuda.Managed, program: cuda.Program) -> str:
    env = {**os.environ, "HEADWAY_DIR": str(managed.daemon.folder)}
    return headway("explain", str(program.pid), env=env).stdout


# -- everything means what it meant --------------------------------------------------------------


@pytest.mark.parametrize("way", ["link", "proc2"])
def test_the_drivers_promises_hold_under_a_share(
    managed: cuda.Managed, tmp_path: Path, way: str
) -> None:
    """The checks say what each call returned if it was not what the driver promises."""
    suffix, env = WAYS[way]
    environment = {**env, **beside_others(tmp_path)}
    started = []
    for check, per_thread in itertools.product(CHECKS, (0, 1)):
        settings = {**environment, **CHECKS[check], "PER_THREAD": per_thread}
        program = managed.start_directly(f"checks{suffix}", check, env=settings, share=QUARTER)
        started.append((check, per_thread, program))
        if len(started) % 4 == 0:  # some at a time
            started[-4][2].process.wait(60)
    for check, per_thread, program in started:
        result = program.finish()
        assert (result.returncode, result.stdout) == (0, ""), (check, per_thread, result.stderr)


def test_results_are_the_same_on_every_stream_and_for_every_launch(
    managed: cuda.Managed, tmp_path: Path
) -> None:
    kinds = [("STREAM", s) for s in STREAMS] + [("LAUNCH", how) for how in ("ex", "extra", "graph")]
    for (key, value), per_thread in itertools.product(kinds, (0, 1)):
        env = {key: value, "PER_THREAD": per_thread, "LINGER": 1}
        program = with_share(
            managed, "cudaapp", QUARTER, tmp_path, "fix", 50, KERNELS, 40, JOBS, **env
        )
        assert f'"checksum": {CHECKSUM}' in program.heard(), env
        entry = managed.entry(program)
        launches = (WARM_UP + JOBS) * (1 if value == "graph" else KERNELS)
        assert entry["passed"] == launches + SETS_AND_COPIES, env
        if value == "graph":
            assert (entry["share_kept"], entry["share_whole"] > 0) == (0, True)
        else:
            assert entry["share_kept"] == QUARTER_KEPT, env
        program.kill()


def test_streams_events_threads_and_ends_of_streams(
    managed: cuda.Managed, tmp_path: Path, log: Path
) -> None:
    program = with_share(managed, "fates", QUARTER, tmp_path, SOFTCUDA_LOG=log)
    assert program.heard().startswith("ready")
    assert program.do("launch 10", "sync") == ["launched 0", "synced 0"]
    wait_until_told(managed, program, 250)
    words = ("streams", "threads", "pingpong 5 200", "legacy 5 200", "series 5 200", "right")
    assert program.do(*words) == ["streams 0", "threads 0", "bad 0", "bad 0", "series 0", "bad 0"]
    assert not program.do("churn 5 300")[0].startswith("rounds -")
    assert Counter(parts(log, program))[f"spin_us@{QUARTER_SMS}"] > 1000


def test_a_capture_is_not_disturbed_and_its_graph_is_left_whole(
    confined: cuda.Program, managed: cuda.Managed, log: Path
) -> None:
    assert places(log, confined, "grid 1", "graph", "grid 1") == [
        f"spin_us@{QUARTER_SMS}",
        "spin_us",
        f"spin_us@{QUARTER_SMS}",
    ]
    assert managed.entry(confined)["share_whole"] == 1


def test_a_stream_keeps_its_priority_flags_and_context(confined: cuda.Program, log: Path) -> None:
    assert places(log, confined, "own", "grid 1") == 2 * [f"spin_us@{QUARTER_SMS}"]


def test_streams_that_are_destroyed_are_used_again(
    confined: cuda.Program, log: Path, managed: cuda.Managed
) -> None:
    """Of more streams than are followed at a time all are confined."""
    words = [word for _ in range(600) for word in ("grid 1", "again")]
    assert set(places(log, confined, *words)) == {f"spin_us@{QUARTER_SMS}"}
    assert managed.entry(confined)["unconfined"] == 0


# -- what is left whole --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["cooperative", "clusters", "named", "attribute 4", "attribute 6", "attribute 99"]
)
def test_a_kernel_that_may_need_all_of_them_has_them(
    confined: cuda.Program, managed: cuda.Managed, log: Path, word: str
) -> None:
    (place,) = places(log, confined, word)
    assert "@" not in place
    assert managed.entry(confined)["share_whole"] == 1
    assert places(log, confined, "grid 1") == [f"spin_us@{QUARTER_SMS}"]


@pytest.mark.parametrize("word", ["attribute 0", "attribute 8", "library"])
def test_other_kernels_are_confined(confined: cuda.Program, log: Path, word: str) -> None:
    assert places(log, confined, word) == [f"spin_us@{QUARTER_SMS}"]


def test_as_many_blocks_as_a_program_knows_of_multiprocessors_may_wait_for_each_other(
    confined: cuda.Program, log: Path
) -> None:
    assert places(log, confined, f"grid {SMS}") == [f"spin_us@{QUARTER_SMS}"]
    assert confined.do("ask") == ["ask 0"]
    found = places(log, confined, f"grid {SMS}", f"grid {2 * SMS}", f"grid {SMS + 1}")
    assert found == ["spin_us", "spin_us", f"spin_us@{QUARTER_SMS}"]


def test_a_context_of_the_programs_own_is_left_alone_and_that_is_said(
    confined: cuda.Program, managed: cuda.Managed, log: Path
) -> None:
    assert confined.do("context") == ["context 0"]
    assert managed.entry(confined)["unconfined"] == 3
    assert places(log, confined, "grid 1") == [f"spin_us@{QUARTER_SMS}"]


def test_a_program_with_green_contexts_of_its_own_is_left_whole_and_that_is_said(
    confined: cuda.Program, managed: cuda.Managed, log: Path
) -> None:
    assert confined.do("green 0") == ["green 0"]
    assert places(log, confined, "grid 1") == [f"spin_us@{SMS}"]
    said = explained(managed, confined)
    assert "the program makes green contexts itself" in said


def test_a_program_that_keeps_to_its_share_in_green_contexts_of_its_own_is_confined(
    confined: cuda.Program, managed: cuda.Managed, log: Path
) -> None:
    """As `headway.share()` has it. A larger part is no share, and counted as such."""
    assert confined.do("told") == ["told 250"]
    assert confined.do(f"green {QUARTER_SMS}") == ["green 0"]
    assert places(log, confined, "grid 1", "grid 1") == 2 * [f"spin_us@{QUARTER_SMS}"]
    entry = managed.entry(confined)
    assert (entry["share_kept"], entry["share_whole"]) == (QUARTER_KEPT, 0)
    assert confined.do(f"green {2 * QUARTER_SMS}") == ["green 0"]
    assert places(log, confined, "grid 1") == [f"spin_us@{2 * QUARTER_SMS}"]
    assert managed.entry(confined)["share_whole"] == 1


@pytest.mark.parametrize("refused", [2, 3, 4, 5])
def test_what_the_driver_refuses_is_left_whole_and_the_program_runs_on(
    managed: cuda.Managed, tmp_path: Path, log: Path, refused: int
) -> None:
    """Each step to a green context's stream: splitting, describing, creating, the stream itself."""
    program = start(managed, tmp_path, log, SOFTCUDA_NO_GREEN=refused)
    assert places(log, program, "grid 1", "grid 1") == 2 * ["spin_us"]
    said = explained(managed, program)
    assert "its work is not confined, for the driver makes no green contexts" in said


def test_without_green_contexts_nothing_changes_and_that_is_said(
    managed: cuda.Managed, tmp_path: Path, log: Path
) -> None:
    program = start(managed, tmp_path, log, SOFTCUDA_NO_GREEN=1)
    assert places(log, program, "grid 1", "grid 500") == ["spin_us", "spin_us"]
    said = explained(managed, program)
    assert "its work is not confined, for the driver makes no green contexts" in said


def test_a_share_below_the_devices_step_is_its_smallest_part_and_that_is_said(
    managed: cuda.Managed, tmp_path: Path, log: Path
) -> None:
    program = start(managed, tmp_path, log, "1%")
    assert places(log, program, "grid 1") == [f"spin_us@{STEP}"]
    said = explained(managed, program)
    assert "or the GPU has no smaller part" in said


# -- ends ----------------------------------------------------------------------------------------


def test_a_released_context_goes_and_the_next_one_is_confined_as_well(
    confined: cuda.Program, log: Path
) -> None:
    """What was made there must not keep the program's memory alive."""
    assert places(log, confined, "grid 1") == [f"spin_us@{QUARTER_SMS}"]
    assert confined.do("release", "sync") == ["release 0", "sync 709"]
    assert confined.do("retain") == ["retain 0"]
    assert places(log, confined, "grid 1") == [f"spin_us@{QUARTER_SMS}"]


def test_a_released_context_goes_with_what_waits_in_it(confined: cuda.Program, log: Path) -> None:
    """As it would without a share; whoever waits for that work hears of it and goes on."""
    assert confined.do("hold", "grid 1") == ["hold 0", "grid 0"]
    assert confined.do("release", "sync") == ["release 0", "sync 709"]
    assert confined.do("retain") == ["retain 0"]
    assert places(log, confined, "grid 1") == [f"spin_us@{QUARTER_SMS}"]


def test_a_context_that_is_held_twice_is_released_twice(confined: cuda.Program, log: Path) -> None:
    assert confined.do("retain", "release") == ["retain 0", "release 0"]
    assert places(log, confined, "grid 1") == [f"spin_us@{QUARTER_SMS}"]
    assert confined.do("release", "sync") == ["release 0", "sync 709"]


def test_a_forked_child_has_the_errors_that_it_would_have(
    managed: cuda.Managed, tmp_path: Path
) -> None:
    program = with_share(managed, "fates", QUARTER, tmp_path)
    assert program.heard().startswith("ready")
    program.do("launch 10", "sync")
    wait_until_told(managed, program, 250)
    words = ("series 5 50", "fork", "series 5 50", "right")
    assert program.do(*words) == ["series 0", "child 0", "series 0", "bad 0"]


def test_a_share_ends_with_its_daemon(
    confined: cuda.Program, managed: cuda.Managed, log: Path
) -> None:
    managed.daemon.process.kill()
    managed.daemon.process.wait()

    def is_whole() -> bool:
        return places(log, confined, "grid 1") == ["spin_us"]

    wait_until(is_whole, "it has all of them", 10)


# -- changes -------------------------------------------------------------------------------------


@pytest.mark.live
def test_shares_change_under_load_and_nothing_is_lost_or_out_of_order(
    managed: cuda.Managed, tmp_path: Path, log: Path
) -> None:
    """benchmarks/share_changes.py changes them ten thousand times, and measures."""
    program = start(managed, tmp_path, log)
    program.do("us 5")
    program.tell("flood")
    wait_until(lambda: len(parts(log, program)) > 50, "it launches")
    changer = Changer(managed, program)
    random.seed(1)
    for _ in range(CHANGES):
        sms = random.randrange(1, SMS // STEP) * STEP
        changer.change(sms * 1000 // SMS + 1, sms * 1000 // SMS)
    changer.close()
    assert int(program.do("stop")[0].removeprefix("launched ")) > CHANGES
    assert program.do("sum") == ["sum 0"]
    assert len({part for part in parts(log, program) if "@" in part}) == SMS // STEP - 1


@pytest.mark.live
def test_who_dies_in_the_middle_of_changes_leaves_the_others_as_they_were(
    managed: cuda.Managed, tmp_path: Path, log: Path
) -> None:
    victim, other = (start(managed, tmp_path, log) for _ in range(2))
    for program in (victim, other):
        program.tell("flood")
    wait_until(lambda: len(parts(log, victim)) > 50, "it launches")
    victim.kill(signal.SIGKILL)
    managed.goes_on(other)
    other.do("stop")
    assert other.do("sum") == ["sum 0"]
    assert isinstance(managed.daemon, DaemonProcess)
    assert managed.daemon.process.poll() is None
