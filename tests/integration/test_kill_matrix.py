"""Whoever dies, stops or leaves, at whatever step: the others get the GPU, and nobody is stuck."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kill_campaign import run_campaign
from tests.bench.fates import BOUND_MS, FATES, meet
from tests.integration.daemon_client import (
    Actor,
    Client,
    DaemonProcess,
    Gone,
    running_daemon,
    wait_until,
)

pytestmark = pytest.mark.live


STEPS: dict[str, tuple[str, ...]] = {
    "before submit": ("connect",),
    "waiting": ("connect", "submit"),
    "granted, not seen": ("connect", "submit"),
    "granted, not begun": ("connect", "submit", "wait_grant"),
    "online": ("connect", "submit", "wait_grant", "busy"),
    "done, not told": ("connect", "submit", "wait_grant", "busy", "idle"),
    "completed": ("connect", "submit", "wait_grant", "complete"),
    "lease, idle": ("connect", "get_lease"),
    "lease, busy": ("connect", "get_lease", "busy"),
    "taken back, busy": ("connect", "get_lease", "busy"),
}
TABLE: dict[tuple[str, str, str], float] = {}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path_factory.mktemp("kill") / "run") as daemon:
        yield daemon


@pytest.fixture(scope="module", autouse=True)
def _table(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print what was measured: milliseconds until the next grant."""
    yield
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        _print_table()


def _print_table() -> None:
    print("\nnext grant in ms after the end of ...")
    for (who, step, fate), ms in TABLE.items():
        print(f"  {who:<8}{step:<20}{fate:<10}{ms:8.1f}")


def bring_to(step: str, victim: Actor, daemon: DaemonProcess, rival: Client) -> None:
    """Bring the victim to this step; what it takes of the others is done by the rival."""
    if step == "waiting":
        rival.submit()
        rival.wait_grant()
    victim.do(*STEPS[step])
    if step == "waiting":
        wait_until(lambda: has_asked(daemon, "victim"), "the victim waits")
    elif step == "granted, not seen":
        wait_until(lambda: daemon.one("victim")["state"] == "running", "the victim is granted")
    elif step == "taken back, busy":
        rival.submit()
        wait_until(lambda: has_asked(daemon, "rival"), "the rival waits")


def has_asked(daemon: DaemonProcess, name: str) -> bool:
    """It waits, or (on a machine so slow that the holder's time is over) it waited."""
    return daemon.one(name)["state"] in ("waiting", "running")


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("step", STEPS)
def test_the_others_go_on_when_a_client_ends_or_stops_at_any_step(
    daemon: DaemonProcess, step: str, fate: str
) -> None:
    with daemon.client("rival") as rival, daemon.client("third") as third:
        with Actor(daemon) as victim:
            bring_to(step, victim, daemon, rival)
            since_ns = time.monotonic_ns()
            meet(fate, victim)
            if step == "waiting":
                rival.complete()
            if step == "taken back, busy":
                granted_ns = rival.wait_grant()
                rival.complete()
            else:
                third.submit()
                granted_ns = third.wait_grant()
                third.complete()
            took_ms = (granted_ns - since_ns) / 1e6
            role = "waiter" if step == "waiting" else "holder"
            TABLE[role, step, fate] = took_ms
            assert took_ms < BOUND_MS
            for other in (rival, third, rival):
                assert other.one_group() / 1e6 < BOUND_MS
            survivors = ["rival", "third"]
            if fate == "stop":
                assert daemon.names() == [*survivors, "victim"]
                victim_goes_on(step, victim, rival, daemon)
        wait_until(lambda: daemon.names() == survivors, "only the survivors are left")
        assert third.one_group() / 1e6 < BOUND_MS
    wait_until(lambda: daemon.names() == [], "everybody is gone")


def victim_goes_on(step: str, victim: Actor, rival: Client, daemon: DaemonProcess) -> None:
    """A client that continues finishes what it was at, and then waits its turn."""
    rival.submit()
    rival.wait_grant()
    victim.signal(signal.SIGCONT)
    if step in ("waiting", "granted, not seen"):
        victim.do("wait_grant", "complete")  # it lies there since it was stopped, and is stale
    elif step.startswith(("granted", "online", "done")):
        victim.do("idle", "complete")
    elif "lease" in step or "taken" in step:
        victim.do("idle", "release")
    assert daemon.one("rival")["state"] == "running"  # a stale word takes nothing from the holder
    victim.do("submit")
    wait_until(lambda: has_asked(daemon, "victim"), "it waits its turn")
    assert daemon.one("victim")["state"] == "waiting" or daemon.one("rival")["overdue"]
    rival.complete()
    victim.do("wait_grant", "complete")


def test_a_stopped_holder_is_charged_for_what_it_kept(daemon: DaemonProcess) -> None:
    with Actor(daemon) as victim, daemon.client("rival") as rival:
        victim.do("connect", "submit", "wait_grant")
        victim.signal(signal.SIGSTOP)
        rival.one_group()
        entry = daemon.one("victim")
        assert entry["overdue"] == 1
        assert entry["gpu_ns"] >= 60_000_000


def test_a_holder_that_nobody_waits_for_keeps_the_gpu(daemon: DaemonProcess) -> None:
    with daemon.client("slow") as slow:
        slow.submit()
        granted_ns = slow.wait_grant()
        wait_until(lambda: time.monotonic_ns() - granted_ns > 100_000_000, "the bound passes")
        assert daemon.one("slow")["state"] == "running"
        assert daemon.one("slow")["overdue"] == 0
        slow.complete()


def test_death_is_noticed_though_a_child_keeps_the_connection_open(daemon: DaemonProcess) -> None:
    with daemon.client("rival") as rival, Actor(daemon) as victim:
        victim.do("connect", "submit", "wait_grant", "fork_a_child")
        victim.signal(signal.SIGKILL)
        assert rival.one_group() / 1e6 < BOUND_MS
        # Sooner than the child ends, which closes the connection.
        wait_until(lambda: daemon.names() == ["rival"], "the dead one is gone", timeout_s=3)


@pytest.mark.parametrize("fate", ["kill -9", "stop", "exit"])
@pytest.mark.parametrize("step", STEPS)
def test_clients_see_the_end_of_the_daemon_and_a_new_one_takes_them_up(
    tmp_path: Path, step: str, fate: str
) -> None:
    with (
        running_daemon(tmp_path / "run") as first,
        first.client("rival") as rival,
        Actor(first) as victim,
    ):
        bring_to(step, victim, first, rival)
        if fate == "stop":
            the_daemon_stops_for_a_while(first, rival)
            return
        since_ns = time.monotonic_ns()
        first.kill(signal.SIGKILL if fate == "kill -9" else signal.SIGTERM)
        with pytest.raises((Gone, ConnectionError)):
            rival.wait_end()
        took_ms = (time.monotonic_ns() - since_ns) / 1e6
        TABLE["daemon", step, fate] = took_ms
        assert took_ms < BOUND_MS
        with running_daemon(first.folder) as second, second.client("rival") as again:
            victim.do("connect")
            assert again.one_group() / 1e6 < BOUND_MS
            victim.do("submit", "wait_grant", "complete")
            assert second.names() == ["rival", "victim"]


def the_daemon_stops_for_a_while(daemon: DaemonProcess, rival: Client) -> None:
    """A client that cannot wait goes by itself, says so, and is served again afterwards."""
    daemon.kill(signal.SIGSTOP)
    rival.submit()
    stopped_ns = rival.heartbeat_ns
    wait_until(lambda: time.monotonic_ns() - stopped_ns > 400_000_000, "the heartbeat is stale")
    rival.withdraw()
    since_ns = time.monotonic_ns()
    daemon.kill(signal.SIGCONT)
    wait_until(lambda: rival.heartbeat_ns > stopped_ns, "the heart beats again")
    rival.one_group()
    TABLE["daemon", "stopped", "continued"] = (time.monotonic_ns() - since_ns) / 1e6


def test_hundreds_of_random_fates_leave_nobody_stuck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make bench-live` does a thousand."""
    outcome = run_campaign(tmp_path / "run", seed=1, actions=300)
    with capsys.disabled():
        print("\n" + outcome.table())
    assert outcome.stuck == 0
    assert outcome.worst_ms < BOUND_MS
