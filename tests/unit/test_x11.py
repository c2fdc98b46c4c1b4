"""The X11 client: whose window is active, from servers that are slow, old, hostile or gone."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.live.desktop.x11 import watcher as watching
from headway.live.desktop.x11.names import Display, cookie_for, parse_display
from headway.live.desktop.x11.session import WM_PID, XRES, Owner, Session
from headway.live.desktop.x11.watcher import NOT_YET, Watcher
from headway.live.desktop.x11.wire import MAX_EXTRA, Broken, Stream
from headway.live.server.loop import Loop
from tests.x_server import Server, refusal, welcome

HERE = socket.gethostname().encode()
GEARS, GAME = 0x200001, 0x400001
MAX_SETUP = 8 + 4 * 0xFFFF


class Bench:
    """A watcher with our clock, and the servers it finds when it connects."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.loop = Loop()
        self.found: list[Owner | None] = []
        self.servers: list[Server] = []
        self.connects = 0
        self.make: Callable[[socket.socket], Server] | None = Server
        self.watcher = Watcher(
            self.loop, self.found.append, connect=self._connect, clock=lambda: self.now_ns
        )

    def _connect(self, display: Display) -> socket.socket:
        self.connects += 1
        if self.make is None:
            raise FileNotFoundError(2, "No such file or directory")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.servers.append(self.make(theirs))
        return ours

    @property
    def server(self) -> Server:
        return self.servers[-1]

    def settle(self) -> None:
        """Both sides work until neither has anything to do, at one instant."""
        quiet = 0
        while quiet < 3:
            self.loop.turn(0)
            self.watcher.tick(self.now_ns)
            busy = bool(self.servers) and self.server.work()
            quiet = 0 if busy else quiet + 1

    def later(self, ns: int = watching.LOOK_NS) -> None:
        self.now_ns += ns
        self.settle()

    def follow(self, make: Callable[[socket.socket], Server] | None = Server) -> None:
        self.make = make
        self.watcher.follow(Display(":7", 7))
        self.settle()

    def activate(self, window: int) -> None:
        self.server.set_active(window)
        self.later()

    def close(self) -> None:
        self.watcher.close()
        self.loop.close()
        for server in self.servers:
            server.end.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def with_windows(end: socket.socket) -> Server:
    """gears set no _NET_WM_PID; the game does."""
    server = Server(end, pids={GEARS: 100, GAME: 200})
    server.set_property(GAME, "_NET_WM_PID", "CARDINAL", 32, struct.pack("<I", 200))
    return server


def without_resources(end: socket.socket) -> Server:
    server = with_windows(end)
    server.resources = None
    return server


# -- whose window --------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 3, 8, 31, 32, 33, 100, 4096])
def test_the_owner_is_found_however_the_bytes_are_divided(bench: Bench, chunk: int) -> None:
    def make(end: socket.socket) -> Server:
        server = with_windows(end)
        server.chunk = chunk
        server.set_active(GEARS)
        return server

    bench.follow(make)
    bench.activate(GAME)
    bench.activate(GEARS)
    gears, game = Owner(GEARS, 100, XRES), Owner(GAME, 200, XRES)
    assert bench.found == [gears, game, gears]
    assert bench.watcher.follows
    assert bench.watcher.problem == ""


def test_nothing_is_asked_until_something_changes(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.activate(GEARS)
    asked = len(bench.server.asked)
    assert bench.watcher.due_ns is None, "an idle watcher has no timer"
    bench.later(3_600_000_000_000)
    bench.server.set_property(bench.server.roots[0], "_NET_WM_NAME", "STRING", 8, b"desk")
    bench.later()
    assert len(bench.server.asked) == asked
    assert bench.connects == 1


def test_window_0_and_a_missing_property_mean_nothing(bench: Bench) -> None:
    bench.follow(with_windows)
    assert bench.found == [], "no window manager: nothing is active"
    for window in (GEARS, 0, GAME, 0):
        bench.activate(window)
    root = bench.server.roots[0]
    del bench.server.properties[root, "_NET_ACTIVE_WINDOW"]
    bench.server.notify(root, "_NET_ACTIVE_WINDOW")
    bench.later()
    bench.server.set_property(root, "_NET_ACTIVE_WINDOW", "STRING", 8, b"\1\0\0\0")
    bench.later()
    assert [owner and owner.window for owner in bench.found] == [GEARS, GAME]


def test_a_window_that_is_gone_when_it_is_asked_about_means_nothing(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.activate(GEARS)
    bench.activate(0xBAD)
    bench.activate(GAME)
    assert [owner and owner.window for owner in bench.found] == [GEARS, GAME]


@pytest.mark.parametrize("resources", [None, (1, 0), (1, 1)])
@pytest.mark.parametrize(
    ("machine", "trusted"), [(None, True), (HERE, True), (b"elsewhere", False), (b"", False)]
)
def test_without_the_extension_a_program_is_believed_on_this_machine(
    bench: Bench, resources: tuple[int, int] | None, machine: bytes | None, trusted: bool
) -> None:
    def make(end: socket.socket) -> Server:
        server = with_windows(end)
        server.resources = resources
        if machine is not None:
            server.set_property(GAME, "WM_CLIENT_MACHINE", "STRING", 8, machine)
        return server

    bench.follow(make)
    bench.activate(GAME)
    bench.activate(GEARS)
    expected = Owner(GAME, 200, WM_PID) if trusted else Owner(GAME)
    assert bench.found == [expected, Owner(GEARS)]


def test_the_kernels_word_goes_before_the_programs(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.server.set_property(GEARS, "_NET_WM_PID", "CARDINAL", 32, struct.pack("<I", 200))
    bench.activate(GEARS)
    assert bench.found == [Owner(GEARS, 100, XRES)]


def test_a_window_from_another_machine_belongs_to_nobody_here(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.server.pids[GAME] = 0
    bench.server.set_property(GAME, "WM_CLIENT_MACHINE", "STRING", 8, b"elsewhere")
    bench.activate(GAME)
    assert bench.found == [Owner(GAME)]


@pytest.mark.parametrize("value", [b"", struct.pack("<I", 0), struct.pack("<I", 1 << 31), b"\xff"])
def test_a_pid_that_cannot_be_is_none(bench: Bench, value: bytes) -> None:
    bench.follow(without_resources)
    bits = 32 if len(value) != 1 else 8
    bench.server.set_property(GAME, "_NET_WM_PID", "CARDINAL", bits, value)
    bench.activate(GAME)
    assert bench.found == [Owner(GAME)]


def test_the_root_window_is_the_one_of_the_named_screen(bench: Bench) -> None:
    bench.make = lambda end: Server(end, roots=[0x11, 0x22, 0x33], pids={GEARS: 100})
    bench.watcher.follow(parse_display(":7.2"))
    bench.settle()
    assert bench.server.watched == {0x33}
    bench.server.set_active(GEARS, root=0x33)
    bench.later()
    assert bench.found == [Owner(GEARS, 100, XRES)]


def test_a_burst_of_changes_is_looked_at_once_and_its_end_is_not_missed(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.later()
    asked = len(bench.server.asked)
    for number in range(2000):
        bench.server.set_active((GEARS, GAME)[number % 2])
    bench.settle()
    bench.later()
    assert len(bench.server.asked) - asked <= 2 * 4
    assert bench.found[-1] == Owner(GAME, 200, XRES)


def test_the_numbers_of_requests_go_round(bench: Bench) -> None:
    bench.follow(with_windows)
    while bench.server.number < 70_000:  # they have 16 bits in answers
        bench.server.set_active((GEARS, GAME)[bench.server.number // 4 % 2])
        bench.now_ns += watching.LOOK_NS
        before = bench.server.number
        while bench.server.number < before + 4:
            bench.loop.turn(0)
            bench.watcher.tick(bench.now_ns)
            bench.server.work()
    bench.settle()
    assert bench.connects == 1
    assert bench.watcher.follows


# -- servers that come, go and misbehave ---------------------------------------------------------


def test_a_display_that_appears_later_is_followed_then(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.follow(None)
    pauses = []
    for _ in range(8):
        assert bench.watcher.due_ns is not None
        pauses.append(bench.watcher.due_ns - bench.now_ns)
        bench.later(pauses[-1])
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] == watching.LAST_PAUSE_NS
    assert "No such file" in bench.watcher.problem
    assert len(capfd.readouterr().err.splitlines()) == 1, "told once"
    bench.make = with_windows
    bench.later(watching.LAST_PAUSE_NS)
    bench.activate(GEARS)
    assert bench.found == [Owner(GEARS, 100, XRES)]


def test_a_server_that_ends_is_followed_again_when_it_is_back(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.activate(GEARS)
    bench.later(watching.STEADY_NS)
    for _ in range(3):
        bench.server.end.close()
        bench.settle()
        assert bench.found[-1] is None
        assert not bench.watcher.follows
        bench.later(watching.LAST_PAUSE_NS)
        bench.activate(GAME)
        assert bench.found[-1] == Owner(GAME, 200, XRES)


def give_up(bench: Bench, data: bytes, *, after_setup: bool) -> str:
    """Say something to a watcher that follows, or that has just connected; what it made of it."""
    bench.make = with_windows
    bench.watcher.follow(Display(":7", 7))
    if after_setup:
        bench.settle()
    else:
        bench.watcher.tick(bench.now_ns)
    bench.server.end.setblocking(True)
    bench.server.end.settimeout(1)
    while data and bench.watcher.problem in ("", NOT_YET):
        sent = bench.server.end.send(data[:8192])
        data = data[sent:]
        bench.loop.turn(0)
    return bench.watcher.problem


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (refusal(b"No protocol\n specified\x1b[31m\n"), "No protocol? specified?[31m"),
        (refusal(b""), "without a reason"),
        (struct.pack("<BxHHH", 2, 11, 0, 1) + b"more", "more"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak"),
        (struct.pack("<BxHHH", 1, 11, 0, 2) + bytes(8), "too few bytes"),
        (welcome([]), "has 0 screens"),
        (welcome([7])[:-60].ljust(len(welcome([7])), b"\xff"), NOT_YET),
    ],
    ids=["refused", "no reason", "authenticate", "http", "short", "no screen", "odd visuals"],
)
def test_a_server_that_cannot_be_worked_with_is_left(
    bench: Bench, data: bytes, expected: str
) -> None:
    problem = give_up(bench, data, after_setup=False)
    assert expected in problem
    assert "\x1b" not in problem


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (struct.pack("<BBHI24x", 1, 0, 5, 0), "not asked"),
        (struct.pack("<BBHI24x", 0, 3, 4, 0), "not asked"),
        (struct.pack("<BBHI24x", 1, 0, 5, MAX_EXTRA // 4 + 1), "a message of"),
        (struct.pack("<BBHI24x", 1, 0, 5, 0xFFFFFFFF), "a message of"),
        (struct.pack("<BBHI24x", 35, 0, 5, 0x10000000), "a message of"),
        (struct.pack("<BBHI24x", 12, 0, 5, 0) * 50_000, "too much"),
        (struct.pack("<BBHI24x", 28, 0, 5, 0) * 50_000, "too much"),
    ],
    ids=["reply", "error", "long reply", "endless reply", "long event", "flood", "property flood"],
)
def test_nonsense_costs_the_server_its_connection(bench: Bench, data: bytes, expected: str) -> None:
    assert expected in give_up(bench, data, after_setup=True)
    assert bench.found[-1] is None
    bench.later(watching.LAST_PAUSE_NS)
    assert bench.watcher.follows, "it is tried again"


def test_an_event_that_another_program_sent_is_not_the_servers(bench: Bench) -> None:
    bench.follow(with_windows)
    bench.later()
    asked = len(bench.server.asked)
    atom = bench.server.atom("_NET_ACTIVE_WINDOW")
    bench.server.say(struct.pack("<BxHIII16x", 28 | 0x80, 5, bench.server.roots[0], atom, 0))
    bench.later()
    assert len(bench.server.asked) == asked
    assert bench.watcher.follows


@pytest.mark.parametrize("after_setup", [False, True])
def test_a_silent_server_is_given_up(bench: Bench, after_setup: bool) -> None:
    bench.follow(with_windows if after_setup else lambda end: Server(end, chunk=0))
    if after_setup:
        bench.server.chunk = 0
        bench.server.end.send(
            struct.pack("<BxHIII16x", 28, 5, 1, bench.server.atom("_NET_ACTIVE_WINDOW"), 0)
        )
    bench.later(watching.LOOK_NS)
    assert bench.watcher.problem == ("" if after_setup else NOT_YET)
    bench.later(watching.ANSWER_NS)
    assert bench.watcher.problem == "it does not answer"


def test_a_server_that_reads_nothing_does_not_stop_the_daemon(bench: Bench) -> None:
    real = bench._connect

    def connect(display: Display) -> socket.socket:
        ours = real(display)
        while True:
            try:
                ours.send(bytes(4096))
            except BlockingIOError:
                return ours

    bench.watcher._connect = connect
    bench.watcher.follow(Display(":7", 7))
    bench.watcher.tick(bench.now_ns)
    assert bench.watcher.problem == "it does not listen"


def test_a_server_that_fails_again_and_again_is_told_once_and_tried_less_often(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    bench.follow(with_windows)
    for _ in range(10):
        bench.server.end.close()
        bench.settle()
        due_ns = bench.watcher.due_ns
        assert due_ns is not None
        pause_ns = due_ns - bench.now_ns
        bench.later(pause_ns)
        assert bench.watcher.follows
    assert pause_ns == watching.LAST_PAUSE_NS
    assert len(capfd.readouterr().err.splitlines()) == 1


# -- any bytes -----------------------------------------------------------------------------------


def conversation() -> bytes:
    """What a server says to a client that follows two changes of the active window."""
    bench = Bench()
    bench.follow(with_windows)
    bench.activate(GEARS)
    bench.activate(GAME)
    bench.close()
    return bytes(bench.server.said)


SPOKEN = conversation()


def hear(pieces: Iterable[bytes]) -> list[int | None]:
    """The pids that a session finds in this; that it raises nothing but Broken is the point."""
    found: list[Owner] = []
    session = Session(0, found.append)
    with contextlib.suppress(Broken):
        for piece in pieces:
            sent = session.hear(piece) + session.look()
            assert len(sent) < 1024
            assert len(session._stream._data) <= max(MAX_SETUP, 32 + MAX_EXTRA)
    for owner in found:
        assert owner.window > 0
        assert owner.pid is None or 0 < owner.pid < 1 << 31
    return [owner.pid for owner in found]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def words(data: bytes) -> list[bytes]:
    """So small that every message is answered before the next one is heard."""
    return [data[place : place + 4] for place in range(0, len(data), 4)]


places = st.lists(st.integers(0, 100_000), max_size=8)


def test_the_conversation_that_is_damaged_below_is_a_good_one() -> None:
    assert hear(words(SPOKEN)) == [100, 200]


@given(st.binary(max_size=300), places)
def test_any_bytes_are_survived(data: bytes, where: list[int]) -> None:
    hear(cut(data, where))
    hear([welcome([7]), *cut(data, where)])


@given(
    st.lists(
        st.tuples(st.integers(0, len(SPOKEN) - 1), st.integers(0, 255)), min_size=1, max_size=6
    ),
    st.integers(0, len(SPOKEN)),
)
def test_a_damaged_conversation_is_survived(damage: list[tuple[int, int]], end: int) -> None:
    data = bytearray(SPOKEN)
    for place, value in damage:
        data[place] = value
    hear(words(bytes(data[:end])))


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=20))
def test_any_messages_after_the_set_up_are_survived(units: list[bytes]) -> None:
    hear([welcome([0x11D]), *units])


def test_a_stream_keeps_no_more_than_one_message() -> None:
    stream = Stream()
    stream.feed(welcome([7]))
    event = struct.pack("<BBHI24x", 12, 0, 5, 0)
    assert len(stream.feed(event * 100 + event[:10])) == 100
    assert len(stream._data) == 10


# -- names and cookies ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number", "screen"), [(":0", 0, 0), (":12", 12, 0), (":1.2", 1, 2), ("unix:3", 3, 0)]
)
def test_displays_of_this_machine(name: str, number: int, screen: int) -> None:
    display = parse_display(name)
    assert (display.number, display.screen) == (number, screen)
    assert str(display.socket) == f"/tmp/.X11-unix/X{number}"


@pytest.mark.parametrize(
    "name", ["", "0", "localhost:10.0", "host:0", ":", ":-1", ":0 ", ":0/../x"]
)
def test_other_displays_are_refused_in_words(name: str) -> None:
    with pytest.raises(ValueError, match="expected one of this machine, such as :0"):
        parse_display(name)


def entry(family: int, address: bytes, number: bytes, name: bytes, data: bytes) -> bytes:
    """As Xau(3) writes it."""
    fields = (struct.pack(">H", len(part)) + part for part in (address, number, name, data))
    return struct.pack(">H", family) + b"".join(fields)


MAGIC = b"MIT-MAGIC-COOKIE-1"


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(256, HERE, b"7", MAGIC, b"right")], b"right"),
        ([(256, HERE, b"6", MAGIC, b"other"), (256, HERE, b"7", MAGIC, b"right")], b"right"),
        ([(256, b"elsewhere", b"7", MAGIC, b"other")], b""),
        ([(0, b"\x7f\0\0\1", b"7", MAGIC, b"other"), (65535, b"", b"", MAGIC, b"any")], b"any"),
        ([(256, HERE, b"7", b"XDM-AUTHORIZATION-1", b"other")], b""),
        ([], b""),
    ],
)
def test_the_cookie_is_the_one_of_this_machine_and_display(
    tmp_path: Path, entries: list[tuple[int, bytes, bytes, bytes, bytes]], expected: bytes
) -> None:
    file = tmp_path / "authority"
    file.write_bytes(b"".join(entry(*values) for values in entries))
    name, data = cookie_for(parse_display(":7", str(file)))
    assert data == expected
    assert name == (MAGIC if expected else b"")


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device"])
def test_an_authority_that_is_no_file_is_no_cookie(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "authority"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    name = "/dev/zero" if kind == "device" else str(path)
    assert cookie_for(parse_display(":7", name)) == (b"", b"")


@given(st.binary(max_size=200))
def test_any_authority_file_is_survived(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(entry(256, HERE, b"7", MAGIC, b"right") + data)
        file.flush()
        assert cookie_for(parse_display(":7", file.name))[1] == b"right"


def test_the_cookie_opens_the_connection(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "authority"
    file.write_bytes(entry(256, HERE, b"7", MAGIC, b"0123456789abcdef"))
    bench.make = with_windows
    bench.watcher.follow(parse_display(":7", str(file)))
    bench.settle()
    assert bench.server.auth == (MAGIC, b"0123456789abcdef")
    assert bench.watcher.follows
