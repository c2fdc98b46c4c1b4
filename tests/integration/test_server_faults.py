"""Whoever dies or stops between entering a server and leaving it, and whatever a client says of
servers: nobody is stuck, nobody keeps what is not its own, and nobody's budget is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.live.wire.protocol import ENTER, LEAVE, Message, build_message
from tests.bench.fates import BOUND_MS, FATES, meet
from tests.integration.daemon_client import Actor, DaemonProcess, running_daemon, wait_until

pytestmark = pytest.mark.live

CLIENT = {"priority": 9, "reserve": "5ms/20ms"}
SERVER = {"priority": 1, "reserve": "1ms/20ms"}
STEPS: dict[str, tuple[str, ...]] = {
    "entered": ("enter SERVER",),
    "entered twice": ("enter SERVER", "enter SERVER"),
    "entered, at the gate": ("enter SERVER", "submit"),
    "left": ("enter SERVER", "leave"),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path_factory.mktemp("servers") / "run") as daemon:
        yield daemon
        assert daemon.status()["restarts"] == 0
        lines = daemon.log.read_text().splitlines()  # a busy machine may make the daemon ordinary
        assert not [line for line in lines if "computed for long without a pause" not in line]


def actor(daemon: DaemonProcess, name: str, chosen: dict[str, object]) -> Actor:
    token = daemon.ask(do="run", name=name, **chosen)["token"]
    made = Actor(daemon, name, token)
    made.do("connect")
    return made


def is_free(daemon: DaemonProcess, name: str, capacity_ns: int) -> bool:
    """It serves nobody, has its own priority, and has its own budget back: no more and no less."""
    entry = daemon.one(name)
    own = entry["effective"] == entry["base"] and entry["inherited_from"] == []
    return bool(own and entry["serving"] == 0 and entry["budget_ns"] == capacity_ns)


def bring_to(daemon: DaemonProcess, step: str, client: Actor, server: Actor) -> None:
    client.do(*(word.replace("SERVER", str(server.pid)) for word in STEPS[step]))
    if step == "left":
        wait_until(lambda: is_free(daemon, "server", 1_000_000), "the server is free")
    else:
        wait_until(lambda: daemon.one("server")["serving"] == 1, "the server works for it")
        entry = daemon.one("server")
        assert (entry["effective"], entry["base"]) == (9, 1)
        assert [name.split(".")[0] for name in entry["inherited_from"]] == ["client"]
        assert entry["budget_ns"] == 6_000_000


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("step", STEPS)
def test_a_server_is_itself_again_when_its_client_ends_or_stops(
    daemon: DaemonProcess, step: str, fate: str
) -> None:
    with (
        daemon.client("rival") as rival,
        actor(daemon, "server", SERVER) as server,
        actor(daemon, "client", CLIENT) as client,
    ):
        bring_to(daemon, step, client, server)
        meet(fate, client)
        wait_until(lambda: is_free(daemon, "server", 1_000_000), "the server is itself again")
        assert rival.one_group() / 1e6 < BOUND_MS
        server.do("submit", "wait_grant", "complete")
        if fate == "stop":
            client.signal(signal.SIGCONT)
            client.do("leave", "submit", "wait_grant", "complete", f"enter {server.pid}")
            wait_until(lambda: daemon.one("server")["serving"] == 1, "it is served again")
    wait_until(lambda: daemon.names() == [], "everybody is gone")


@pytest.mark.parametrize("fate", FATES)
def test_a_client_has_its_budget_back_when_its_server_ends_or_stops(
    daemon: DaemonProcess, fate: str
) -> None:
    with (
        daemon.client("rival") as rival,
        actor(daemon, "server", SERVER) as server,
        actor(daemon, "client", CLIENT) as client,
    ):
        bring_to(daemon, "entered", client, server)
        meet(fate, server)
        wait_until(lambda: daemon.one("client")["budget_ns"] == 5_000_000, "its budget is back")
        client.do("leave", "submit", "wait_grant", "complete")
        assert rival.one_group() / 1e6 < BOUND_MS


def test_a_server_that_dies_at_the_gate_and_online_keeps_nobody(daemon: DaemonProcess) -> None:
    for step in (("submit",), ("submit", "wait_grant"), ("submit", "wait_grant", "busy")):
        with (
            daemon.client("rival") as rival,
            actor(daemon, "server", SERVER) as server,
            actor(daemon, "client", CLIENT) as client,
        ):
            bring_to(daemon, "entered", client, server)
            server.do(*step)
            server.signal(signal.SIGKILL)
            assert rival.one_group() / 1e6 < BOUND_MS
            client.do("leave", "submit", "wait_grant", "complete")


def test_those_who_claim_to_wait_for_each_other_bring_nothing_down(daemon: DaemonProcess) -> None:
    with (
        daemon.client("rival") as rival,
        actor(daemon, "one", CLIENT) as one,
        actor(daemon, "two", CLIENT) as two,
        actor(daemon, "three", CLIENT) as three,
    ):
        circle = (one, two, three)
        for _ in range(20):
            for place, client in enumerate(circle):
                client.do(f"enter {circle[(place + 1) % 3].pid}", f"enter {client.pid}", "leave")
                client.do(f"enter {circle[(place + 1) % 3].pid}")
        assert rival.one_group() / 1e6 < BOUND_MS
        for client in circle:
            client.do("leave", "submit", "wait_grant", "complete")
        assert daemon.status()["restarts"] == 0


def test_a_flood_of_enters_does_not_keep_the_others_from_the_gpu(daemon: DaemonProcess) -> None:
    with (
        actor(daemon, "server", SERVER) as server,
        daemon.client("flooder") as flooder,
        daemon.client("honest") as honest,
    ):
        flood = [
            build_message(Message(ENTER, 1, units=server.pid)),
            build_message(Message(LEAVE, 1)),
            build_message(Message(ENTER, 1, units=1)),
        ]
        flooder.socket.setblocking(False)
        served, end = 0, time.monotonic() + 0.5
        while time.monotonic() < end:
            try:
                for number in range(300):
                    flooder.socket.send(flood[number % 3])
            except BlockingIOError:
                pass
            assert honest.one_group() < 1_000_000_000
            served += 1
        assert served
        flooder.close()
        wait_until(lambda: is_free(daemon, "server", 1_000_000), "the server is free")


def test_a_client_goes_on_when_the_daemon_dies_while_it_is_served(tmp_path: Path) -> None:
    with (
        running_daemon(tmp_path / "run") as first,
        actor(first, "server", SERVER) as server,
        actor(first, "client", CLIENT) as client,
    ):
        bring_to(first, "entered", client, server)
        first.kill()
        with running_daemon(first.folder) as second:
            client.do("connect", "leave", "submit", "wait_grant", "complete")
            server.do("connect", "submit", "wait_grant", "complete")
            assert second.one("server")["serving"] == 0
