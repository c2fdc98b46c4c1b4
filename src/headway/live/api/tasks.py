"""Headway from inside a program: `headway.task()`, `headway.job()` and `headway.current()`.

Under `headway run` the interposer is in the process: a task changes what the daemon knows of this
process, and a job tells the interposer where a piece of work begins and ends. In a program that
was started without it nothing can be interposed; there a job is a turn of its own, asked for
before the work and given back after it. Without a daemon nothing of this does anything.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.engine.turns.port import JobReport
from headway.engine.units import parse_duration, parse_slowdown
from headway.live.api import client
from headway.live.identity.wishes import parse_reserve
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

PATIENCE_S = 0.5
"""How long a daemon may take to answer before the program goes on without it."""
STALE_NS = 400_000_000
"""A daemon that has shown no sign of life for this long is not waited for."""
LOOK_MS = 50
AGAIN_S, AGAIN_AT_MOST_S = 1.0, 60.0
"""How soon another daemon is looked for after one has gone: each time half as often."""
SOON_S = 0.05
"""How long that one may take to answer: a job waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Current:
    """What the daemon knows of this process."""

    task: str
    policy: str
    priority: str
    state: str
    interposed: bool
    jobs: int
    misses: int


def _folder() -> Path:
    path = os.environ.get("HEADWAY_SOCKET", "")
    return Path(path).parent if path else paths.runtime_folder()


def _ask(request: dict[str, Any], patience_s: float = PATIENCE_S) -> dict[str, Any] | None:
    """The daemon's answer; None if there is none. A refusal is the caller's mistake: ValueError."""
    try:
        return client.ask(_folder(), request, timeout_s=patience_s)
    except OSError:
        return None


@functools.cache
def _interposer() -> ctypes.CDLL | None:
    """The library in this process, if `headway run` put it there."""
    if "HEADWAY_SOCKET" not in os.environ:
        return None
    library = ctypes.CDLL(None)
    try:
        library.headway_job_begin.argtypes = (ctypes.c_uint64,)
        library.headway_job_begin.restype = library.headway_job_end.restype = None
    except AttributeError:
        return None
    return library


# -- tasks ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def task(
    name: str,
    *,
    priority: int | str | None = None,
    reserve: str | None = None,
    policy: str | None = None,
    period: str | None = None,
    deadline: str | None = None,
    slowdown: str | None = None,
) -> Iterator[None]:
    """Within this block, and all threads of this process, GPU work is this task's.

    Tasks may stand in tasks: the innermost counts. A wrong value is a ValueError; whether there is
    a daemon makes no difference to that.
    """
    wish = {"name": name, "priority": priority, "reserve": reserve, "policy": policy}
    wish |= {"period": period, "deadline": deadline, "slowdown": slowdown}
    _check(wish)
    if _interposer() is not None:
        told = _ask({"do": "become", **wish}) is not None
        try:
            yield
        finally:
            if told:
                _ask({"do": "unbecome"})
        return
    _turns.enter(wish)
    try:
        yield
    finally:
        _turns.leave()


def _check(wish: dict[str, Any]) -> None:
    if wish["reserve"] is not None:
        parse_reserve(wish["reserve"])
    for key in ("period", "deadline"):
        if wish[key] is not None:
            parse_duration(wish[key])
    if wish["slowdown"] is not None:
        parse_slowdown(wish["slowdown"])


# -- jobs ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def job(deadline: str | None = None) -> Iterator[None]:
    """This block is one job: its GPU work is a turn that is not given away in between, and it is
    late if the block takes longer than the deadline."""
    deadline_ns = 0 if deadline is None else parse_duration(deadline)
    library = _interposer()
    if library is not None:
        library.headway_job_begin(deadline_ns)
        try:
            yield
        finally:
            library.headway_job_end()
        return
    _turns.begin(deadline_ns)
    try:
        yield
    finally:
        _turns.end()


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


class _Channel:
    """A channel of our own: a job asks for its turn, and gives it back."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self._wish = {key: value for key, value in wish.items() if value is not None}
        self._seq = 0
        self._jobs = 0
        self._socket: socket.socket | None = None
        self._again_s = time.monotonic() + AGAIN_S
        self._pause_s = AGAIN_S
        self._open(PATIENCE_S)

    def _open(self, patience_s: float) -> None:
        answer = _ask({"do": "run", **self._wish}, patience_s)
        if answer is not None and _has_our_clock(answer):
            with contextlib.suppress(OSError):
                self._connect(str(self._wish["name"]), answer["token"], patience_s)
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
        where = paths.client_socket(_folder())
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

    def begin(self) -> None:
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

    def end(self) -> None:
        if self._socket is None:
            return
        try:
            self._set_busy(0)
            self._tell(RELEASE, last=True)
        except OSError:
            self.close()

    def count(self, begun_ns: int, deadline_ns: int) -> None:
        """A job is over: its record, for who watches."""
        if self._socket is not None:
            job = JobReport(begun_ns, time.monotonic_ns(), deadline_ns, pauses=1, closed=True)
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


class _Turns(threading.local):
    """The tasks and jobs of one thread in a program without the interposer."""

    def __init__(self) -> None:
        self._channels: list[_Channel] = []
        self._depth = 0
        self._since_ns = self._deadline_ns = 0

    def enter(self, wish: dict[str, Any]) -> None:
        self._channels.append(_Channel(wish))

    def leave(self) -> None:
        self._channels.pop().close()

    def begin(self, deadline_ns: int) -> None:
        self._depth += 1
        if self._depth == 1 and self._channels:
            self._since_ns, self._deadline_ns = time.monotonic_ns(), deadline_ns
            self._channels[-1].begin()

    def end(self) -> None:
        self._depth -= 1
        if self._depth == 0 and self._channels:
            self._channels[-1].count(self._since_ns, self._deadline_ns)
            self._channels[-1].end()


_turns = _Turns()


# -- looking -------------------------------------------------------------------------------------


def current() -> Current | None:
    """What the daemon knows of this process; None: nothing, or there is no daemon."""
    answer = _ask({"do": "status"})
    own = [
        c for c in (answer or {}).get("status", {}).get("channels", []) if c["pid"] == os.getpid()
    ]
    if not own:
        return None
    entry = own[-1]
    return Current(
        task=entry["task"],
        policy=entry["policy"],
        priority=entry["priority"],
        state=entry["state"],
        interposed=_interposer() is not None,
        jobs=entry["jobs"],
        misses=entry["misses"],
    )
