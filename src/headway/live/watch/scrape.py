"""Metrics over HTTP, for this machine only, inside the daemon's loop.

Readers are few, say little, and are closed when there are too many of them; nobody waits for one
that reads slowly. The text is made at most once a second, piece by piece between other events.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from headway.live.gate.channel import Peer
from headway.live.identity.options import Address
from headway.live.server.errands import Errands
from headway.live.server.listener import Listener
from headway.live.server.loop import READ, WRITE, Loop, describe_failure, log
from headway.live.watch.metrics import pieces

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

MAX_READERS = 16
MAX_REQUEST = 8192
FRESH_NS = 1_000_000_000
HOSTS = (b"localhost", b"127.0.0.1")
"""Names by which a port of the loopback interface is asked."""
READER = Peer(1, -1, -1)
"""Over HTTP nobody says who asks: all who read metrics take one turn together."""


class Reader:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.heard = bytearray()
        self.unread = memoryview(b"")


class Scrape:
    """Answers GET /metrics."""

    def __init__(self, daemon: Daemon, address: Address) -> None:
        """OSError if nobody can listen there."""
        self._daemon = daemon
        self._readers: dict[Reader, None] = {}
        """In the order in which they came."""
        self._waiting: list[Reader] = []
        self._pieces: Iterator[bytes] | None = None
        self._parts: list[bytes] = []
        self._text = b""
        self._made_ns = -FRESH_NS
        self._at_port = isinstance(address, int)
        self.listener = _listen(daemon.loop, address, self.accept, daemon.errands)

    def close(self) -> None:
        self.listener.close()
        for reader in list(self._readers):
            self._close(reader)

    def accept(self, connection: socket.socket) -> None:
        while len(self._readers) >= MAX_READERS:
            self._close(next(iter(self._readers)))
        reader = Reader(connection)
        self._readers[reader] = None
        self._daemon.loop.watch(
            connection.fileno(), lambda: self._ready(reader), lambda: self._close(reader)
        )

    def _ready(self, reader: Reader) -> None:
        if reader in self._readers:
            self._daemon.loop.want(reader.socket.fileno(), 0)
            self._daemon.errands.add(READER, partial(self._serve, reader))

    def _serve(self, reader: Reader) -> bool:
        if reader in self._readers:
            try:
                self._hear(reader)
            except Exception as error:
                log(describe_failure(error))
                self._close(reader)
        return False

    def _hear(self, reader: Reader) -> None:
        if reader.unread:
            self._send(reader)
            return
        self._daemon.loop.want(reader.socket.fileno(), READ)
        try:
            data = reader.socket.recv(MAX_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        reader.heard += data
        if not data or len(reader.heard) > MAX_REQUEST:
            self._close(reader)
        elif b"\r\n\r\n" in reader.heard or b"\n\n" in reader.heard:
            self._answer(reader)

    def _answer(self, reader: Reader) -> None:
        words = bytes(reader.heard).split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/"):
            self._reply(reader, "400 Bad Request", b"expected GET /metrics\n")
        elif self._at_port and not _means_this_machine(bytes(reader.heard)):
            self._reply(reader, "421 Misdirected Request", b"expected Host: localhost\n")
        elif words[0] != b"GET":
            self._reply(reader, "405 Method Not Allowed", b"expected GET /metrics\n")
        elif words[1].split(b"?")[0] != b"/metrics":
            self._reply(reader, "404 Not Found", b"expected GET /metrics\n")
        elif time.monotonic_ns() - self._made_ns < FRESH_NS:
            self._reply(reader, "200 OK", self._text)
        else:
            self._daemon.loop.want(reader.socket.fileno(), 0)
            self._waiting.append(reader)
            if self._pieces is None:
                self._pieces = pieces(self._daemon)
                self._daemon.errands.add(READER, self._go_on)

    # -- the text ----------------------------------------------------------------------------

    def _go_on(self) -> bool:
        """Make one more piece; the others have their turn in between."""
        assert self._pieces is not None
        try:
            piece = next(self._pieces, None)
        except Exception as error:
            log(describe_failure(error))
            self._finish("500 Internal Server Error", b"the daemon's log says why\n")
            return False
        if piece is not None:
            self._parts.append(piece)
            return True
        self._text = b"".join(self._parts)
        self._made_ns = time.monotonic_ns()
        self._finish("200 OK", self._text)
        return False

    def _finish(self, status: str, body: bytes) -> None:
        self._pieces, self._parts = None, []
        waiting, self._waiting = self._waiting, []
        for reader in waiting:
            if reader in self._readers:
                self._reply(reader, status, body)

    # -- the connection ----------------------------------------------------------------------

    def _reply(self, reader: Reader, status: str, body: bytes) -> None:
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        reader.unread = memoryview(head.encode() + body)
        self._send(reader)

    def _send(self, reader: Reader) -> None:
        try:
            sent = reader.socket.send(reader.unread)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close(reader)
            return
        reader.unread = reader.unread[sent:]
        if reader.unread:
            self._daemon.loop.want(reader.socket.fileno(), WRITE)
        else:
            self._close(reader)

    def _close(self, reader: Reader) -> None:
        if reader in self._readers:
            del self._readers[reader]
            self._daemon.loop.unwatch(reader.socket.fileno())
            self._daemon.loop.close_later(reader.socket.close)


def _means_this_machine(request: bytes) -> bool:
    """Whether a request is for this machine, as every `Host` in it says. A page that a browser got
    from elsewhere can have its own name lead here, and would read the answer: it keeps that name in
    `Host`."""
    lines = [line.partition(b":") for line in request.split(b"\n")[1:]]
    hosts = [value.strip().lower() for name, _, value in lines if name.strip().lower() == b"host"]
    return all(host in HOSTS or host.partition(b":")[0] in HOSTS for host in hosts)


def _listen(
    loop: Loop, address: Address, accept: Callable[[socket.socket], None], errands: Errands
) -> Listener:
    if isinstance(address, int):
        return Listener(loop, None, socket.SOCK_STREAM, accept, errands, port=address)
    if address.exists() and not address.is_socket():
        raise FileExistsError(errno.EEXIST, "something else is there, and stays", str(address))
    mask = os.umask(0o177)  # for this user alone
    try:
        return Listener(loop, address, socket.SOCK_STREAM, accept, errands)
    finally:
        os.umask(mask)
