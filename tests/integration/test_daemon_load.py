"""Many clients, few descriptors, bad spec files, other users: the daemon serves and stays."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.api.client import Refused
from tests.integration.command import headway
from tests.integration.daemon_client import (
    Actor,
    Client,
    DaemonProcess,
    Gone,
    running_daemon,
    wait_until,
)

pytestmark = pytest.mark.live

GOOD = '[[task]]\nname = "vip*"\npriority = 7\n'


@pytest.fixture(scope="module", autouse=True)
def _descriptors() -> Iterator[None]:
    """The clients of these tests live in this process: as many descriptors as are permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path / "run") as daemon:
        yield daemon


# -- alone and not -------------------------------------------------------------------------------


def test_only_programs_that_others_could_wait_for_are_split(daemon: DaemonProcess) -> None:
    with daemon.client("first") as first:
        assert first.split_ns == 0
        with Actor(daemon, "second") as second:
            second.do("connect")
            wait_until(lambda: first.split_ns == 500_000, "a bound once somebody else is there")
            second.exit()
        wait_until(lambda: first.split_ns == 0, "no bound once it is alone again")
        daemon.ask(do="set", task="first", reserve="5ms/20ms")
        assert first.split_ns == 500_000, "a budget is overrun by one group at most"


# -- many ----------------------------------------------------------------------------------------


def test_three_hundred_clients_that_start_at_once_are_all_served(daemon: DaemonProcess) -> None:
    served: list[int] = []
    start = threading.Barrier(301)

    def live() -> None:
        start.wait()
        with daemon.client("many") as client:
            served.append(sum(client.one_group() for _ in range(3)))

    threads = [threading.Thread(target=live) for _ in range(300)]
    for thread in threads:
        thread.start()
    since = time.monotonic()
    start.wait()
    for thread in threads:
        thread.join()
    print(f"\n300 clients, 3 groups each: {time.monotonic() - since:.2f} s")
    assert len(served) == 300
    wait_until(lambda: daemon.names() == [], "everybody is gone")


def test_a_thousand_idle_clients_cost_little_and_one_more_is_served(daemon: DaemonProcess) -> None:
    # One descriptor each here: the pages are closed, as the interposer closes them.
    wanted = min(1000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    before_kb = daemon.memory_kb()
    with contextlib.ExitStack() as stack:
        for _ in range(wanted):
            stack.enter_context(daemon.client("idle"))
        assert len(daemon.status()["channels"]) == wanted
        used_s, since = daemon.cpu_s(), time.monotonic()
        wait_until(lambda: time.monotonic() - since > 2, "two seconds in which nothing happens")
        share = (daemon.cpu_s() - used_s) / (time.monotonic() - since)
        grown_kb = daemon.memory_kb() - before_kb
        print(f"\n{wanted} idle clients: {share:.1%} of a CPU, {grown_kb / wanted:.1f} kB each")
        assert share < 0.05
        assert grown_kb < 36 * wanted, "three pages are 12 kB of it"
        with daemon.client("late") as late:
            assert late.one_group() < 1_000_000_000
    wait_until(lambda: daemon.names() == [], "everybody is gone")


def test_an_idle_daemon_uses_no_cpu(daemon: DaemonProcess) -> None:
    used_s, since = daemon.cpu_s(), time.monotonic()
    wait_until(lambda: time.monotonic() - since > 1, "a second in which nothing happens")
    assert daemon.cpu_s() - used_s < 0.05


# -- few descriptors -----------------------------------------------------------------------------


def test_a_daemon_without_descriptors_serves_whom_it_has_and_recovers(tmp_path: Path) -> None:
    with (
        running_daemon(tmp_path / "run", descriptors=64) as daemon,
        contextlib.ExitStack() as stack,
    ):
        inside: list[Client] = []
        refused = 0
        for _ in range(100):
            try:
                inside.append(stack.enter_context(daemon.client("guest")))
            except ConnectionError:
                refused += 1
        assert len(inside) == daemon.status()["room"]
        assert len(inside) + refused == 100
        # Connections that say nothing fill what is left, on both sockets.
        for path in (daemon.socket, daemon.folder / "control.sock"):
            kind = socket.SOCK_SEQPACKET if path == daemon.socket else socket.SOCK_STREAM
            for _ in range(100):
                silent = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                with contextlib.suppress(BlockingIOError):
                    silent.setblocking(False)
                    silent.connect(str(path))
        used_s, since = daemon.cpu_s(), time.monotonic()
        groups = 0
        while time.monotonic() - since < 1:
            assert inside[groups % len(inside)].one_group() < 1_000_000_000
            groups += 1
        assert daemon.status()["grants"] >= groups
        print(f"\nfull: {groups} groups in a second, {daemon.cpu_s() - used_s:.2f} s of CPU")
        stack.close()
        wait_until(lambda: daemon.names() == [], "the guests are gone")
        with daemon.client("next") as client:
            client.one_group()
            assert daemon.names() == ["next"]


# -- the spec file -------------------------------------------------------------------------------


def test_a_spec_replaced_by_garbage_changes_nothing_and_the_reason_is_told(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(GOOD)
    with running_daemon(tmp_path / "run", "--spec", str(spec)) as daemon:
        for garbage in (b"[[task]]\nname = 5\n", b"\xff\xfe\0\0", b"[" * 5000, b"x" * 2_000_000):
            spec.write_bytes(garbage)
            daemon.kill(signal.SIGHUP)
            with daemon.client("vip") as client:
                assert daemon.one("vip")["priority"] == "7"
                client.one_group()
            assert str(spec) in daemon.status()["spec_problem"]
            with pytest.raises(Refused, match=r"spec\.toml"):
                daemon.ask(do="reload")
        spec.unlink()
        os.mkfifo(spec)  # nobody ever writes into it
        with pytest.raises(Refused, match="plain file"):
            daemon.ask(do="reload")
        spec.unlink()
        with daemon.client("vip"):
            assert daemon.one("vip")["priority"] == "7"


def test_a_good_new_spec_counts_for_every_new_channel_without_being_told(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(GOOD)
    with (
        running_daemon(tmp_path / "run", "--spec", str(spec)) as daemon,
        daemon.client("vip1"),
    ):
        spec.write_text(GOOD.replace("7", "8888"))
        with daemon.client("vip2"):
            assert daemon.one("vip1")["priority"] == "7"
            assert daemon.one("vip2")["priority"] == "8888"
        spec.write_text("[[task]]\n")
        with daemon.client("vip3"):
            assert daemon.one("vip3")["priority"] == "8888"
        spec.write_text(GOOD)
        assert daemon.ask(do="reload")["ok"]
        assert daemon.status()["spec_problem"] == ""
        with daemon.client("vip4"), daemon.client("stranger"):
            assert daemon.one("vip4")["priority"] == "7"
            assert daemon.one("stranger")["reserve"] == "@background"
            assert "Background" in daemon.one("stranger")["note"]


# -- reserves ------------------------------------------------------------------------------------


def test_who_joins_a_pool_with_other_numbers_shares_it_and_is_told(daemon: DaemonProcess) -> None:
    first = daemon.ask(do="run", name="first", reserve="5ms/20ms", shared="pool")["token"]
    other = daemon.ask(do="run", name="other", reserve="9ms/20ms", shared="pool")["token"]
    with daemon.client("x", first), daemon.client("y", other) as client:
        assert daemon.one("other")["capacity_ns"] == 5_000_000
        assert "'pool' has pe 5ms every 20ms" in daemon.one("other")["note"]
        client.one_group()
        daemon.ask(do="set", task="first", reserve="9ms/20ms", shared="pool")
        assert daemon.one("other")["capacity_ns"] == 9_000_000


def test_a_reserve_that_is_turned_away_is_noted(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text("[admission]\nlimit = 50\n" + GOOD)
    with running_daemon(tmp_path / "run", "--spec", str(spec)) as daemon:
        token = daemon.ask(do="run", name="greedy", reserve="19ms/20ms")["token"]
        with daemon.client("x", token) as client:
            assert daemon.one("greedy")["reserve"] == "@background"
            assert "95 % of the GPU" in daemon.one("greedy")["note"]
            client.one_group()


def test_a_lease_is_taken_back_when_its_holder_gets_a_reserve(daemon: DaemonProcess) -> None:
    with daemon.client("alone") as client:
        client.get_lease()
        daemon.ask(do="set", task="alone", reserve="5ms/20ms")
        assert not client.leased
        client.one_group()
        assert daemon.one("alone")["reserve"] is not None


def test_budgets_are_charged_from_the_grant_whatever_the_client_says(daemon: DaemonProcess) -> None:
    token = daemon.ask(do="run", name="liar", reserve="5ms/1s")["token"]
    with daemon.client("x", token) as client:
        client.submit()
        granted_ns = client.wait_grant()
        wait_until(lambda: time.monotonic_ns() - granted_ns > 20_000_000, "it uses the GPU")
        client.complete()  # "it began just now", says the message
        client.submit()
        wait_until(lambda: daemon.one("liar")["state"] == "budget", "it waits for its budget")


def test_groups_of_a_policy_that_lets_several_through_do_not_block_the_rest(
    daemon: DaemonProcess,
) -> None:
    token = daemon.ask(do="run", policy="fifo")["token"]
    with (
        daemon.client("one", token) as one,
        daemon.client("two", token) as two,
        daemon.client("three") as three,
    ):
        one.submit()
        one.wait_grant()
        two.submit()
        two.wait_grant()
        three.submit()
        wait_until(lambda: daemon.one("three")["state"] == "waiting", "the ordered one waits")
        one.complete()
        two.complete()
        three.wait_grant()
        three.complete()


def test_a_live_trace_keeps_the_rules(tmp_path: Path) -> None:
    trace = tmp_path / "live.pftrace"
    with running_daemon(tmp_path / "run", "--trace", str(trace)) as daemon:
        tokens = [
            daemon.ask(do="run", name="a", priority=3)["token"],
            daemon.ask(do="run", name="b", policy="ht")["token"],
            daemon.ask(do="run", name="c", reserve="5ms/50ms")["token"],
            daemon.ask(do="run", name="d", reserve="5ms/50ms:ae")["token"],
        ]
        threads = [threading.Thread(target=_live, args=(daemon, token)) for token in tokens]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        daemon.ask(do="stop")
        daemon.process.wait(20)
        assert daemon.log.read_text() == ""
    checked = headway("check", "--tolerance", "50ms", trace)
    assert checked.returncode == 0, checked.stdout
    assert "fine" in checked.stdout


def _live(daemon: DaemonProcess, token: str) -> None:
    with daemon.client("x", token) as client:
        for _ in range(100):
            client.one_group()


# -- who may -------------------------------------------------------------------------------------

AS_NOBODY = """
import os, socket, sys
from headway.live.wire.protocol import build_hello
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for name, kind in (("clients", socket.SOCK_SEQPACKET), ("control", socket.SOCK_STREAM)):
    s = socket.socket(socket.AF_UNIX, kind)
    s.settimeout(10)
    try:
        s.connect(f"{sys.argv[1]}/{name}.sock")
        s.send(build_hello("intruder") if name == "clients" else b'{"do":"stop"}\\n')
        print("refused" if not s.recv(100) else "served")
    except PermissionError:
        print("locked out")
    except ConnectionError:
        print("refused")
"""


@pytest.mark.parametrize(("mode", "expected"), [(0o700, "locked out"), (0o755, "refused")])
def test_another_user_is_refused(mode: int, expected: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with (
        tempfile.TemporaryDirectory() as folder,
        running_daemon(Path(folder) / "run") as daemon,
        daemon.client("own") as own,
    ):
        Path(folder).chmod(0o755)
        for name in ("clients", "control"):  # as if the owner had opened the way to the sockets
            (daemon.folder / f"{name}.sock").chmod(0o666)
        daemon.folder.chmod(mode)
        found = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(daemon.folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert found.stdout.split("\n")[:2] == [expected] * 2, found.stderr
        own.one_group()
        assert daemon.names() == ["own"]


def test_a_second_daemon_in_the_same_folder_says_so_and_harms_nobody(daemon: DaemonProcess) -> None:
    with daemon.client("own") as own:
        second = subprocess.run(
            [sys.executable, "-m", "headway", "daemon"],
            env={**os.environ, "HEADWAY_DIR": str(daemon.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert "a daemon is running there already" in second.stderr
        own.one_group()


LAUNCHER = """
import sys
from pathlib import Path
from headway.live.api.client import ask
print(ask(Path(sys.argv[1]), {"do": "run", "name": "second"})["token"], flush=True)
sys.stdin.read()
"""


def test_a_private_daemon_ends_with_its_last_client_but_not_while_a_launched_program_lives(
    tmp_path: Path,
) -> None:
    with running_daemon(tmp_path / "run", "--until-idle") as daemon:
        with subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(daemon.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as launched:
            assert launched.stdout is not None
            token = launched.stdout.readline().strip()
            for _ in range(2):  # one program after the other, as from a shell
                with daemon.client("x", token):
                    assert daemon.names() == ["second"]
                wait_until(lambda: daemon.names() == [], "it is gone")
        daemon.process.wait(20)
        with pytest.raises((Gone, OSError)):
            daemon.client("late")
