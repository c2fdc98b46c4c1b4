"""The systemd units: what they say is understood, and a daemon can do its work under it.

There need not be a systemd here to start one, so what the unit restricts is put on a daemon by
other means: its capabilities, its limits, a file system that cannot be written to, and the system
calls that it makes, which are looked up in the unit's list.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.server.startup import RLIMIT_RTTIME, RT_MOST_US, RT_US
from tests.bench.owners import ANN, SPEC, asks, start
from tests.integration.daemon_client import ROOT, Actor, DaemonProcess, running_daemon, wait_until

UNITS = ROOT / "packaging"
MACHINE, USER = UNITS / "headway.service", UNITS / "headway-user.service"
EXPOSED = 25
"""Most that `systemd-analyze security` may say of the machine's unit, in tenths; 100 is a unit that
restricts nothing."""
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take rights away")


def values(unit: Path, key: str) -> list[str]:
    """What the unit says of a key, which may come again."""
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


# -- what they say ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [MACHINE, USER], ids=lambda unit: unit.stem)
def test_systemd_understands_every_line(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_machines_unit_is_restricted() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSED}", MACHINE],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-200:]
    assert values(MACHINE, "CapabilityBoundingSet") == ["CAP_SYS_NICE"]
    for key, value in {
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "CPUSchedulingResetOnFork": "yes",
        "MemoryMax": "1G",
        "LimitRTTIME": f"{RT_US // 1000}ms:{RT_MOST_US // 1_000_000}s",
    }.items():
        assert values(MACHINE, key) == [value]


# -- a daemon under it -----------------------------------------------------------------------------


NO_NEW_CODE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""MemoryDenyWriteExecute, as the kernel has it since 6.3, for the program that follows."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder below which a daemon may write, and that every user can look into."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        (Path(made) / "spec.toml").write_text(SPEC)
        (Path(made) / "run").mkdir(mode=0o711)
        yield Path(made)


def restricted(folder: Path) -> tuple[str, ...]:
    """A command that puts the unit's restrictions on what it runs, and becomes it."""
    (capability,) = values(MACHINE, "CapabilityBoundingSet")
    run = folder / "run"
    lines = [
        f"mount --bind {run} {run}",  # the RuntimeDirectory
        "mount -o remount,bind,ro /",  # ProtectSystem
        f"umask {values(MACHINE, 'UMask')[0]}",
        f"exec prlimit --rttime={RT_US}:{RT_MOST_US} setpriv --no-new-privs"
        f' --bounding-set=-all,+{capability.removeprefix("CAP_").lower()} "$@"',
    ]
    command = ("unshare", "--mount", "bash", "-ec", "\n".join(lines), "restricted")
    return (*command, sys.executable, "-c", NO_NEW_CODE)


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[DaemonProcess]:
    options = ("--spec", str(folder / "spec.toml"), "--nice-server")
    with running_daemon(folder / "run", *options, under=restricted(folder)) as daemon:
        yield daemon
        assert daemon.log.read_text() == ""


@ONLY_ROOT
def test_a_daemon_does_its_work_with_the_rights_of_the_unit(daemon: DaemonProcess) -> None:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    capabilities = {m[0]: int(m[1], 16) for m in re.findall(r"Cap(Eff|Bnd):\t(\w+)", status)}
    sys_nice = 1 << 23
    assert capabilities == {"Eff": sys_nice, "Bnd": sys_nice}
    assert "NoNewPrivs:\t1" in status
    with start(daemon, ANN, "editor", priority=3) as editor, daemon.client("own") as own:
        editor.do("submit", "wait_grant", "complete")
        own.one_group()
        assert asks(daemon, ANN, do="set", task="editor", reserve="1ms/20ms")["tasks"]
        assert daemon.one("editor")["effective"] == 3
        assert stat.S_IMODE((daemon.folder / "launches").stat().st_mode) == 0o700
        daemon.ask(do="reload")
    wait_until(lambda: daemon.names() == [], "they are gone")


@ONLY_ROOT
def test_a_daemon_goes_first_and_what_it_starts_does_not(daemon: DaemonProcess) -> None:
    policy = os.sched_getscheduler(daemon.pid)
    assert policy == os.SCHED_RR | os.SCHED_RESET_ON_FORK
    assert resource.prlimit(daemon.pid, RLIMIT_RTTIME) == (RT_US, RT_MOST_US)


@ONLY_ROOT
def test_a_daemon_that_computes_without_a_pause_steps_down(tmp_path: Path) -> None:
    with running_daemon(tmp_path / "run") as daemon, daemon.client("own") as own:
        daemon.kill(signal.SIGSTOP)
        daemon.kill(signal.SIGCONT)
        own.one_group()
        os.kill(daemon.pid, signal.SIGXCPU)  # what the kernel sends at the soft limit
        own.one_group()
        assert os.sched_getscheduler(daemon.pid) == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK
        own.one_group()
        (line,) = daemon.log.read_text().splitlines()
        assert "is an ordinary process from now on" in line


# -- system calls ----------------------------------------------------------------------------------


def calls_of(name: str) -> set[str]:
    """The system calls of a set, such as @file-system; a call is a set of itself."""
    if not name.startswith("@"):
        return {name}
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", name],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    words = [line.strip() for line in done.stdout.splitlines()[1:]]
    return set().union(*(calls_of(word) for word in words if word and not word.startswith("#")))


def permitted(unit: Path) -> set[str]:
    calls: set[str] = set()
    for value in values(unit, "SystemCallFilter"):
        named = set().union(*(calls_of(word) for word in value.removeprefix("~").split()))
        calls = calls - named if value.startswith("~") else calls | named
    return calls


@pytest.mark.parametrize("unit", [MACHINE, USER], ids=lambda unit: unit.stem)
def test_the_unit_permits_every_system_call_of_a_daemon(tmp_path: Path, unit: Path) -> None:
    trace = tmp_path / "calls"
    under = ("strace", "-D", "-f", "-q", "--signal=none", "-o", str(trace))
    with running_daemon(tmp_path / "run", "--metrics", f"unix:{tmp_path}/m", under=under) as daemon:
        token = daemon.ask(do="run", name="tool", priority=3)["token"]
        with Actor(daemon, "tool", token) as tool:
            tool.do("connect", "submit", "wait_grant", "complete", "enter 0")
            daemon.ask(do="set", task="tool", reserve="1ms/20ms", policy="ht")
        daemon.ask(do="reload")
        daemon.ask(do="stop")
        daemon.process.wait(20)
    wait_until(lambda: "+++ exited with" in trace.read_text().splitlines()[-1], "all was written")
    made = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(), re.MULTILINE))
    assert {"epoll_wait", "memfd_create", "accept4", "sched_setscheduler"} <= made
    assert made - permitted(unit) == set()
