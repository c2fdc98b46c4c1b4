"""headway.gpu: state that follows its task, copies, and what else a token brings with it."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import slices
from headway import gpu
from headway.live.api import gpu_line
from tests.integration.daemon_client import DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

TWO = "[machine]\ncpus = 4\ngpus = 2\n[gpusync]\nrho = 1\n"
FOUR = "[machine]\ncpus = 4\ngpus = 4\n[gpusync]\nrho = 1\n"
SLICED = "[machine]\ncpus = 4\ngpus = 4\nslices = 4\n[gpusync]\nrho = 1\n"
THROUGH_HOST = f'{TWO}migration = "system"\n'
EARLY = f'{TWO}budget = {{ policy = "early" }}\n'


class SoftBuffer:
    """A buffer on a device that is only a number."""

    def __init__(
        self,
        data: bytes,
        device: int | None,
        watch: Callable[[SoftBuffer, int], None] = lambda buffer, offset: None,
    ) -> None:
        """`watch` is called before each part that is written, and may raise."""
        self.data = bytearray(data)
        self.device = device
        self.freed = False
        self.watch = watch

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self.watch(self, offset)
        self.data[offset : offset + len(data)] = data

    def like(self, device: int | None) -> SoftBuffer:
        return SoftBuffer(bytes(self.nbytes), device, self.watch)


@pytest.fixture(params=[TWO], ids=["two"])
def daemon(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DaemonProcess]:
    file = tmp_path / "locks.toml"
    file.write_text(request.param)
    monkeypatch.setattr(gpu_line, "_said", set())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with running_daemon(tmp_path / "run", "--locks", str(file)) as daemon:
        monkeypatch.setenv("HEADWAY_DIR", str(daemon.folder))
        yield daemon


def on(text: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("daemon", [text], indirect=True, ids=[""])


def look(daemon: DaemonProcess) -> dict[str, Any]:
    found: dict[str, Any] = daemon.ask(do="lock", act="look")["clusters"][0]
    return found


@contextmanager
def taken(daemon: DaemonProcess, index: int) -> Iterator[None]:
    """Another job holds the only token of this GPU: all were taken, the rest were given back."""
    count = len(look(daemon)["queues"])
    held: queue.Queue[int] = queue.Queue()
    done = [threading.Event() for _ in range(count)]

    def hold(name: str) -> None:
        with gpu.token(name) as device:
            held.put(device.index)
            done[device.index].wait(20)

    threads = [threading.Thread(target=hold, args=(f"other{n}",)) for n in range(count)]
    for thread in threads:
        thread.start()
    assert sorted(held.get(timeout=20) for _ in threads) == list(range(count))
    for number, event in enumerate(done):
        if number != index:
            event.set()
    wait_until(lambda: sum(map(bool, look(daemon)["queues"])) == 1, "one token is taken")
    try:
        yield
    finally:
        done[index].set()
        for thread in threads:
            thread.join(20)


@on(SLICED)
def test_between_slices_of_one_gpu_state_is_copied_for_real(daemon: DaemonProcess) -> None:
    data = os.urandom(3 * 1024 * 1024)
    first = SoftBuffer(data, 0)
    state = gpu.state(first)
    with gpu.token("mover", state=state) as device:
        assert (device.index, device.gpu) == (0, 0)
        assert state[0] is first
    with taken(daemon, 0), gpu.token("mover", state=state) as device:
        assert device.index != 0
        assert device.gpu == 0
        assert device.moved
        assert state[0] is not first
        assert (state[0].device, bytes(state[0].data)) == (0, data)
        there = state[0]
    with gpu.token("mover", state=state) as device:
        assert (state[0] is there) is not device.moved


@on(SLICED)
def test_the_task_that_is_measured_on_slices_says_what_its_jobs_came_to(
    daemon: DaemonProcess,
) -> None:
    command = [sys.executable, "-P", str(slices.JOB)]
    tasks = [
        subprocess.Popen([*command, name, "4", "--soft", *options], stdout=subprocess.PIPE)
        for name, options in (("plain", ()), ("overruns", ("--overruns",)))
    ]
    plain, overruns = (json.loads(task.communicate(timeout=120)[0]) for task in tasks)
    for found in (plain, overruns):
        assert sum(found["moves"]) == len(found["responses_ms"]) == 4
    assert overruns["told"] == len(overruns["late_ms"]) >= 1
    assert min(overruns["late_ms"]) > 0


@pytest.mark.parametrize("daemon", [TWO, FOUR], indirect=True, ids=["two", "four"])
def test_state_follows_its_task_under_a_copy_engine_of_both_gpus(daemon: DaemonProcess) -> None:
    units: list[list[str]] = []

    def watch(buffer: SoftBuffer, offset: int) -> None:
        units.append(sorted(look(daemon)["units"]))

    data = os.urandom(5 * 1024 * 1024)
    state = gpu.state(SoftBuffer(data, 0, watch), small=SoftBuffer(b"abc", 0, watch))
    assert state.nbytes == len(data) + 3
    with gpu.token("mover", state=state) as device:
        assert device.index == 0
    assert units == []  # it was there
    with taken(daemon, 0), gpu.token("mover", state=state) as device:
        assert state.home == device.index
        assert (state[0].device, state["small"].device) == (device.index, device.index)
        assert device.index != 0
    assert bytes(state[0].data) == data
    assert bytes(state["small"].data) == b"abc"
    both = sorted(["ce1 of device 0", f"ce0 of device {device.index}"])
    assert units == [both] * 4  # three chunks of 2 MiB, and the small one


def test_a_copy_that_fails_leaves_the_state_at_home_and_nothing_held(
    daemon: DaemonProcess,
) -> None:
    def fail(buffer: SoftBuffer, offset: int) -> None:
        if buffer.device == 1 and offset:
            raise MemoryError("no room")

    state = gpu.state(SoftBuffer(b"x" * 3_000_000, 0, fail))
    buffer = state[0]
    with taken(daemon, 0), pytest.raises(MemoryError), gpu.token("mover", state=state):
        pytest.fail("the job began")
    assert (state.home, state[0]) == (0, buffer)
    assert look(daemon)["queues"] == [[], []]
    assert look(daemon)["units"] == {}


def test_a_freed_buffer_is_an_error_at_the_call_before_anything_is_asked(
    daemon: DaemonProcess,
) -> None:
    state = gpu.state(weights=SoftBuffer(b"abc", 0))
    state["weights"].freed = True
    freed = "buffer 'weights' of the state was freed"
    with pytest.raises(gpu.LockMisuse, match=freed), gpu.token("a", state=state):
        pytest.fail("the job began")
    assert daemon.ask(do="lock", act="look")["sections"] == 0
    state["weights"].freed = False
    with gpu.token("a", state=state):
        pass


@pytest.mark.parametrize(
    ("buffers", "problem"),
    [
        ((), "found no buffers"),
        (([1, 2],), "found list, expected a PyTorch tensor"),
        ((SoftBuffer(b"a", 0), SoftBuffer(b"b", 1)), "expected all on the same"),
        ((memoryview(b"abcd")[::2],), "not contiguous"),
    ],
    ids=["none", "list", "two places", "pieces"],
)
def test_what_cannot_be_state_is_refused(buffers: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(gpu.LockMisuse, match=problem):
        gpu.state(*buffers)


def test_a_state_serves_one_job_at_a_time(daemon: DaemonProcess) -> None:
    state = gpu.state(SoftBuffer(b"abc", 0))
    caught: list[str] = []

    def another() -> None:
        try:
            with gpu.token("b", state=state):
                pass
        except gpu.LockMisuse as error:
            caught.append(str(error))

    with gpu.token("a", state=state):
        thread = threading.Thread(target=another)
        thread.start()
        thread.join(20)
    assert caught == ["state: another job uses it; one job at a time"]


@on(THROUGH_HOST)
def test_through_the_host_state_is_copied_out_after_every_job(daemon: DaemonProcess) -> None:
    units: list[str] = []

    def watch(buffer: SoftBuffer, offset: int) -> None:
        units.extend(look(daemon)["units"])

    state = gpu.state(SoftBuffer(b"old", 0, watch))
    with gpu.token("mover", state=state) as device:
        assert device.index == 0
        state[0].data[:] = b"new"
    assert units == ["ce1 of device 0"]
    with taken(daemon, 0), gpu.token("mover", state=state) as device:
        assert bytes(state[0].data) == b"new"
        assert state[0].device == device.index == 1
    assert units == ["ce1 of device 0", "ce0 of device 1", "ce1 of device 1"]


@on(THROUGH_HOST)
def test_a_job_that_failed_saved_nothing_and_loses_nothing(daemon: DaemonProcess) -> None:
    state = gpu.state(SoftBuffer(b"old", 0))
    with gpu.token("mover", state=state):
        pass

    def fails() -> None:
        with gpu.token("mover", state=state):
            state[0].data[:] = b"new"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with taken(daemon, 0), gpu.token("mover", state=state):
        assert bytes(state[0].data) == b"new"


def test_a_copy_owns_the_unit_of_its_direction_chunk_by_chunk(daemon: DaemonProcess) -> None:
    units: list[str] = []

    def watch(buffer: SoftBuffer, offset: int) -> None:
        units.extend(sorted(look(daemon)["units"]))

    host, data = bytearray(3000), os.urandom(3000)
    with gpu.token("a") as device:
        here = device.index
        there = SoftBuffer(bytes(3000), here, watch)
        device.copy(there, data, chunk="1KiB")
        assert bytes(there.data) == data
        assert units == [f"ce0 of device {here}"] * 3
        device.copy(host, there)
        assert bytes(host) == data
        units.clear()
        away = SoftBuffer(bytes(3000), 1 - here, watch)
        device.copy(away, there)
        assert units == sorted([f"ce1 of device {here}", f"ce0 of device {1 - here}"]) or (
            len(units) == 2 and {name[-1] for name in units} == {"0", "1"}
        )
        for wrong, problem in [
            ((host, data), "from the host to the host"),
            ((bytearray(1), there), "found 3000 bytes for 1"),
            ((object(), there), "the target: found object"),
        ]:
            with pytest.raises(gpu.LockMisuse, match=problem):
                device.copy(*wrong)
        assert look(daemon)["units"] == {}


@on(EARLY)
def test_with_early_releasing_nobody_is_told_and_a_period_is_needed(
    daemon: DaemonProcess,
) -> None:
    with gpu.token("a", budget="1ms", period="5ms") as device, device.unit("compute"):
        threading.Event().wait(0.003)
    needs = "expected period= beside budget="
    with pytest.raises(gpu.LockMisuse, match=needs), gpu.token("a", budget="1ms"):
        pytest.fail("the job began")
    assert look(daemon)["queues"] == [[], []]


# -- what is current, and who follows --------------------------------------------------------

RUNTIME = """
static int current = -1;
int cudaSetDevice(int number) { current = number; return 0; }
int current_device(void) { return current; }
"""
ASKS = """
import ctypes, sys
from headway import gpu
runtime = ctypes.CDLL(sys.argv[1])
try:
    with gpu.token("a") as device:
        print(device.index, runtime.current_device())
except gpu.LockMisuse as error:
    print(error)
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CUDA runtime that only keeps the number of the current device."""
    folder = tmp_path_factory.mktemp("runtime")
    source, library = folder / "cudart.c", folder / "libcudart.so.12"
    source.write_text(RUNTIME)
    name = "-Wl,-soname,libcudart.so.12"
    subprocess.run(["cc", "-shared", "-fPIC", name, "-o", library, source], check=True)
    return library


@pytest.mark.parametrize(
    ("visible", "said"),
    [
        (None, "1 1"),
        ("1", "1 0"),
        ("1,0", "1 0"),
        ("GPU-12ab", "1 1"),
        ("0", "the token is on GPU 1, which this process does not see"),
    ],
)
def test_the_tokens_gpu_is_current_by_the_number_that_the_process_knows(
    daemon: DaemonProcess, runtime: Path, visible: str | None, said: str
) -> None:
    env = dict(os.environ)
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    with taken(daemon, 0):
        command = [sys.executable, "-c", ASKS, str(runtime)]
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert result.stdout.startswith(said), result.stderr
    assert look(daemon)["queues"] == [[], []]


FOLLOWS = """
import os, sys, threading
from headway import gpu
ready, done, threads = threading.Event(), threading.Event(), []
def worker():
    threads.append(threading.get_native_id())
    ready.set()
    done.wait()
threading.Thread(target=worker).start()
ready.wait()
if sys.argv[1] == "rt":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(7))
if sys.argv[1] == "unprivileged":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(7))
    os.setresuid(65534, 65534, 65534)
def priority():
    thread = threads[0]
    return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority
seen = [priority()]
with gpu.token("a", workers=True) as device:
    seen.append(priority())
    with device.unit("compute"):
        seen.append(priority())
    seen.append(priority())
print(seen)
done.set()
"""


@pytest.mark.parametrize("right", ["rt", "plain", "unprivileged"])
def test_worker_threads_follow_while_the_job_waits_for_its_gpu(
    daemon: DaemonProcess, right: str
) -> None:
    normal, lent = (os.SCHED_OTHER, 0), (os.SCHED_FIFO, 7)
    command = [sys.executable, "-c", FOLLOWS, right]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if right != "plain" and "PermissionError" in result.stderr:
        pytest.skip("no right to set real-time priorities here")
    seen = [normal, normal, lent if right == "rt" else normal, normal]
    assert result.stdout.strip() == str(seen), result.stderr
    assert result.stderr.count("has no real-time priority") == (right == "plain")
    assert result.stderr.count("no right to set real-time") == (right == "unprivileged")
