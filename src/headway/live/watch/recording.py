"""Recording what the engine does while it does it, at next to no cost to those who wait for it.

The daemon decides; it writes no files. Here records are packed into a queue of limited size, and
sent, when there is time, to a process that draws and writes them (`headway trace`). If that process
is slow, stopped or gone, records are dropped and counted. When there is room again the stream goes
on with what there is by then, so that what follows can be understood without what is missing.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from headway.engine.core import Engine
from headway.engine.events import Began, Ended, Event, Found, Recorder, TakenUp
from headway.engine.snapshot import retell
from headway.live.server.loop import describe_failure, log
from headway.trace.records import NUMBERS, header, pack

QUEUE = 1024 * 1024
"""Bytes that may wait to be sent, seconds of a busy GPU; beyond, records are dropped."""
BUFFER = 64 * 1024
"""Bytes on their way, beside the queue."""
SEND_NS = 50_000_000
"""How long a record may wait to be sent."""
LAST_NS = 1_000_000
"""The same, for the last ones."""
SEND_SOON = 32 * 1024
"""With so many bytes in the queue it is time to send."""
A_TURN = 256 * 1024
"""What is sent in one go."""
END_NS = 30_000_000_000
"""How long the last records may take to be read,"""
STOP_NS = 5_000_000_000
"""and if the daemon waits for it, because it stops."""
MAX_RECORDINGS = 8
PREFIX = 4
"""Bytes before each record that say how long it is."""


class TooMany(ValueError):
    """There is no room for another recording."""


class Recording(Recorder):
    """One stream of records to one reader."""

    def __init__(self, reader: socket.socket, engines: Sequence[Engine]) -> None:
        self._socket = reader
        self._queue = bytearray()
        self._dropped = 0
        self._begun = False
        self._sent_ns = time.monotonic_ns()
        self.ends_ns: int | None = None
        """Nothing more is recorded; the rest must be read by then."""
        self.over = False
        reader.setblocking(False)
        with contextlib.suppress(OSError):
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        self._append(header())
        self.began(sum(len(e.gpus) for e in engines), max(e.now_ns for e in engines))
        retell(engines, self)
        for engine in engines:
            engine.attach(self)

    def began(self, gpus: int, now_ns: int) -> None:
        """A second time: the engine was in doubt and there is a new one, which is empty."""
        if not self._begun:
            self.say(Began, now_ns, gpus)
        else:
            self.say(TakenUp, now_ns, 0)
            self.say(Found, now_ns)
        self._begun = True

    def say(self, kind: Callable[..., Event], *values: object) -> None:
        """This is all that recording costs a decision."""
        if self.ends_ns is not None:
            return
        if self._dropped or len(self._queue) > QUEUE:
            self._dropped += 1
        else:
            self._append(pack(NUMBERS[kind], values))

    def _append(self, data: bytes) -> None:
        self._queue += len(data).to_bytes(PREFIX, "little")
        self._queue += data

    @property
    def due_ns(self) -> int | None:
        """When something has to be sent, or tried again."""
        if not self._queue and not self._dropped and self.ends_ns is None:
            return None
        return self._sent_ns + (SEND_NS if self.ends_ns is None else LAST_NS)

    def send(self, engines: Sequence[Engine], now_ns: int) -> None:
        """Send what the reader takes, if it is time to."""
        due_ns = self.due_ns
        if due_ns is None or (len(self._queue) < SEND_SOON and now_ns < due_ns):
            return
        self._sent_ns = now_ns
        self._send()
        if self._dropped and not self._queue and not self.over:
            dropped, self._dropped = self._dropped, 0
            if self.ends_ns is None:
                for engine in engines:
                    engine.advance(now_ns)
                retell(engines, self, dropped)
            else:
                self._append(pack(NUMBERS[TakenUp], (now_ns, dropped)))
                self._append(pack(NUMBERS[Ended], (now_ns, True)))
        if self.ends_ns is not None and (not self._queue or now_ns > self.ends_ns):
            self.over = True

    def _send(self) -> None:
        try:
            sent = self._socket.send(memoryview(self._queue)[:A_TURN])
            del self._queue[:sent]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more
            self.over = True

    def end(self, now_ns: int, within_ns: int = END_NS) -> None:
        """Record no more; what is in the queue still goes out."""
        if self.ends_ns is None and not self._dropped:  # else it is said after the others
            self.say(Ended, now_ns, True)
        self.ends_ns = now_ns + within_ns

    def close(self) -> None:
        self._socket.close()


class Recordings:
    """All recordings of a daemon."""

    def __init__(self) -> None:
        self._by_reader: dict[object, Recording] = {}

    def start(self, reader: socket.socket, engines: Sequence[Engine], key: object) -> None:
        """Record to this socket, which is ours from now on; `key` names it to `end`."""
        if len(self._by_reader) >= MAX_RECORDINGS:
            raise TooMany(f"{MAX_RECORDINGS} recordings are under way; end one of them first")
        self._by_reader[key] = Recording(reader, engines)

    def observers(self) -> tuple[Recording, ...]:
        return tuple(self._by_reader.values())

    def end(self, key: object, now_ns: int) -> None:
        """The reader wants no more than what is in the queue."""
        recording = self._by_reader.get(key)
        if recording is not None:
            recording.end(now_ns)

    @property
    def due_ns(self) -> int | None:
        if not self._by_reader:
            return None
        times = [recording.due_ns for recording in self._by_reader.values()]
        return min((t for t in times if t is not None), default=None)

    def send(self, engines: Sequence[Engine], now_ns: int) -> None:
        """Called with every turn of the loop."""
        for key, recording in list(self._by_reader.items()):
            try:
                recording.send(engines, now_ns)
            except Exception as error:  # it must not cost more than itself
                log(describe_failure(error))
                recording.over = True
            if recording.over:
                for engine in engines:
                    engine.detach(recording)
                recording.close()
                del self._by_reader[key]

    def close(self, engines: Sequence[Engine]) -> None:
        """The daemon stops: nobody waits for a decision any more, but not for ever for a reader."""
        now_ns = time.monotonic_ns()
        for recording in self._by_reader.values():
            recording.end(now_ns, STOP_NS)
        while self._by_reader:
            self.send(engines, time.monotonic_ns())
            time.sleep(LAST_NS / 1e9)
