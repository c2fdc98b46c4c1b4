"""CUDA programs whose work waits on the GPU, on the software driver: whoever dies, stops, forks or
ends while it does, nobody hangs, and results are right."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headway.live.wire.layout import CLIENT_PAGE, PAGE
from headway.live.wire.protocol import TURNS
from tests.bench.cuda_pieces import (
    LEARNED,
    LOW,
    LOWEST,
    SPINS,
    done,
    fates,
    kernels,
    log,
    rival,
    spins,
)
from tests.integration import cuda
from tests.integration.daemon_client import PATIENCE_S, Client, DaemonProcess, wait_until

__all__ = ["log"]
pytestmark = [pytest.mark.live, pytest.mark.timeout(60)]

LAUNCHES = 20
"""Each may be a piece of its own."""


def wait_for_kernels(log: Path, program: cuda.Program, number: int) -> None:
    wait_until(lambda: len(kernels(log, program)) >= number, f"{number} kernels are done")


@contextlib.contextmanager
def closed_gate(managed: cuda.Managed) -> Iterator[Client]:
    """Somebody more important has the GPU, and says that it goes on using it."""
    with rival(managed) as client:
        client.send(TURNS)
        client.set_busy(True)
        client.submit()
        client.wait_grant()
        yield client


def let_go(client: Client) -> None:
    client.set_busy(False)
    client.release()


def wait_at_gate(managed: cuda.Managed, log: Path, program: cuda.Program) -> int:
    """Have it launch what the GPU may not begin; how many kernels it has done before."""
    before = len(kernels(log, program))
    assert program.do(f"series 50 {LAUNCHES}") == ["series 0"]
    wait_until(lambda: managed.entry(program)["state"] == "waiting", "it waits")
    assert len(kernels(log, program)) == before
    return before


def said_ns(program: cuda.Program) -> int:
    """What it says it has used of the GPU, in the page that it shares with the daemon."""
    proc = Path(f"/proc/{program.pid}")
    maps = (proc / "maps").read_text().splitlines()
    address = next(line.partition("-")[0] for line in maps if "/memfd:headway-client" in line)
    with (proc / "mem").open("rb") as memory:
        memory.seek(int(address, 16))
        return CLIENT_PAGE.read(memory.read(PAGE), "used_ns")


@contextlib.contextmanager
def blinking_gate(managed: cuda.Managed) -> Iterator[list[tuple[int, int]]]:
    """Somebody more important comes again and again, for a moment: from when until when."""
    over = threading.Event()
    turns: list[tuple[int, int]] = []

    def come_and_go(client: Client) -> None:
        while not over.is_set():
            client.submit()
            granted_ns = client.wait_grant()
            time.sleep(0.002)
            turns.append((granted_ns, time.monotonic_ns()))
            client.complete()
            time.sleep(0.003)

    with rival(managed) as client:
        thread = threading.Thread(target=come_and_go, args=(client,))
        thread.start()
        try:
            yield turns
        finally:
            over.set()
            thread.join(PATIENCE_S)
    assert len(turns) > 5


def check_gate(turns: list[tuple[int, int]], begun: list[int]) -> None:
    """Nearly nothing began while somebody else had the GPU: of several threads, one may launch
    something just after another one has found all of it done."""
    beside = sum(since < start < until for start in begun for since, until in turns)
    assert beside <= len(begun) // 20


# -- books -------------------------------------------------------------------------------------


@SPINS
def test_the_time_at_a_closed_gate_is_not_said_to_be_used(managed: cuda.Managed, log: Path) -> None:
    """Else its budget would seem used up, and its turn be over, when it has hardly begun."""
    program = fates(managed, log, *LOW)
    with rival(managed) as client:
        client.send(TURNS)
        assert program.do(f"series 500 {2 * LEARNED}", "right") == ["series 0", "bad 0"]
        before_ns, known = said_ns(program), len(kernels(log, program))
        assert program.do("series 500 200") == ["series 0"]
        waited_ns = 0
        for number in (known + 40, known + 80, known + 120):
            wait_for_kernels(log, program, number)
            client.set_busy(True)
            client.submit()
            granted_ns = client.wait_grant()
            time.sleep(0.1)
            waited_ns += time.monotonic_ns() - granted_ns
            let_go(client)
        assert program.do("right") == ["bad 0"]
        used_ns = sum(end - start for start, end in spins(log, program)[known:])
        assert used_ns / 2 < said_ns(program) - before_ns < used_ns + waited_ns / 2


# -- the daemon dies ---------------------------------------------------------------------------


@SPINS
@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_what_waits_on_the_gpu_goes_on_without_the_daemon(
    managed: cuda.Managed, log: Path, fate: signal.Signals
) -> None:
    """Its program sleeps in the driver meanwhile; and the next daemon has its gate again."""
    low = fates(managed, log, *LOW)
    with closed_gate(managed):
        wait_at_gate(managed, log, low)
        low.tell("right")
        managed.daemon.kill(fate)
        assert low.heard() == "bad 0"
    if fate == signal.SIGSTOP:
        managed.daemon.kill(signal.SIGCONT)
    else:
        managed.daemon = DaemonProcess(managed.daemon.folder, *managed.daemon.options)
    wait_until(
        lambda: low.do("series 50 1", "right")[1] == "bad 0" and managed.passed(low) > 0,
        "the daemon serves it again",
    )
    with closed_gate(managed) as client:
        wait_at_gate(managed, log, low)
        let_go(client)
        assert low.do("right") == ["bad 0"]


# -- the program dies ----------------------------------------------------------------------------


@SPINS
@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_the_others_go_on_when_who_has_work_waiting_is_killed_or_stopped(
    managed: cuda.Managed, log: Path, fate: signal.Signals
) -> None:
    """Though they are less important."""
    doomed, other = fates(managed, log, *LOW), fates(managed, log, *LOWEST)
    with closed_gate(managed) as client:
        for program in (doomed, other):
            wait_at_gate(managed, log, program)
        doomed.kill(fate)
        let_go(client)
        assert other.do("right") == ["bad 0"]
        if fate == signal.SIGSTOP:
            doomed.kill(signal.SIGCONT)
            assert doomed.do("right") == ["bad 0"]


@SPINS
@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_who_waits_gets_its_turn_when_the_holder_of_one_is_killed_or_stopped(
    managed: cuda.Managed, log: Path, fate: signal.Signals
) -> None:
    """In the middle of its pieces, of which some have begun."""
    doomed, other = fates(managed, log, *LOW), fates(managed, log, *LOWEST)
    with rival(managed):  # for whom they have windows
        doomed.tell("series 2000 3000")
        wait_until(lambda: len(kernels(log, doomed)) > 0, "it has begun")
        assert other.do(f"series 50 {LAUNCHES}") == ["series 0"]
        doomed.kill(fate)
        assert other.do("right") == ["bad 0"]


@pytest.mark.parametrize("last", ["exit", "release"])
def test_who_ends_does_not_wait_for_what_waits_on_the_gpu(
    managed: cuda.Managed, log: Path, last: str
) -> None:
    ending, other = fates(managed, log, *LOW), fates(managed, log, *LOWEST)
    with closed_gate(managed) as client:
        for program in (ending, other):
            wait_at_gate(managed, log, program)
        if last == "release":
            assert ending.do("release") == ["released 0"]
        ending.tell("exit")
        assert ending.process.wait(PATIENCE_S) == 0
        assert kernels(log, other) == []
        let_go(client)
        assert other.do("right") == ["bad 0"]


def test_a_fork_leaves_the_gate_as_it_is(managed: cuda.Managed, log: Path) -> None:
    """The child shares the page that the GPU looks at, and must not write there."""
    low = fates(managed, log, *LOW)
    with closed_gate(managed) as client:
        before = wait_at_gate(managed, log, low)
        low.do("leave")
        wait_until(lambda: len(managed.daemon.names()) == 3, "the child has come to its own gate")
        assert low.do(f"series 50 {LAUNCHES}") == ["series 0"]
        assert managed.entry(low)["state"] == "waiting"
        assert len(kernels(log, low)) == before
        let_go(client)
        assert low.do("right", "fork", "right") == ["bad 0", "child 0", "bad 0"]


# -- gates that open and close all the time --------------------------------------------------------


@SPINS
@pytest.mark.parametrize("work", ["pingpong 120 900", "legacy 120 900", "pingpong 20 4000"])
def test_streams_that_wait_for_each_other_keep_their_order(
    managed: cuda.Managed, log: Path, work: str
) -> None:
    low = fates(managed, log, *LOW)
    with blinking_gate(managed) as turns:
        assert low.do(work) == ["bad 0"]
        assert managed.entry(low)["overdue"] == 0
    check_gate(turns, kernels(log, low))


@SPINS
def test_threads_and_streams_that_come_and_go_end_with_right_results(
    managed: cuda.Managed, log: Path
) -> None:
    low = fates(managed, log, *LOW)
    with blinking_gate(managed) as turns:
        low.tell("churn 50 3000")
        words = low.heard().split()
        assert words[0] == "rounds"
        assert int(words[1]) > 20
        # Which thread's work comes first on streams that wait for each other is theirs to decide
        # until it is there: now and then a piece has begun that waits for one that has not.
        assert managed.entry(low)["overdue"] <= 2
    check_gate(turns, kernels(log, low))
    assert low.do("series 50 5", "right") == ["series 0", "bad 0"]


# -- how many gates there are ----------------------------------------------------------------------

WIDE = pytest.mark.parametrize("window", ["500us"])
"""What a busy machine adds to kernels is less beside it."""
SHORT_US, LONG_US = 250, 5000


def learned(managed: cuda.Managed, log: Path, us: int, *options: str) -> cuda.Program:
    """A program whose kernels' time is known."""
    program = fates(managed, log, *(options or LOW))
    for _ in range(LEARNED):
        assert program.do(f"series {us} 1", "right") == ["series 0", "bad 0"]
    return program


# -- how far ahead -----------------------------------------------------------------------------


def test_a_program_is_as_far_ahead_of_its_turn_as_its_driver_lets_it(
    managed: cuda.Managed, log: Path
) -> None:
    """Or the GPU would wait for it when it is kept from its work for a moment. Each of these is a
    piece."""
    low = learned(managed, log, SHORT_US)
    before = len(kernels(log, low))
    with closed_gate(managed):
        assert low.do(f"series {SHORT_US} 400") == ["series 0"]
        assert len(kernels(log, low)) == before
    assert low.do("right") == ["bad 0"]
    assert len(kernels(log, low)) == before + 400


# -- who is slower than the GPU ----------------------------------------------------------------


@WIDE
@SPINS
def test_who_is_slower_than_the_gpu_hardly_meets_a_gate(managed: cuda.Managed, log: Path) -> None:
    """It has no more than a window in flight anyway; who is faster has one for every two kernels of
    half a window."""
    with rival(managed):  # for whom it has a window
        low = learned(managed, log, SHORT_US)
        gates = []
        for work in ("series", "trickle"):
            before = len(done(log, low))
            assert low.do(f"{work} {SHORT_US} 60", "right")[1] == "bad 0"
            gates.append(sum(kind == "wait" for kind, *_ in done(log, low)[before:]))
    assert gates[0] >= 60 // 3
    assert gates[1] <= gates[0] // 2


@WIDE
def test_what_is_found_to_take_less_meets_fewer_gates_soon(
    managed: cuda.Managed, log: Path
) -> None:
    """As does what was first seen on a GPU that many shared. Kernels of one kind take a fifth of a
    window where they took three: forty of them later several go together again."""
    with rival(managed):
        low = learned(managed, log, 1500)
        for _ in range(8):
            assert low.do("series 100 5", "right") == ["series 0", "bad 0"]
        before = len(done(log, low))
        assert low.do("series 100 60", "right") == ["series 0", "bad 0"]
        gates = sum(kind == "wait" for kind, *_ in done(log, low)[before:])
    assert gates <= 40


@WIDE
@SPINS
def test_who_is_slower_than_the_gpu_still_stops_at_a_closed_gate(
    managed: cuda.Managed, log: Path
) -> None:
    low = learned(managed, log, SHORT_US)
    with blinking_gate(managed) as turns:
        assert low.do(f"trickle {SHORT_US} 60", "right")[1] == "bad 0"
    check_gate(turns, kernels(log, low)[LEARNED:])


@SPINS
def test_nothing_stands_behind_a_long_kernel_that_is_waited_for(
    managed: cuda.Managed, log: Path
) -> None:
    """A GPU that shares itself in slices takes it off for others then; once the kernel is done the
    daemon knows it all the same."""
    with rival(managed):
        low = learned(managed, log, LONG_US)
        before = len(done(log, low))
        for _ in range(16):
            assert low.do(f"series {LONG_US} 1", "right") == ["series 0", "bad 0"]
        kinds = [kind for kind, *_ in done(log, low)[before:]]
        behind = sum(a == "spin_us" and b == "write" for a, b in pairwise(kinds))
        assert kinds.count("spin_us") == 16
        assert behind <= 2  # where it is measured
        wait_until(lambda: managed.entry(low)["state"] != "running", "it is known to be done")


@WIDE
@SPINS
def test_nor_does_it_go_with_what_was_done_before_it(managed: cuda.Managed, log: Path) -> None:
    """Of a program that is slower than the GPU a piece goes on, but not with a long kernel, behind
    which something would have to stand then."""
    with rival(managed):
        low = learned(managed, log, LONG_US)
        for _ in range(LEARNED):
            assert low.do(f"series {SHORT_US} 1", "right") == ["series 0", "bad 0"]
        behind = 0
        for _ in range(12):
            before = len(done(log, low))
            work = (f"trickle {SHORT_US} 3", f"series {LONG_US} 1", "right")
            assert low.do(*work) == ["trickled 3", "series 0", "bad 0"]
            kinds = [kind for kind, *_ in done(log, low)[before:]]
            assert kinds.count("spin_us") == 4
            behind += kinds[-kinds[::-1].index("spin_us")] == "write"
        assert behind <= 3  # where it is measured


# -- books -----------------------------------------------------------------------------------------


@SPINS
def test_a_program_that_says_nothing_pays_for_what_it_left_on_the_gpu(
    managed: cuda.Managed, log: Path
) -> None:
    """It has launched 200 ms of work, and has three tenths of the GPU."""
    program = fates(managed, log, "--reserve", "30ms/100ms")
    for _ in range(LEARNED):
        assert program.do("series 5000 1", "right") == ["series 0", "bad 0"]
    assert program.do("series 5000 40") == ["series 0"]
    wait_until(lambda: len(kernels(log, program)) == LEARNED + 40, "all of it is done")
    begun = kernels(log, program)[LEARNED:]
    assert begun[-1] - begun[0] > 400_000_000
    assert program.do("right") == ["bad 0"]


@SPINS
def test_a_program_that_is_slower_than_the_gpu_pays_as_well(
    managed: cuda.Managed, log: Path
) -> None:
    """It does 40 ms of work in a quarter of a second, and may do 5 ms in each tenth."""
    program = learned(managed, log, SHORT_US, "--reserve", "5ms/100ms")
    assert program.do(f"trickle {SHORT_US} 160", "right") == ["trickled 160", "bad 0"]
    begun = kernels(log, program)[LEARNED:]
    assert begun[-1] - begun[0] > 450_000_000
