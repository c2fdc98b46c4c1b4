"""The other end of a recording: events as they come from a daemon, until it or somebody stops."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.engine.events import Ended, Event
from headway.live.api import client
from headway.live.watch.recording import PREFIX
from headway.trace.records import Decoder, RecordError, decoder

A_READ = 256 * 1024
LOOK_S = 0.2
"""How often somebody who stops without a signal is noticed."""
ANSWER_S = 5.0
"""How long a daemon may take to begin."""
LAST_S = 10.0
"""How long the last records may take to come."""
MAX_RECORD = 1024 * 1024


class StreamError(ConnectionError):
    """What comes is no stream of records; one line."""


def connect(folder: Path) -> socket.socket:
    """Have the daemon record to us from now on."""
    connection = client.connect(folder)
    try:
        client.talk(folder, connection, {"do": "trace"}, timeout_s=ANSWER_S)
    except BaseException:
        connection.close()
        raise
    return connection


class Follower:
    """Reads events from a connection. The first thing that comes is the header."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._data = bytearray()
        self._decoder: Decoder | None = None
        self._last_ns = 0
        self._stopping = False

    def stop(self) -> None:
        """Have the daemon send what it still has, and no more."""
        if not self._stopping:
            self._stopping = True
            self._socket.shutdown(socket.SHUT_WR)

    def events(self, wants_more: Callable[[], bool], wake: int | None = None) -> Iterator[Event]:
        """Everything there is, up to and including `Ended`, of which there is always one: if the
        daemon is gone before it could say it, it is ours, and says that something is missing."""
        end_s: float | None = None
        while True:
            if end_s is None and not wants_more():
                self.stop()
                end_s = time.monotonic() + LAST_S
            if not self._wait(wake):
                if end_s is None or time.monotonic() < end_s:
                    continue
                data = b""
            else:
                data = self._socket.recv(A_READ)
            if not data:
                yield Ended(max(self._last_ns, time.monotonic_ns()), False)
                return
            self._data += data
            for event in self._records():
                yield event
                self._last_ns = max(self._last_ns, event.ns)
                if type(event) is Ended:
                    return

    def _wait(self, wake: int | None) -> bool:
        fds = [self._socket.fileno(), *([] if wake is None else [wake])]
        ready, _, _ = select.select(fds, [], [], LOOK_S)
        if wake in ready and wake is not None:
            os.read(wake, 256)
        return self._socket.fileno() in ready

    def _records(self) -> Iterator[Event]:
        """What is in the buffer as a whole."""
        at = 0
        data = self._data
        while len(data) - at >= PREFIX:
            size = int.from_bytes(data[at : at + PREFIX], "little")
            if size > MAX_RECORD:
                raise StreamError(f"the daemon sent a record of {size} bytes")
            if len(data) - at < PREFIX + size:
                break
            record = bytes(data[at + PREFIX : at + PREFIX + size])
            at += PREFIX + size
            try:
                if self._decoder is None:
                    self._decoder = decoder(record)
                else:
                    yield self._decoder.decode(record)
            except RecordError as error:
                raise StreamError(f"the daemon sent {error}") from None
        del data[:at]


@contextmanager
def interrupts() -> Iterator[tuple[int, list[int]]]:
    """SIGINT and SIGTERM while this lasts: a descriptor that wakes, and the signals that came."""
    came: list[int] = []
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    numbers = (signal.SIGINT, signal.SIGTERM)
    old = {number: signal.signal(number, lambda n, _: came.append(n)) for number in numbers}
    try:
        yield reader, came
    finally:
        signal.set_wakeup_fd(old_fd)
        for number, handler in old.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
