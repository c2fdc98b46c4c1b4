"""The daemon: one loop over sockets, timers and deaths, around the arbiter.

Everything runs in one thread. A client that misbehaves loses its connection; nothing a client does
can make the daemon wait, because every socket is non-blocking and every message is small.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.engine.core import Engine
from headway.engine.events import Observer
from headway.engine.policies import Policy
from headway.engine.policies.ht import Ht
from headway.engine.policies.prt import Prt
from headway.engine.predictors import Predictor
from headway.engine.reading import BadInput
from headway.engine.spec import Spec, parse_spec
from headway.live import paths
from headway.live.arbiter import Arbiter, Bounds
from headway.live.channel import Channel, peer_of
from headway.live.control import Control
from headway.live.pages import Pages
from headway.live.protocol import (
    GRANT,
    HELLO_SIZE,
    MESSAGE_SIZE,
    Message,
    ProtocolError,
    build_message,
    build_welcome,
    parse_hello,
    parse_message,
)
from headway.live.registry import Registry

HEARTBEAT_NS = 100_000_000
HELLO_NS = 2_000_000_000
"""A connection that has said nothing for this long is closed."""
BACKLOG = 1024
DEFAULT_SPLIT_NS = 500_000
DEFAULT_HOLDOFF_NS = 2_000_000


class DaemonError(RuntimeError):
    """The daemon cannot start; one line."""


class Daemon:
    """Serves clients and control connections until it is told to stop."""

    def __init__(
        self,
        folder: Path,
        *,
        spec_file: str | None = None,
        split_ns: int = DEFAULT_SPLIT_NS,
        holdoff_ns: int = DEFAULT_HOLDOFF_NS,
        bounds: Bounds | None = None,
        observers: tuple[Observer, ...] = (),
        until_idle: bool = False,
    ) -> None:
        self.folder = folder
        self.split_ns = split_ns
        self.until_idle = until_idle
        self._spec_file = spec_file
        spec = Spec() if spec_file is None else parse_spec(Path(spec_file).read_text(), spec_file)
        self.engine = Engine(
            limit=spec.settings.limit,
            background=spec.settings.background,
            named=_with_holdoff(spec, holdoff_ns),
            observers=observers,
        )
        self.engine.now_ns = time.monotonic_ns()
        self.arbiter = Arbiter(self.engine, self._grant, bounds or Bounds())
        self.registry = Registry(self.engine, spec)
        self.control = Control(self)
        self.channels: dict[int, Channel] = {}
        self.refused = 0
        self._numbers = 0
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._epoll = select.epoll()
        self._stopping = False
        self._reload = False
        self._beat_ns = 0
        self._had_clients = False

    # -- life --------------------------------------------------------------------------------

    def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Run until told to stop. `ready` is called once clients can connect."""
        with contextlib.ExitStack() as stack:
            paths.prepare(self.folder)
            self._lock(stack)
            self._listen(stack, paths.client_socket(self.folder), self._accept_client)
            self._listen(stack, paths.control_socket(self.folder), self.control.accept)
            wake, _ = self._signals(stack)
            self.watch(wake, lambda events: self._woken(wake))
            if ready is not None:
                ready()
            try:
                while not self._stopping:
                    self._turn()
            finally:
                for channel in list(self.channels.values()):
                    self._drop(channel)

    def stop(self) -> None:
        self._stopping = True

    def _lock(self, stack: contextlib.ExitStack) -> None:
        file = stack.enter_context(paths.lock_file(self.folder).open("a+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DaemonError(f"{self.folder}: a daemon is running there already") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()

    def _listen(
        self, stack: contextlib.ExitStack, path: Path, accept: Callable[[socket.socket], None]
    ) -> None:
        kind = socket.SOCK_SEQPACKET if path.name == "clients.sock" else socket.SOCK_STREAM
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK))
        path.unlink(missing_ok=True)  # left by a daemon that was killed; we hold the lock
        try:
            listener.bind(str(path))
        except OSError as error:
            raise DaemonError(f"{path}: {error.strerror or error}") from None
        listener.listen(BACKLOG)
        stack.callback(path.unlink, missing_ok=True)
        self.watch(listener.fileno(), lambda events: self._accept(listener, accept))

    def _signals(self, stack: contextlib.ExitStack) -> tuple[int, int]:
        """Signals become readable bytes, so that they are handled between two events."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, reader)
        stack.callback(os.close, writer)
        old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        stack.callback(signal.set_wakeup_fd, old)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            previous = signal.signal(number, lambda *_: None)
            stack.callback(signal.signal, number, previous)
        return reader, writer

    def _woken(self, reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(reader, 256):
                if number == signal.SIGHUP:
                    self.reload()
                else:
                    self._stopping = True

    def reload(self) -> str:
        """Read the spec file again; one with a mistake changes nothing."""
        if self._spec_file is None:
            return ""
        try:
            spec = parse_spec(Path(self._spec_file).read_text(), self._spec_file)
        except (OSError, UnicodeDecodeError, BadInput) as error:
            return str(error)
        self.registry.replace(spec, time.monotonic_ns())
        return ""

    # -- the loop ----------------------------------------------------------------------------

    def watch(self, fd: int, handler: Callable[[int], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def _turn(self) -> None:
        now_ns = time.monotonic_ns()
        due_ns = self._next_due_ns(now_ns)
        timeout = -1.0 if due_ns is None else max(0.0, (due_ns - now_ns) / 1e9)
        for fd, events in self._epoll.poll(timeout):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(events)
        now_ns = time.monotonic_ns()
        due_ns = self.arbiter.next_timer_ns(now_ns)
        if due_ns is not None and due_ns <= now_ns:
            self.arbiter.tick(now_ns)
        if self.channels and now_ns - self._beat_ns >= HEARTBEAT_NS:
            self._beat(now_ns)
        if self.until_idle and self._had_clients and not self.channels:
            self._stopping = True

    def _next_due_ns(self, now_ns: int) -> int | None:
        times = [self.arbiter.next_timer_ns(now_ns)]
        if self.channels:
            times.append(self._beat_ns + HEARTBEAT_NS)
        return min((t for t in times if t is not None), default=None)

    def _beat(self, now_ns: int) -> None:
        self._beat_ns = now_ns
        for channel in list(self.channels.values()):
            if channel.pages is not None:
                channel.pages.beat(now_ns)
            elif now_ns - channel.since_ns > HELLO_NS:
                self._drop(channel)

    def _accept(self, listener: socket.socket, accept: Callable[[socket.socket], None]) -> None:
        for _ in range(64):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
                    # No descriptor left: whoever waits in the backlog goes unmanaged meanwhile.
                    time.sleep(0.01)
                return
            connection.setblocking(False)
            try:
                accept(connection)
            except OSError:
                connection.close()

    # -- clients -----------------------------------------------------------------------------

    def _accept_client(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        if not self.registry.may_connect(peer):
            self.refused += 1
            connection.close()
            return
        self._numbers += 1
        channel = Channel(self._numbers, connection, peer, time.monotonic_ns())
        self.channels[channel.number] = channel
        self._had_clients = True
        self.watch(connection.fileno(), lambda events: self._readable(channel))

    def _readable(self, channel: Channel) -> None:
        """Read what is there, but not for ever: the others want to be heard too."""
        for _ in range(16):
            try:
                data = channel.socket.recv(max(HELLO_SIZE, MESSAGE_SIZE) + 1)
            except BlockingIOError:
                return
            except OSError:
                self._drop(channel)
                return
            if not data:
                self._drop(channel)
                return
            try:
                if channel.task is None:
                    self._greet(channel, data)
                else:
                    self.arbiter.heard(channel, parse_message(data), time.monotonic_ns())
            except (ProtocolError, OSError):
                self.refused += 1
                self._drop(channel)
                return
            if channel.number not in self.channels:
                return

    def _greet(self, channel: Channel, data: bytes) -> None:
        hello = parse_hello(data)
        now_ns = time.monotonic_ns()
        pages = Pages(self.split_ns)
        channel.pages = pages
        pages.beat(now_ns)
        channel.name = hello.name
        channel.task = self.registry.enrol(channel, hello, now_ns)
        self.arbiter.add(channel)
        socket.send_fds(
            channel.socket,
            [build_welcome(channel.number)],
            [pages.daemon_fd, pages.client_fd],
        )
        pages.close_fds()
        pidfd = channel.open_pidfd()
        if pidfd >= 0:
            self.watch(pidfd, lambda events: self._drop(channel))

    def _grant(self, channel: Channel) -> None:
        with contextlib.suppress(OSError):  # full or gone; the loop notices its end
            channel.socket.send(build_message(Message(GRANT, channel.seq)))

    def _drop(self, channel: Channel) -> None:
        """A connection is over, by whatever cause."""
        if self.channels.pop(channel.number, None) is None:
            return
        self.unwatch(channel.socket.fileno())
        if channel.pidfd >= 0:
            self.unwatch(channel.pidfd)
        now_ns = time.monotonic_ns()
        self.arbiter.remove(channel, now_ns)
        self.registry.leave(channel)
        channel.close()

    # -- what is told to people ----------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Everything `headway status` shows."""
        return {
            "pid": os.getpid(),
            "folder": str(self.folder),
            "grants": self.arbiter.grants,
            "leases": self.arbiter.leases,
            "refused": self.refused,
            "channels": [self._describe(c) for c in self.channels.values() if c.task is not None],
        }

    def _describe(self, channel: Channel) -> dict[str, Any]:
        task, pages = channel.task, channel.pages
        assert task is not None
        assert pages is not None
        page = pages.client
        reserve = task.reserve
        state = "idle"
        if channel.leased:
            state = "leased"
        elif channel.online_since_ns is not None:
            state = "running"
        elif task.waiting is not None:
            state = "waiting" if task.in_ready_queue else "budget"
        return {
            "task": task.name,
            "pid": channel.peer.pid,
            "uid": channel.peer.uid,
            "policy": task.policy.name,
            "priority": str(task.rule),
            "effective": task.priority,
            "reserve": None if reserve is None else reserve.name,
            "capacity_ns": None if reserve is None else reserve.capacity_ns,
            "period_ns": None if reserve is None else reserve.period_ns,
            "budget_ns": None if reserve is None else reserve.budget_ns,
            "state": state,
            "groups": channel.groups,
            "passed": page.passed,
            "free": page.free_groups,
            "frames": page.frames,
            "gpu_ns": task.gpu_ns,
            "overdue": channel.overdue,
        }


def _with_holdoff(spec: Spec, holdoff_ns: int) -> tuple[Policy | Predictor, ...]:
    """The spec's settings; policies it says nothing of get the daemon's hold-off."""
    given = {item.name for item in spec.settings.named}
    ours = [cls(holdoff_ns) for cls in (Prt, Ht) if cls.name not in given]
    return (*spec.settings.named, *ours)
