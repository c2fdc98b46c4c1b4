"""A program without the interposer asks for its turns itself: one connection for each task."""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import select
import socket
import sys
import threading
import time
from typing import Any

from headway.engine.shares import WHOLE_PERMILLE
from headway.engine.turns.port import JobReport
from headway.live.api import asking
from headway.live.wire import paths
from headway.live.wire.layout import CLIENT_PAGE, DAEMON_PAGE, JOBS
from headway.live.wire.protocol import (
    GRANT,
    MESSAGE_SIZE,
    PAGE,
    RELEASE,
    SUBMIT,
    TURNS,
    Message,
    build_hello,
    build_job,
    build_message,
    parse_message,
)

STALE_NS = 400_000_000
"""A daemon that has shown no sign of life for this long is not waited for."""
LOOK_MS = 50
AGAIN_S, AGAIN_AT_MOST_S = 1.0, 60.0
"""How soon another daemon is looked for after one has gone: each time half as often."""
SOON_S = 0.05
"""How long that one may take to answer: a job waits meanwhile."""
PATIENCE_S = asking.PATIENCE_S


@functools.cache
def _say(line: str) -> None:
    """On standard error, once."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"headway: {line}\n")


def _has_our_clock(answer: dict[str, Any]) -> bool:
    """A daemon of another time namespace writes times that mean nothing here."""
    same = answer.get("time_namespace") in (None, paths.time_namespace())
    if not same:
        _say("this task runs unmanaged: the daemon is in another time namespace")
    return same


class OwnChannel:
    """A program without the interposer connects to the daemon by itself: a job asks for its turn
    and gives it back. Threads and coroutines that share a channel share its job."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = {key: value for key, value in options.items() if value is not None}
        self._lock = threading.Lock()
        self._depth = 0
        self._since_ns = 0
        self._pid = os.getpid()
        self._seq = 0
        self._jobs = 0
        self._socket: socket.socket | None = None
        self._again_s = time.monotonic() + AGAIN_S
        self._pause_s = AGAIN_S
        self._open(PATIENCE_S)

    def _open(self, patience_s: float) -> None:
        answer = asking.ask({"do": "run", **self._options}, patience_s)
        if answer is not None and _has_our_clock(answer):
            with contextlib.suppress(OSError):
                self._connect(str(self._options["name"]), answer["token"], patience_s)
                self._pause_s = AGAIN_S

    def _open_again(self) -> None:
        """Perhaps there is a daemon now; one that refuses is none."""
        now_s = time.monotonic()
        if now_s < self._again_s:
            return
        self._again_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, AGAIN_AT_MOST_S)
        with contextlib.suppress(ValueError):
            self._open(SOON_S)

    def _connect(self, name: str, token: str, patience_s: float) -> None:
        where = paths.client_socket(asking.folder())
        connection = paths.connect(where, socket.SOCK_SEQPACKET, patience_s)
        try:
            connection.send(build_hello(name, token))
            welcome, fds, _, _ = socket.recv_fds(connection, 64, 2)
            if not welcome or len(fds) != 2:
                raise OSError("refused")
            self._daemon = mmap.mmap(fds[0], PAGE, prot=mmap.PROT_READ)
            self._page = mmap.mmap(fds[1], PAGE)
            for fd in fds:
                os.close(fd)
            connection.send(build_message(Message(TURNS, 0)))
        except OSError:
            connection.close()
            raise
        self._socket = connection

    @property
    def share(self) -> int:
        """Which part of the multiprocessors this program may use, in thousandths."""
        self._be_of_this_process()
        told = 0
        if self._socket is not None:
            told = int(DAEMON_PAGE.read(self._daemon, "share"))
        return told if 0 < told < WHOLE_PERMILLE else WHOLE_PERMILLE

    def begin(self) -> None:
        """The first who begins waits for the turn of all."""
        self._be_of_this_process()
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._since_ns = time.monotonic_ns()
                self._ask_for_turn()

    def end(self, deadline_ns: int) -> None:
        """The last who ends gives the turn back."""
        self._be_of_this_process()
        with self._lock:
            self._depth = max(0, self._depth - 1)
            if self._depth == 0:
                self._count(deadline_ns)
                self._give_back()

    def _be_of_this_process(self) -> None:
        """A forked child has this object, and its parent's connection, which is not its own."""
        if self._pid == os.getpid():
            return
        self.close()
        self._pid, self._lock, self._depth = os.getpid(), threading.Lock(), 0
        self._open(PATIENCE_S)

    def _ask_for_turn(self) -> None:
        """Wait for a turn; a daemon that is gone or stopped is not waited for."""
        if self._socket is None:
            self._open_again()
        if self._socket is None:
            return
        self._seq += 1
        try:
            self._tell(SUBMIT)
            while not self._granted():
                beat_ns = DAEMON_PAGE.read(self._daemon, "heartbeat_ns")
                if time.monotonic_ns() - beat_ns > STALE_NS:
                    self.close()
                    return
            self._set_busy(1)
        except OSError:
            self.close()

    def _granted(self) -> bool:
        assert self._socket is not None
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        if not poller.poll(LOOK_MS):
            return False
        data = self._socket.recv(MESSAGE_SIZE)
        if len(data) != MESSAGE_SIZE:
            raise OSError("gone")
        message = parse_message(data)
        return message.type == GRANT and message.seq == self._seq

    def _give_back(self) -> None:
        if self._socket is None:
            return
        try:
            self._set_busy(0)
            self._tell(RELEASE, last=True)
        except OSError:
            self.close()

    def _count(self, deadline_ns: int) -> None:
        """A job is over: its record, for who watches."""
        if self._socket is not None:
            job = JobReport(self._since_ns, time.monotonic_ns(), deadline_ns, pauses=1, closed=True)
            record = build_job(job)
            at = CLIENT_PAGE.at("job", self._jobs % JOBS)
            self._page[at : at + len(record)] = record
            self._jobs += 1
            CLIENT_PAGE.write(self._page, "jobs", self._jobs)

    def _set_busy(self, busy: int) -> None:
        CLIENT_PAGE.write(self._page, "busy", busy)

    def _tell(self, kind: int, *, last: bool = False) -> None:
        assert self._socket is not None
        self._socket.send(build_message(Message(kind, self._seq, frame=last)))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
