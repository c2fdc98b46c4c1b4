"""OpenCL programs nobody changed, on PoCL: managed, the important first, otherwise as ever."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.live.identity import launcher
from tests.bench.softcuda import expected_checksum
from tests.integration import gl, opencl
from tests.integration.daemon_client import DaemonProcess, running_daemon, wait_until
from tests.integration.opencl import ROUTES, Programs

pytestmark = pytest.mark.live

CHECKS = (
    "kernels",
    "copies",
    "images",
    "maps",
    "shared",
    "events",
    "out_of_order",
    "user_events",
    "callbacks",
    "queues",
    "threads",
    "errors",
    "children",
)
WINDOWED = ("--reserve", "90ms/100ms")
"""Who has a budget has a window, also alone."""
ENQUEUED = 1 + 20 + 1 + 1
"""What `checks kernels` enqueues: a fill, kernels, a task and a read."""
WARM_UP, JOBS, KERNELS = 3, 6, 8
FOREVER = 600


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opencl.compile_all(tmp_path_factory.mktemp("opencl"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path / "run", "--software-gpu") as daemon:
        yield daemon


@pytest.fixture
def programs(built: Path, daemon: DaemonProcess) -> Iterator[Programs]:
    """They have the CPU that plays the GPU for themselves."""
    with gl.machine_alone():
        made = Programs(built, daemon)
        yield made
        made.close()


@functools.cache
def without_headway(program: Path, check: str) -> str:
    command = [str(program), check]
    env = opencl.environment()
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def only_channel(daemon: DaemonProcess, name: str) -> dict[str, Any] | None:
    found = [c for c in daemon.status()["channels"] if c["task"].startswith(name)]
    return found[0] if found else None


def state_of(daemon: DaemonProcess, name: str) -> str | None:
    channel = only_channel(daemon, name)
    return None if channel is None else str(channel["state"])


# -- the same results, however OpenCL is reached -------------------------------------------------


def test_every_check_is_run(built: Path) -> None:
    names = subprocess.run([built / "checks"], check=True, capture_output=True, text=True).stdout
    assert set(names.split()) == {*CHECKS, "window"}


@pytest.mark.parametrize("route", ["as a layer", "before the loader"])
@pytest.mark.parametrize("check", CHECKS)
def test_a_program_sees_what_it_would_have_seen(programs: Programs, check: str, route: str) -> None:
    seen = programs.run("checks", check, options=WINDOWED, route=ROUTES[route])
    assert seen == without_headway(programs.built / "checks", check)


@pytest.mark.parametrize("route", ROUTES)
def test_all_work_passes_the_gate_and_does_so_once(
    programs: Programs, daemon: DaemonProcess, route: str
) -> None:
    paused = {"PAUSE": "1"}
    process = programs.start("checks", "kernels", route=ROUTES[route], env=paused)
    assert process.stdout is not None
    assert process.stdout.readline() == without_headway(programs.built / "checks", "kernels")
    channel = daemon.one("checks")
    assert (channel["pid"], channel["passed"], channel["free"]) == (process.pid, ENQUEUED, 0)
    assert channel["groups"] > 0


def test_what_is_looked_up_by_name_passes_the_gate_too(
    programs: Programs, daemon: DaemonProcess, tmp_path: Path
) -> None:
    script = tmp_path / "lookup.py"
    script.write_text(LOOKS_UP)
    without_layers = ("env", "-u", "OPENCL_LAYERS", sys.executable)
    process = programs.start(str(script), route=without_layers)
    assert process.stdout is not None
    assert process.stdout.readline() == "0 7\n"
    channel = daemon.one(script.stem)
    assert channel["passed"] == 2


LOOKS_UP = """
import ctypes, sys
cl = ctypes.CDLL("libOpenCL.so.1")
pointer = ctypes.c_void_p
for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer"):
    getattr(cl, name).restype = pointer
platform, device, value = pointer(), pointer(), ctypes.c_uint32(7)
cl.clGetPlatformIDs(1, ctypes.byref(platform), None)
cl.clGetDeviceIDs(platform, ctypes.c_ulong(0xFFFFFFFF), 1, ctypes.byref(device), None)
context = pointer(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, None))
queue = pointer(cl.clCreateCommandQueue(context, device, ctypes.c_ulong(0), None))
size, none = ctypes.c_size_t(4), ctypes.c_size_t(0)
memory = pointer(cl.clCreateBuffer(context, ctypes.c_ulong(1), size, None, None))
seen = ctypes.c_uint32()
there = ctypes.byref(seen)
error = cl.clEnqueueWriteBuffer(queue, memory, 1, none, size, ctypes.byref(value), 0, None, None)
error |= cl.clEnqueueReadBuffer(queue, memory, 1, none, size, there, 0, None, None)
print(error, seen.value, flush=True)
sys.stdin.readline()
"""


# -- waiting -------------------------------------------------------------------------------------


def test_work_that_waits_for_the_program_does_not_keep_it_at_its_window(
    programs: Programs, daemon: DaemonProcess
) -> None:
    process = programs.start("checks", "user_events", options=WINDOWED, env={"PAUSE": "1"})
    assert process.stdout is not None
    seen = "".join(process.stdout.readline() for _ in range(3))
    assert seen == without_headway(programs.built / "checks", "user_events")
    assert daemon.one("checks")["implicit"] > 0, "the window never was full: nothing was shown"


def test_no_more_than_the_window_is_in_flight(programs: Programs) -> None:
    bounded = int(programs.run("checks", "window", options=WINDOWED))
    unbounded = int(without_headway(programs.built / "checks", "window"))
    assert bounded <= 4 < 20 <= unbounded


@pytest.mark.parametrize("way", ["finish", "event", "poll", "read", "map"])
@pytest.mark.parametrize("queue", ["in", "out"])
def test_results_are_right_however_they_are_waited_for(
    programs: Programs, queue: str, way: str
) -> None:
    env = {"QUEUE": queue, "WAIT": way}
    job = ("clapp", "fix", 100, KERNELS, 0, JOBS)
    result = opencl.answer(programs.start(*job, options=WINDOWED, env=env))
    assert result["checksum"] == expected_checksum(WARM_UP + JOBS, KERNELS)


@pytest.mark.parametrize(
    ("queue", "way"),
    [("in", "finish"), ("in", "event"), ("in", "poll"), ("in", "read"), ("out", "event")],
)
def test_an_important_program_that_waits_or_sleeps_lets_others_go(
    programs: Programs, daemon: DaemonProcess, queue: str, way: str
) -> None:
    env = {"QUEUE": queue, "WAIT": way}
    important = ("--name", "important", "--priority", "9")
    first = programs.start("clapp", "hp", 500, 2, 50, FOREVER, options=important, env=env)
    wait_until(lambda: state_of(daemon, "important") is not None, "the important one's work")
    other = programs.start("clapp", "fix", 200, KERNELS, 0, 20, options=("--priority", "1"))
    assert opencl.answer(other)["checksum"] == expected_checksum(WARM_UP + 20, KERNELS)
    assert first.poll() is None
    assert daemon.one("important")["overdue"] == 0, "the turn had to be taken away"


# -- importance ----------------------------------------------------------------------------------


def response_us(programs: Programs) -> float:
    """Of short important jobs beside long ones."""
    long = programs.start("clapp", "lp", 500, 200, 0, FOREVER, options=("--priority", "1"))
    if programs.daemon is not None:
        daemon = programs.daemon
        wait_until(lambda: state_of(daemon, "clapp") is not None, "the long jobs")
    important = ("--name", "important", "--priority", "9")
    short = programs.start("clapp", "hp", 500, 4, 20, 1.5, options=important)
    time_us = float(opencl.answer(short)["p50_us"])
    assert long.poll() is None
    programs.close()
    return time_us


@pytest.mark.skipif(
    not gl.runs_as_one_device(), reason="needs two CPUs, one of which plays the GPU"
)
def test_the_important_program_goes_first(programs: Programs) -> None:
    managed_us = response_us(programs)
    unmanaged_us = response_us(Programs(programs.built, None))
    assert managed_us < 0.75 * unmanaged_us, (managed_us, unmanaged_us)


# -- death ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["leased", "waiting"])
def test_a_killed_program_leaves_the_device_to_the_others(
    programs: Programs, daemon: DaemonProcess, state: str
) -> None:
    endless = ("clapp", "lp", 300, 20, 0, FOREVER)
    programs.start(*endless, options=("--name", "rival"))
    victim = programs.start(*endless, options=("--name", "victim"))
    wait_until(lambda: state_of(daemon, "victim") == state, f"a victim that is {state}")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    other = programs.start("clapp", "fix", 100, KERNELS, 0, JOBS, options=("--name", "other"))
    assert opencl.answer(other)["checksum"] == expected_checksum(WARM_UP + JOBS, KERNELS)
    wait_until(lambda: state_of(daemon, "victim") is None, "the victim to be forgotten")


def test_programs_outlive_the_daemon(programs: Programs, daemon: DaemonProcess) -> None:
    jobs = 400
    job = ("clapp", "fix", 100, KERNELS, 5, jobs)
    both = [programs.start(*job, options=("--name", name)) for name in ("one", "two")]
    for name in ("one", "two"):
        wait_until(lambda n=name: state_of(daemon, n) is not None, "work")  # type: ignore[misc]
    daemon.kill()
    pids = {process.pid for process in both}
    with running_daemon(daemon.folder, "--software-gpu") as later:
        wait_until(lambda: {c["pid"] for c in later.status()["channels"]} == pids, "both again")
        expected = expected_checksum(WARM_UP + jobs, KERNELS)
        assert [opencl.answer(process)["checksum"] for process in both] == [expected, expected]


# -- the environment -----------------------------------------------------------------------------


def test_layers_of_the_program_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENCL_LAYERS", raising=False)
    ours = str(launcher.library())
    env = launcher.environment(tmp_path, "token", software_gpu=None)
    assert env["OPENCL_LAYERS"] == ours
    monkeypatch.setenv("OPENCL_LAYERS", "/opt/layer.so")
    env = launcher.environment(tmp_path, "token", software_gpu=None)
    assert env["OPENCL_LAYERS"] == f"{ours}:/opt/layer.so"
