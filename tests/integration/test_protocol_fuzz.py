"""Whatever a client sends costs the client its connection at most, and nobody else anything."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import mmap
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.protocol_fuzz import Mouth, run_fuzz
from headway.live.wire.layout import DAEMON_PAGE
from headway.live.wire.protocol import (
    MESSAGE_SIZE,
    PAGE,
    SUBMIT,
    Message,
    build_hello,
    build_message,
)
from tests.integration.daemon_client import DaemonProcess, Gone, running_daemon, wait_until

pytestmark = pytest.mark.live

SUBMIT_1 = build_message(Message(SUBMIT, 1))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with running_daemon(tmp_path_factory.mktemp("fuzz") / "run") as daemon:
        yield daemon
        assert daemon.is_alive()
        told = daemon.log.read_text().splitlines()
        assert all("kept the GPU too long" in line and "honest" not in line for line in told), told


def connect(daemon: DaemonProcess) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(10)
    connection.connect(str(daemon.socket))
    return connection


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        bytes(MESSAGE_SIZE - 1),
        bytes(MESSAGE_SIZE + 1),
        bytes(MESSAGE_SIZE),
        b"\xff" * MESSAGE_SIZE,
        build_hello("again"),
        bytes(5000),
        build_message(Message(16, 1)),
    ],
    ids=lambda data: f"{len(data)} bytes of {data[:1].hex()}",
)
def test_a_malformed_message_costs_its_sender_the_connection_and_nobody_else_anything(
    daemon: DaemonProcess, data: bytes
) -> None:
    with daemon.client("honest") as honest, daemon.client("bad") as bad:
        honest.one_group()
        bad.socket.send(data)
        with pytest.raises((Gone, ConnectionError)):
            bad.wait_end()
        honest.one_group()
        wait_until(lambda: daemon.names() == ["honest"], "the sender is gone")


@pytest.mark.parametrize(
    "data",
    [b"x", bytes(136), build_hello("x")[:-1], SUBMIT_1, b"\xff" * 136, b"\0" * 4096],
    ids=lambda data: f"{len(data)} bytes of {data[:1].hex()}",
)
def test_a_wrong_hello_is_refused(daemon: DaemonProcess, data: bytes) -> None:
    with connect(daemon) as connection:
        connection.send(data)
        assert is_closed(connection)


def test_who_never_says_hello_is_let_go(daemon: DaemonProcess) -> None:
    with daemon.client("honest") as honest, connect(daemon) as silent:
        assert is_closed(silent)
        honest.one_group()


def test_a_name_that_cannot_be_printed_is_made_printable(daemon: DaemonProcess) -> None:
    hello = bytearray(build_hello("x"))
    hello[8:16] = b"\x1b[2J\n\xff\xc3\x28"
    with connect(daemon) as connection:
        connection.send(bytes(hello))
        _, fds, _, _ = socket.recv_fds(connection, 64, 2)
        for fd in fds:
            os.close(fd)
        assert all(entry["task"].isprintable() for entry in daemon.status()["channels"])


def test_descriptors_that_a_client_sends_are_not_kept(daemon: DaemonProcess) -> None:
    count = len(os.listdir(f"/proc/{daemon.pid}/fd"))  # noqa: PTH208
    with daemon.client("sender") as client, Path("/dev/null").open() as null:
        with_client = len(os.listdir(f"/proc/{daemon.pid}/fd"))  # noqa: PTH208
        right = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null.fileno()] * 50))]
        client.seq = 1
        client.socket.sendmsg([SUBMIT_1], right)
        client.wait_grant()
        assert len(os.listdir(f"/proc/{daemon.pid}/fd")) == with_client  # noqa: PTH208
    wait_until(
        lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) == count,  # noqa: PTH208
        "nothing is left of it",
    )


def test_the_daemons_page_cannot_be_written_or_resized_and_the_clients_not_resized(
    daemon: DaemonProcess,
) -> None:
    with daemon.client("prober") as client:
        daemon_fd, client_fd = client.fds
        lease = DAEMON_PAGE.at("lease")
        with pytest.raises(PermissionError):
            mmap.mmap(daemon_fd, PAGE)
        with pytest.raises(PermissionError):
            os.pwrite(daemon_fd, b"\1", lease)
        reopened = os.open(f"/proc/self/fd/{daemon_fd}", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.pwrite(reopened, b"\1", lease)
        os.close(reopened)
        for fd in client.fds:
            for size in (0, 2 * PAGE):
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(client_fd, 1033, 8)  # F_ADD_SEALS, F_SEAL_WRITE


def test_page_images_of_any_kind_harm_nobody(daemon: DaemonProcess) -> None:
    pick = random.Random(5)
    with daemon.client("honest") as honest, contextlib.closing(Mouth(daemon, "liar")) as liar:
        for _ in range(25):
            is_there = liar.one_group()
            liar.write_page(pick.randbytes(PAGE))
            assert honest.one_group() < 1_000_000_000
            assert not is_there or daemon.one("liar")["gpu_ns"] < 60_000_000_000


def test_a_flood_of_requests_does_not_keep_the_others_from_the_gpu(daemon: DaemonProcess) -> None:
    with daemon.client("honest") as honest, contextlib.closing(Mouth(daemon, "flooder")) as flooder:
        served, end = 0, time.monotonic() + 0.5
        while time.monotonic() < end:
            if not flooder.flood(SUBMIT_1, 200):
                break  # it read no answer: it was let go
            assert honest.one_group() < 1_000_000_000
            served += 1
        assert served
        honest.one_group()


def test_a_caller_that_does_not_read_its_answers_blocks_nobody(daemon: DaemonProcess) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as rude,
        daemon.client("honest") as honest,
    ):
        rude.connect(str(daemon.folder / "control.sock"))
        rude.setblocking(False)
        line = json.dumps({"do": "status"}).encode() + b"\n"
        for _ in range(300):
            try:
                while True:
                    rude.send(line * 500)
            except BlockingIOError:
                pass
            assert honest.one_group() < 100_000_000
        assert daemon.names() == ["honest"]


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"5", b"\xff\xfe", b"[" * 60_000, b'{"do":"set","task":"x"}', b'{"do":{}}'],
    ids=lambda line: f"{len(line)} bytes {line[:9]!r}",
)
def test_nonsense_on_the_control_socket_gets_one_line_that_says_no(
    daemon: DaemonProcess, line: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(10)
        caller.connect(str(daemon.folder / "control.sock"))
        caller.sendall(line + b"\n")
        answer = json.loads(caller.makefile("rb").readline())
        assert answer["ok"] is False
        assert answer["error"]


def test_a_control_line_without_end_is_cut_off(daemon: DaemonProcess) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(10)
        caller.connect(str(daemon.folder / "control.sock"))
        with pytest.raises(ConnectionError):
            caller.sendall(b"x" * 6_000_000)
    daemon.status()


def test_six_thousand_seeded_pieces_of_nonsense_leave_the_daemon_truthful(tmp_path: Path) -> None:
    outcome = run_fuzz(tmp_path / "run", seed=7, messages=6000)
    print(outcome.table())
    assert outcome.two_at_once == 0
    assert outcome.checked > 0
    assert outcome.worst_ms < 1000
    assert outcome.grown_kb < 20_000
