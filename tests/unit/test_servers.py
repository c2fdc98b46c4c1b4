"""Entering and leaving servers, as the daemon keeps book of it: with our clock, no processes."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator

import pytest

from headway.engine.model import level_of
from headway.engine.reserves import ReserveSpec
from headway.engine.spec import parse_spec
from headway.live.desktop import servers as servers_module
from headway.live.desktop.niceness import MOST, Niceness
from headway.live.desktop.servers import MOST_TASKS, REQUEST_NS, Inherit, Servers
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.registry import Registry
from headway.live.identity.rights import Rights
from headway.live.server.loop import Loop
from headway.live.wire.protocol import (
    AWAIT,
    COMPLETE,
    ENTER,
    LEAVE,
    RELEASE,
    SUBMIT,
    TELL,
    WITHDRAW,
    YIELD,
    Message,
    build_hello,
    parse_hello,
)
from tests.bench.gate import MS, GateBench
from tests.pages import page

CLIENT, SERVER, OTHER, WINDOWS = 101, 102, 103, os.getpid()
"""Processes. The window server is the only one that exists: its death is watched for."""


class Desk(GateBench):
    """A bench with servers. Processes in `displays` use the window server."""

    def __init__(self, inherit: Inherit | None = None, spec: str = "") -> None:
        super().__init__()
        self.loop = Loop()
        self.displays: set[int] = set()
        self.listeners = [Peer(WINDOWS, 0, 0)]
        self.servers = Servers(
            self.engine,
            lambda _: self.engine,
            self.loop,
            inherit or Inherit(),
            Rights(parse_spec(spec)),
            lambda channel, now_ns: self.arbiter.take_back(channel, now_ns),
        )

    def join(
        self,
        name: str,
        pid: int,
        level: int = 0,
        *,
        reserve: ReserveSpec | None = None,
        uid: int = 0,
        at_ns: int = 0,
    ) -> Channel:
        channel = self.channel(name, level=level, at_ns=at_ns, peer=Peer(pid, uid, uid))
        assert channel.task is not None
        if reserve is not None:
            self.engine.set_reserve(channel.task, reserve, at_ns)
        self.servers.arrived(channel)
        self.servers.shows_on(channel, ":7" if pid in self.displays else "")
        self.servers.refresh(at_ns)
        return channel

    def enter(self, channel: Channel, pid: int, at_ns: int) -> None:
        self.servers.heard(channel, Message(ENTER, 0, units=pid), at_ns)
        self.arbiter.pump(at_ns)

    def leave(self, channel: Channel, at_ns: int) -> None:
        self.servers.heard(channel, Message(LEAVE, 0), at_ns)
        self.arbiter.pump(at_ns)

    def dies(self, channel: Channel, at_ns: int) -> None:
        self.arbiter.remove(channel, at_ns)
        self.servers.gone(channel, at_ns)

    def word(self, channel: Channel) -> int:
        self.servers.refresh(0)
        return page(channel, "server")

    def close(self) -> None:
        assert self.checker.violations == []
        self.servers.close()
        self.loop.close()
        super().close()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    desk = Desk()
    on_display(desk, monkeypatch)
    yield desk
    desk.close()


def on_display(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks the kernel here: who serves the display is decided by us."""
    monkeypatch.setattr(servers_module, "listeners_of", lambda display: desk.listeners)


def level(channel: Channel) -> int:
    assert channel.task is not None
    return channel.task.priority


def budget(channel: Channel) -> int:
    assert channel.task is not None
    assert channel.task.reserve is not None
    return channel.task.reserve.budget_ns


# -- priorities ------------------------------------------------------------------------------------


def test_a_server_goes_before_whoever_is_less_important_than_its_client(desk: Desk) -> None:
    client, server = desk.join("client", CLIENT, 9), desk.join("server", SERVER, 1)
    middle = desk.join("middle", OTHER, 5)
    running = desk.join("running", OTHER + 1, 0)
    desk.hear(running, SUBMIT, 1, 0)
    desk.hear(middle, SUBMIT, 1, 1)
    desk.enter(client, SERVER, 2)
    desk.hear(server, SUBMIT, 1, 3)
    assert level(server) == 9
    desk.hear(running, COMPLETE, 1, 4)
    assert desk.granted[-1] == ("server", 1)
    desk.hear(server, COMPLETE, 1, 5)
    desk.leave(client, 6)
    assert level(server) == 1


def test_answers_in_any_order_leave_the_server_with_the_best_that_waits(desk: Desk) -> None:
    server = desk.join("server", SERVER, 1)
    clients = {n: desk.join(f"c{n}", CLIENT + 10 + n, n) for n in (3, 7, 5)}
    for client in clients.values():
        desk.enter(client, SERVER, 0)
    assert level(server) == 7
    desk.leave(clients[3], 1)
    assert level(server) == 7
    desk.leave(clients[7], 2)
    assert level(server) == 5
    desk.leave(clients[5], 3)
    assert level(server) == 1


@pytest.mark.parametrize("pid", [0, CLIENT, 99_999, 2**64 - 1])
def test_a_server_that_nobody_knows_is_nobody(desk: Desk, pid: int) -> None:
    client = desk.join("client", CLIENT, 9)
    desk.enter(client, pid, 0)
    desk.leave(client, 1)
    desk.leave(client, 2)
    assert desk.servers.next_timer_ns() is None


def test_those_who_wait_for_each_other_are_not_believed(desk: Desk) -> None:
    one, two, three = (desk.join(f"t{n}", 200 + n, n) for n in range(3))
    desk.enter(one, 201, 0)
    desk.enter(two, 202, 0)
    desk.enter(three, 200, 0)  # closes the circle: it is as if it had not been said
    assert level(two) == 1
    assert level(one) == 0
    desk.enter(two, 200, 1)  # which t1 serves: a circle again, and its other request is over
    assert level(three) == 2
    assert level(one) == 0


def test_a_client_has_one_request_at_a_time(desk: Desk) -> None:
    client = desk.join("client", CLIENT, 9)
    first, second = desk.join("first", SERVER, 1), desk.join("second", OTHER, 1)
    for _ in range(3):
        desk.enter(client, SERVER, 0)
    assert len(desk.engine.ranks.requests_to(first.task)) == 1  # type: ignore[arg-type]
    desk.enter(client, OTHER, 1)
    assert (level(first), level(second)) == (1, 9)
    desk.leave(client, 2)
    assert (level(first), level(second)) == (1, 1)


def test_a_request_that_is_never_answered_ends_by_itself(desk: Desk) -> None:
    client, server = desk.join("client", CLIENT, 9), desk.join("server", SERVER, 1)
    desk.enter(client, SERVER, 5)
    assert desk.servers.next_timer_ns() == 5 + REQUEST_NS
    assert not desk.servers.tick(4 + REQUEST_NS)
    assert level(server) == 9
    assert desk.servers.tick(5 + REQUEST_NS)
    assert level(server) == 1
    desk.leave(client, 6 + REQUEST_NS)
    assert level(server) == 1


def test_only_its_own_user_and_the_owner_may_name_a_server(desk: Desk) -> None:
    server = desk.join("server", SERVER, 1, uid=1000)
    stranger, same = desk.join("a", 301, 5, uid=1001), desk.join("b", 302, 5, uid=1000)
    desk.enter(stranger, SERVER, 0)
    assert level(server) == 1
    desk.enter(same, SERVER, 1)
    assert level(server) == 5


def test_every_context_of_a_server_inherits_up_to_a_bound(desk: Desk) -> None:
    contexts = [desk.join(f"x{n}", SERVER, 1) for n in range(MOST_TASKS + 2)]
    desk.enter(desk.join("client", CLIENT, 9), SERVER, 0)
    assert [level(c) for c in contexts] == [9] * MOST_TASKS + [1, 1]


def test_a_server_keeps_no_lease(desk: Desk) -> None:
    client, server = desk.join("client", CLIENT, 9), desk.join("server", SERVER, 1)
    desk.hear(server, SUBMIT, 1, 0)
    desk.hear(server, COMPLETE, 1, 1)
    assert server.leased
    desk.enter(client, SERVER, 2)
    assert not server.leased
    desk.leave(client, 3)
    desk.hear(server, SUBMIT, 2, 4)
    desk.hear(server, COMPLETE, 2, 5)
    assert not server.leased


# -- reserves --------------------------------------------------------------------------------------

FIVE = ReserveSpec("pe", 5 * MS, 20 * MS)
ONE = ReserveSpec("pe", 1 * MS, 20 * MS)


def test_a_server_works_on_its_clients_budget(desk: Desk) -> None:
    client = desk.join("client", CLIENT, 9, reserve=FIVE)
    server = desk.join("server", SERVER, 1, reserve=ONE)
    desk.enter(client, SERVER, 0)
    assert (budget(client), budget(server)) == (0, 6 * MS)
    desk.hear(server, SUBMIT, 1, 0)
    desk.hear(server, COMPLETE, 1, 3 * MS)
    desk.leave(client, 3 * MS)
    # 3 ms are left and 5 were lent: equation (1) returns all three.
    assert (budget(client), budget(server)) == (3 * MS, 0)


@pytest.mark.parametrize("victim", ["client", "server"])
def test_no_budget_is_lost_with_a_client_or_a_server_that_dies(desk: Desk, victim: str) -> None:
    client = desk.join("client", CLIENT, 9, reserve=FIVE)
    other = desk.join("other", OTHER, 5, reserve=FIVE)
    server = desk.join("server", SERVER, 1, reserve=ONE)
    desk.enter(client, SERVER, 0)
    desk.enter(other, SERVER, 0)
    assert budget(server) == 11 * MS
    if victim == "client":
        desk.dies(client, 1)
        assert (budget(other), budget(server)) == (0, 6 * MS)
        desk.leave(other, 2)
        assert (budget(other), budget(server)) == (5 * MS, 1 * MS)
    else:
        desk.dies(server, 1)
        assert (budget(client), budget(other)) == (5 * MS, 5 * MS)
        desk.leave(client, 2)
        assert level(other) == 5


def test_what_was_lent_to_a_stopped_clients_server_comes_back(desk: Desk) -> None:
    client = desk.join("client", CLIENT, 9, reserve=FIVE)
    server = desk.join("server", SERVER, 1, reserve=ONE)
    desk.enter(client, SERVER, 0)
    for period in range(1, 51):
        desk.arbiter.tick(period * 20 * MS)
    desk.servers.tick(REQUEST_NS)
    assert (budget(client), budget(server)) == (5 * MS, 1 * MS)


# -- what is done around a swap --------------------------------------------------------------------


def test_who_has_no_reserve_is_asked_nothing(desk: Desk) -> None:
    desk.displays = {CLIENT}
    client = desk.join("client", CLIENT)
    second = desk.join("second", CLIENT)
    assert desk.word(client) == desk.word(second) == 0
    other = desk.join("other", OTHER)
    assert desk.word(client) == 0
    assert desk.word(other) == 0  # it shows nothing there


def test_what_a_server_on_the_cpu_does_is_charged_to_a_reserve(desk: Desk) -> None:
    desk.displays = {CLIENT}
    client = desk.join("client", CLIENT, reserve=FIVE)
    assert desk.word(client) == AWAIT
    assert client.task is not None
    desk.engine.set_reserve(client.task, None, 1)
    desk.servers.changed([client])
    assert desk.word(client) == 0


def test_a_server_on_the_gpu_finds_it_free(desk: Desk) -> None:
    desk.displays = {CLIENT}
    client = desk.join("client", CLIENT, 9)
    windows = desk.join("windows", WINDOWS, 1)
    assert desk.word(client) == AWAIT | TELL | YIELD
    assert desk.word(windows) == 0
    assert windows.serves
    desk.enter(client, 0, 1)
    assert level(windows) == 9
    desk.dies(windows, 2)
    assert desk.word(client) == 0
    assert "client" in desk.engine.tasks


@pytest.mark.parametrize(
    ("inherit", "expected"),
    [
        (Inherit(), AWAIT),
        (Inherit(rix=False), YIELD),
        (Inherit(pix=False, rix=False), YIELD),
        (Inherit(nice=True), AWAIT | TELL),
        (Inherit(rix=False, nice=True), AWAIT | TELL | YIELD),
        (Inherit(pix=False, nice=True), AWAIT),
        (Inherit(watch=False), 0),
    ],
    ids=str,
)
def test_each_protocol_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, inherit: Inherit, expected: int
) -> None:
    desk = Desk(inherit)
    on_display(desk, monkeypatch)
    desk.displays = {CLIENT}
    client = desk.join("client", CLIENT, reserve=FIVE)
    desk.join("other", OTHER)
    assert desk.word(client) == expected
    desk.close()


def test_a_window_server_that_dies_frees_its_clients(desk: Desk) -> None:
    desk.displays = {CLIENT, OTHER}
    client, other = desk.join("client", CLIENT, 9), desk.join("other", OTHER)
    desk.enter(client, 0, 0)  # it is no task of the GPU, but has a place
    (server,) = desk.servers.known.values()
    assert server.task is not None
    assert level_of(server.task.rank) == 9
    desk.servers._server_over(server)
    assert desk.word(client) == desk.word(other) == 0
    assert list(desk.engine.tasks) == ["client", "other"]
    assert desk.servers.known == {}
    assert desk.servers.next_timer_ns() is None
    third = desk.join("third", CLIENT, at_ns=desk.engine.now_ns)
    assert third in desk.servers._used  # the next server there is found


def test_a_listener_of_some_other_user_is_not_the_server_of_a_display(desk: Desk) -> None:
    """Anybody may listen at the abstract address of a display that is free."""
    desk.displays = {CLIENT}
    desk.listeners = [Peer(WINDOWS, 1002, 1002)]
    client = desk.join("client", CLIENT, 9, uid=1001)
    desk.join("other", OTHER)
    desk.enter(client, 0, 0)
    assert desk.servers.known == {}
    desk.listeners.append(Peer(WINDOWS, 1001, 1001))  # the real one, at the path
    second = desk.join("second", CLIENT, 9, uid=1001)
    desk.enter(second, 0, 1)
    (server,) = desk.servers.known.values()
    assert server.peer.uid == 1001


@pytest.mark.parametrize(("allow", "raised"), [("", False), ("nice = true", True)])
def test_a_server_of_some_other_user_is_raised_on_the_cpu_only_if_the_spec_says_so(
    monkeypatch: pytest.MonkeyPatch, allow: str, raised: bool
) -> None:
    desk = Desk(Inherit(nice=True), f"[allow]\nuids = [1001]\n{allow}\n")
    on_display(desk, monkeypatch)
    followed: list[int | None] = []
    monkeypatch.setattr(Niceness, "follow", lambda self, level: followed.append(level))
    desk.displays = {CLIENT}
    for uid in (0, 1001):
        desk.listeners = [Peer(WINDOWS, uid, uid)]
        client = desk.join(f"client {uid}", CLIENT, 9, uid=uid)
        desk.enter(client, 0, 0)
        assert bool(followed) == (raised or uid == 0)
        desk.dies(client, 0)
        followed.clear()
    desk.close()


def test_a_new_engine_knows_no_requests(desk: Desk) -> None:
    desk.displays = {CLIENT, OTHER}
    client = desk.join("client", CLIENT, 9)
    desk.join("other", OTHER)
    desk.enter(client, 0, 0)
    new = GateBench()
    desk.servers.start_over(new.engine)
    new.close()
    assert desk.servers.known == {}
    assert desk.servers.next_timer_ns() is None


# -- anything at all -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_words_keeps_the_rules_of_the_engine(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(seed)
    desk = Desk()
    on_display(desk, monkeypatch)
    now_ns, made, entered = 0, 0, 0
    pids = (301, 302, 303, 304, WINDOWS)
    desk.displays = {301, 302}
    channels: list[Channel] = []
    for _ in range(3000):
        now_ns += pick.choice((0, 1, 1000, MS, 30 * MS))
        while (due_ns := desk.arbiter.next_timer_ns()) is not None and due_ns <= now_ns:
            desk.arbiter.tick(due_ns)
        desk.servers.tick(now_ns)
        if len(channels) < 5:
            made += 1
            reserve = pick.choice((None, FIVE, ONE, ReserveSpec("pe", 5 * MS, 20 * MS, "pool")))
            channel = desk.join(
                f"c{made}", pick.choice(pids), pick.randrange(4), reserve=reserve, at_ns=now_ns
            )
            channels.append(channel)
        channel = pick.choice(channels)
        draw = pick.random()
        if draw < 0.03:
            desk.dies(channel, now_ns)
            channels.remove(channel)
        elif draw < 0.3:
            desk.enter(channel, pick.choice((0, *pids, 7)), now_ns)
            entered += desk.servers.next_timer_ns() is not None
        elif draw < 0.4:
            desk.leave(channel, now_ns)
        else:
            kind = pick.choice((SUBMIT, SUBMIT, COMPLETE, RELEASE, WITHDRAW))
            desk.hear(
                channel, kind, pick.choice((channel.request.seq, channel.request.seq + 1)), now_ns
            )
    assert entered > 100
    assert len(desk.granted) > 200
    desk.close()


# -- the CPU ---------------------------------------------------------------------------------------


def test_the_cpu_priority_of_a_server_is_given_back() -> None:
    with subprocess.Popen(["sleep", "60"]) as server:
        pidfd = os.pidfd_open(server.pid)
        os.setpriority(os.PRIO_PROCESS, server.pid, 12)
        niceness = Niceness(server.pid, pidfd)
        seen = []
        for wanted in (9, 500, -30, None, 3):
            niceness.follow(wanted)
            seen.append(os.getpriority(os.PRIO_PROCESS, server.pid))
        niceness.close()
        after = os.getpriority(os.PRIO_PROCESS, server.pid)
        server.kill()
        server.wait()
        niceness.follow(9)  # a process that is gone is left alone
        assert not niceness.permitted
        os.close(pidfd)
    assert after == 12
    # Where raising is not permitted nothing happens; elsewhere a level is a step of nice.
    assert seen in ([12] * 5, [-9, MOST, 12, 12, -3])


# -- who is lent what ------------------------------------------------------------------------------


def test_nothing_is_lent_to_a_server_that_is_background(desk: Desk) -> None:
    spec = parse_spec('[[task]]\nname = "client"\nreserve = { capacity = "5ms", period = "20ms" }')
    registry = Registry(lambda _: desk.engine, lambda: [desk.engine], spec)
    channels = {}
    for name, pid in (("client", CLIENT), ("stranger", SERVER)):
        channel = channels[name] = desk.channel("unused " + name, peer=Peer(pid, 0, 0))
        assert channel.task is not None
        desk.engine.remove_task(channel.task, 0)
        channel.task = registry.enrol(channel, parse_hello(build_hello(name)), 0)
        desk.servers.arrived(channel)
    client, server = channels["client"], channels["stranger"]
    desk.enter(client, SERVER, 1)
    assert level(server) == level(client)  # its priority it does inherit
    assert budget(client) == 5 * MS
