"""CUDA programs in trouble under Headway: whoever dies, breaks, stops or misbehaves, the others go
on, results stay right, and nobody hangs."""

from __future__ import annotations

import signal
import time

import pytest

from tests.bench.softcuda import CHECKSUM, JOBS, KERNELS, expected_checksum
from tests.integration import cuda
from tests.integration.daemon_client import DaemonProcess, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

LOW, HIGH = ("--priority", "1"), ("--priority", "9")


def victim(managed: cuda.Managed, *options: str, **env: object) -> cuda.Program:
    program = managed.start("fates", options=options, env=env)
    assert program.heard().startswith("ready")
    return program


# -- work that breaks ----


@pytest.mark.parametrize("seen", ["sync", "launch 10", "query"])
def test_a_program_whose_work_broke_sees_it_and_keeps_no_turn(
    managed: cuda.Managed, seen: str
) -> None:
    low = managed.greedy(*LOW)
    broken = victim(managed, *HIGH)
    assert broken.do("crash") == ["crashed 0"]
    for _ in range(200):
        if broken.do(seen)[0].endswith(" 700"):  # an illegal address
            break
    else:
        raise AssertionError("it never saw that its work broke")
    managed.goes_on(low)
    assert broken.do(seen)[0].endswith(" 700")
    managed.goes_on(low)


def test_wrong_calls_keep_no_turn(managed: cuda.Managed) -> None:
    low = managed.greedy(*LOW)
    wrong = victim(managed, *HIGH)
    assert wrong.do("wrong", "destroy_none") == ["wrong 400", "destroyed 400"]
    managed.goes_on(low)
    assert wrong.do("launches 50 5", "sync") == ["launched 0", "synced 0"]


def test_who_never_waits_for_its_work_does_not_keep_its_turn_for_ever(
    managed: cuda.Managed,
) -> None:
    """As in an interactive session: something is launched, and nobody asks for the result."""
    low = managed.greedy(*LOW)
    quiet = victim(managed, *HIGH)
    assert quiet.do("launch 50") == ["launched 0"]
    managed.goes_on(low)
    assert quiet.do("launch 50", "sync") == ["launched 0", "synced 0"]


@pytest.mark.parametrize("end", ["destroy", "release"])
def test_streams_and_contexts_that_go_with_work_in_flight_keep_no_turn(
    managed: cuda.Managed, end: str
) -> None:
    low = managed.greedy(*LOW)
    going = victim(managed, *HIGH)
    assert going.do("launches 200 20", end)[1].endswith("ed 0")
    managed.goes_on(low)
    if end == "destroy":
        assert going.do("launches 50 5", "sync") == ["launched 0", "synced 0"]


# -- processes that fork, exec and close ----


def test_a_forked_child_gets_the_drivers_error_and_no_turn(managed: cuda.Managed) -> None:
    low = managed.greedy(*LOW)
    parent = victim(managed, *HIGH)
    assert parent.do("launch 50", "fork") == ["launched 0", "child 0"]
    assert parent.do("launches 50 9", "sync") == ["launched 0", "synced 0"]
    parent.do("leave")  # a child that tried, and lives on
    managed.goes_on(low)
    assert parent.do("launches 50 9", "sync") == ["launched 0", "synced 0"]
    managed.goes_on(low)


def test_exec_and_closed_descriptors_change_nothing(managed: cuda.Managed) -> None:
    low = managed.greedy(*LOW)
    program = victim(managed, *HIGH)
    program.do("launches 50 9")
    program.tell("exec")
    assert program.heard() == f"ready {program.pid}"
    managed.goes_on(low)
    assert program.do("close", "launches 50 9", "sync") == ["closed 0", "launched 0", "synced 0"]
    managed.goes_on(low)
    wait_until(
        lambda: (
            program.do("launch 50", "sync") == ["launched 0", "synced 0"]
            and managed.passed(program) > 0
        ),
        "it is managed again",
    )


# -- drivers and programs that are unlike others ----


@pytest.mark.parametrize("memops", [0, 1])
def test_many_streams_and_threads_at_once_compute_the_same_beside_others(
    managed: cuda.Managed, memops: int
) -> None:
    """More streams than there are lanes; and a driver that writes no values, so that events do."""
    env = {"SOFTCUDA_NO_MEMOPS": 1 - memops}
    managed.start("cudaapp", "hp", 200, 2, 3, 60, options=HIGH)
    programs = [victim(managed, **env) for _ in range(2)]
    for program in programs:
        program.tell("streams", "threads", "both 30")
    for program in programs:
        assert [program.heard(40) for _ in range(3)] == ["streams 0", "threads 0", "both 30"]
        entry = managed.entry(program)
        assert (entry["free"], entry["passed"] >= 5 * 100 + 8 * 4 * 40 + 30) == (0, True)


def test_a_thread_at_the_gate_gets_its_turn_though_another_one_waits_for_the_gpu(
    managed: cuda.Managed,
) -> None:
    """Beside one who takes its turns away in the middle of its work."""
    important = managed.start("cudaapp", "hp", 100, 1, 1, 60, options=HIGH)
    wait_until(lambda: managed.passed(important) > 0, "the important program has come")
    program = victim(managed)
    assert program.do("both 300") == ["both 300"]


@pytest.mark.parametrize("memops", [0, 1])
def test_a_thread_that_is_cancelled_at_the_gate_leaves_nothing_behind(
    managed: cuda.Managed, memops: int
) -> None:
    """Neither a lock nor a turn that it asked for: the others launch on."""
    managed.greedy()
    program = victim(managed, SOFTCUDA_NO_MEMOPS=1 - memops)
    for _ in range(3):
        assert program.do("cancel 6") == ["cancelled 24"]
        assert program.do("launches 50 5", "sync") == ["launched 0", "synced 0"]
    entry = managed.entry(program)
    assert entry["free"] == 0
    assert managed.passed(program) > 0


# -- deaths ----


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("role", ["holder", "waiter", "important holder"])
def test_the_others_go_on_when_a_program_is_killed_or_stopped(
    managed: cuda.Managed, role: str, fate: signal.Signals
) -> None:
    """Each on a GPU of its own: one that is stopped would keep the software GPU stopped."""
    options = {"holder": LOW, "waiter": LOW, "important holder": HIGH}[role]
    doomed = victim(managed, *options, SOFTCUDA_GPU="")
    if role == "waiter":
        other = managed.greedy(*HIGH)
        doomed.tell("launches 500 10000")
        wait_until(lambda: managed.entry(doomed)["state"] == "waiting", "it waits")
        doomed.kill(fate)
    else:
        other = victim(managed, *LOW, SOFTCUDA_GPU="")
        doomed.tell("launches 500 10000")
        wait_until(lambda: managed.entry(doomed)["state"] == "leased", "it holds its turn")
        other.tell("launches 50 100", "sync")
        doomed.kill(fate)
        assert (other.heard(), other.heard()) == ("launched 0", "synced 0")
        return
    managed.goes_on(other)


@pytest.mark.parametrize("fate", ["killed", "ended", "stopped"])
def test_programs_go_on_without_the_daemon_and_meet_the_next_one(
    managed: cuda.Managed, fate: str
) -> None:
    """One has the GPU and one waits for it; both have work in flight and threads at the gate."""
    env = {"LINGER": 1}
    first = managed.start("cudaapp", "fix", 300, KERNELS, 0, 300, options=HIGH, env=env)
    second = managed.start("cudaapp", "fix", 300, KERNELS, 0, 300, options=LOW, env=env)
    threads = victim(managed)
    wait_until(lambda: managed.passed(second) > 0, "both work")
    threads.tell("threads")
    old = managed.daemon
    if fate == "stopped":
        old.kill(signal.SIGSTOP)
    else:
        old.kill(signal.SIGKILL if fate == "killed" else signal.SIGTERM)
        managed.daemon = DaemonProcess(old.folder)
    try:
        for program in (first, second):
            assert f'"checksum": {expected_checksum(303, KERNELS)}' in program.heard(40)
        assert threads.heard(40) == "threads 0"
    finally:
        if fate == "stopped":
            old.kill(signal.SIGCONT)
    assert threads.do("launches 50 20", "sync") == ["launched 0", "synced 0"]
    wait_until(
        lambda: (
            threads.do("launch 50", "sync") == ["launched 0", "synced 0"]
            and managed.passed(threads) > 0
        ),
        "the daemon serves it again",
    )


@pytest.mark.parametrize("launch", ["launch 300", "beside 300"])
@pytest.mark.parametrize("later", ["launches 50 1", "launches 200 5000"])
def test_what_went_while_the_daemon_was_stopped_is_not_waited_for_later(
    managed: cuda.Managed, launch: str, later: str
) -> None:
    """Nothing told its end at first, on its own stream or on another, and nobody asks for it."""
    vip, quiet = victim(managed, *HIGH), victim(managed, *LOW)
    for program in (quiet, vip):  # who was last may go on without asking
        assert program.do("launch 50", "sync") == ["launched 0", "synced 0"]
    managed.daemon.kill(signal.SIGSTOP)
    try:
        stale_s = time.monotonic() + 0.5
        wait_until(lambda: time.monotonic() > stale_s, "the daemon is taken for stopped")
        for answer in quiet.do(*[launch] * 20):
            assert answer.endswith(" 0")
    finally:
        managed.daemon.kill(signal.SIGCONT)
    wait_until(lambda: managed.entry(quiet)["free"] > 0, "what went free")
    passed = managed.passed(quiet)
    quiet.tell(later)
    wait_until(lambda: managed.passed(quiet) > passed, "work at its gate")
    for _ in range(3):
        assert vip.do("launch 50", "sync") == ["launched 0", "synced 0"]
    assert managed.entry(quiet)["overdue"] == 0
    assert quiet.heard() == "launched 0"
    assert quiet.do("sync") == ["synced 0"]


def test_a_daemon_restarted_again_and_again_under_load_harms_nobody(
    managed: cuda.Managed,
) -> None:
    program = managed.start("cudaapp", "lp", 100, 5, 0, 6, options=HIGH)
    others = [victim(managed) for _ in range(2)]
    end = time.monotonic() + 5
    while time.monotonic() < end:
        for other in others:
            other.tell("threads")
        managed.daemon.kill()
        managed.daemon = DaemonProcess(managed.daemon.folder)
        for other in others:
            assert other.heard(30) == "threads 0"
    assert program.finish().returncode == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_new_daemon_knows_what_was_wished_of_programs_that_run(
    managed: cuda.Managed, how: signal.Signals
) -> None:
    chosen = ("--priority", "9", "--policy", "overlap", "--reserve", "90ms/100ms")
    important, plain = managed.greedy(*chosen), managed.greedy()
    facts = ("task", "policy", "priority", "reserve", "capacity_ns", "period_ns")

    def seen() -> list[list[object]]:
        entries = [managed.entry(program) for program in (important, plain)]
        return [[entry.get(fact) for fact in facts] for entry in entries]

    managed.daemon.ask(do="set", task=plain.name, priority="2")
    before = seen()
    assert [facts[2] for facts in before] == ["9", "2"]
    managed.daemon.kill(how)
    managed.daemon = DaemonProcess(managed.daemon.folder)
    both = (important, plain)
    wait_until(lambda: all(map(managed.passed, both)), "they are managed again", cuda.GOES_ON_S)
    assert seen() == before


def test_results_are_right_while_neighbours_die(managed: cuda.Managed) -> None:
    for _ in range(4):
        doomed = victim(managed)
        doomed.tell("threads")
        program = managed.start("cudaapp", "fix", 50, KERNELS, 0, JOBS)
        doomed.kill()
        assert f'"checksum": {CHECKSUM}' in program.finish().stdout
