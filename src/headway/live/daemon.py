"""The daemon: one loop over sockets, timers and deaths, around the arbiter.

Everything runs in one thread. A client that misbehaves loses its connection; nothing a client does
can make the daemon wait, because every socket is non-blocking and every message is small. A mistake
of the daemon's own is one line on stderr and costs the connection at hand; if the engine itself is
in doubt, everybody is let go and comes back to a new one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from headway.engine.core import Engine
from headway.engine.events import Observer
from headway.engine.model import Task
from headway.engine.policies import Policy
from headway.engine.policies.ht import Ht
from headway.engine.policies.overlap import Overlap
from headway.engine.policies.prt import Prt
from headway.engine.predictors import Predictor
from headway.engine.reading import BadInput
from headway.engine.spec import Spec
from headway.live import leases, paths
from headway.live.arbiter import Arbiter, Bounds
from headway.live.channel import Channel, peer_of
from headway.live.control import Control
from headway.live.foreground import Foreground
from headway.live.launches import Launches
from headway.live.listener import Listener
from headway.live.loop import Loop, describe_failure, log
from headway.live.mps import MEANING, Mps
from headway.live.pages import Pages
from headway.live.protocol import (
    ENTER,
    GRANT,
    HELLO_SIZE,
    LEAVE,
    MESSAGE_SIZE,
    Message,
    ProtocolError,
    build_message,
    build_welcome,
    parse_hello,
    parse_message,
)
from headway.live.recording import Recordings
from headway.live.registry import Allow, Registry
from headway.live.report import describe, sample
from headway.live.servers import Inherit, Servers
from headway.live.specfile import SpecFile
from headway.live.stats import Stats
from headway.live.wishes import Address

HEARTBEAT_NS = 100_000_000
SAMPLES_A_BEAT = 64
"""Pages that are read with one heartbeat, about: reading all of very many would take too long."""
HELLO_NS = 2_000_000_000
"""A connection that has said nothing for this long is closed."""
FIRST_NS = 60_000_000_000
"""How long a daemon that ends with its last client waits for the first."""
DEFAULT_SPLIT_NS = 500_000
DEFAULT_WINDOW_NS = 200_000
WIDER = 10
DEFAULT_HOLDOFF_NS = 2_000_000
MAX_DESCRIPTORS = 65_536
MAX_LAUNCHED = 100
OWN_DESCRIPTORS = 16
"""Listeners, lock, signals, the X server, and the pages of one client while it is greeted."""
METRICS_DESCRIPTORS = 18
"""Those who read metrics, and where they come in."""


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
        window_ns: int = DEFAULT_WINDOW_NS,
        holdoff_ns: int = DEFAULT_HOLDOFF_NS,
        bounds: Bounds | None = None,
        observers: tuple[Observer, ...] = (),
        until_idle: bool = False,
        allow: Allow | None = None,
        software_gpu: int | None = None,
        mps: bool = False,
        spin_ns: int = 0,
        display: str | None = None,
        metrics: Address | None = None,
        inherit: Inherit | None = None,
    ) -> None:
        self.folder = folder
        self.split_ns = split_ns
        self.window_ns = window_ns
        self._spin_ns = spin_ns
        self._heard_ns = 0
        """When a program that takes turns was last heard."""
        self.until_idle = until_idle
        self.software_gpu = software_gpu
        """The CPU that plays the GPU for every program that is launched; None: a real one."""
        self.mps = Mps(folder) if mps else None
        self._metrics = metrics
        self._holdoff_ns = holdoff_ns
        self._bounds = bounds or Bounds()
        self.stats = Stats()
        self._observers = (self.stats, *observers)
        try:
            self.spec_file = SpecFile(spec_file)
        except BadInput:
            raise
        except (ValueError, RecursionError) as error:
            raise DaemonError(str(error)) from None
        self.recordings = Recordings()
        self.engine = self._new_engine()
        self.arbiter = Arbiter(self.engine, self._grant, self._bounds)
        allow = allow or Allow.by(self.spec_file.spec.allowed)
        inherit = inherit or Inherit()
        launches = Launches(folder / "launches")
        self.registry = Registry(self.engine, self.spec_file.spec, allow, inherit, launches)
        self.loop = Loop()
        self.servers = Servers(
            self.engine,
            self.loop,
            inherit,
            self.registry.may_manage,
            lambda channel, now_ns: self.arbiter.take_back(channel, now_ns),
        )
        self.control = Control(self)
        self.foreground = Foreground(self, display)
        self.channels: dict[int, Channel] = {}
        self.refused = 0
        self.restarts = 0
        """How often the engine was in doubt and replaced."""
        self.room = 0
        """Clients that there are descriptors for."""
        self._numbers = 0
        self._stopping = False
        self._in_doubt = False
        self._beat_ns = 0
        self._beats_so_far = 0
        self._listeners: list[Listener] = []
        self.since_ns = time.monotonic_ns()
        self._had_clients = False
        self._launched: set[int] = set()
        """Processes that `headway run` turned into programs, as pidfds."""
        self._alive: Callable[[], None] | None = None

    def _new_engine(self) -> Engine:
        spec = self.spec_file.spec
        return Engine(
            limit=spec.settings.limit,
            background=spec.settings.background,
            named=_with_holdoff(spec, self._holdoff_ns),
            observers=(*self._observers, *self.recordings.observers()),
            now_ns=time.monotonic_ns(),
        )

    # -- life --------------------------------------------------------------------------------

    def serve(
        self, ready: Callable[[], None] | None = None, alive: Callable[[], None] | None = None
    ) -> None:
        """Run until told to stop. `ready` is called once clients can connect, `alive` with every
        heartbeat, for a watchdog."""
        self._alive = alive
        with contextlib.ExitStack() as stack:
            stack.callback(self.loop.close)
            paths.prepare(self.folder)
            self._lock(stack)
            self._make_room()
            if self.mps is not None:
                log(MEANING)
                self.mps.start()
                stack.callback(self.mps.stop)
            clients, control = paths.client_socket(self.folder), paths.control_socket(self.folder)
            self._listen(stack, clients, socket.SOCK_SEQPACKET, self._accept_client)
            self._listen(stack, control, socket.SOCK_STREAM, self.control.accept)
            if self._metrics is not None:
                self._serve_metrics(stack, self._metrics)
            wake = self._signals(stack)
            self.loop.watch(wake, lambda: self._woken(wake), self.stop)
            self.foreground.start()
            stack.callback(self.foreground.watcher.close)
            if ready is not None:
                ready()
            try:
                while not self._stopping:
                    self._turn()
            finally:
                for channel in list(self.channels.values()):
                    self._drop(channel)
                self.servers.close()
                self.control.close()
                self.recordings.close(self.engine)
                for fd in list(self._launched):
                    self._launch_over(fd)

    def stop(self) -> None:
        self._stopping = True

    def _make_room(self) -> None:
        """As many descriptors as are permitted. A client takes two; a quarter is for control, so
        that the daemon can be asked and stopped however many clients there are."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        self.control.room = max(1, limit // 4)
        own = OWN_DESCRIPTORS + (METRICS_DESCRIPTORS if self._metrics is not None else 0)
        self.room = max(1, (limit - own - self.control.room) // 2)

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
        self,
        stack: contextlib.ExitStack,
        path: Path,
        kind: int,
        accept: Callable[[socket.socket], None],
    ) -> None:
        try:
            listener = Listener(self.loop, path, kind, accept)
        except OSError as error:
            raise DaemonError(f"{path}: {error.strerror or error}") from None
        stack.callback(listener.close)
        self._listeners.append(listener)
        if self.registry.allow.uids or self.registry.allow.gids:  # who they are is asked later
            path.chmod(0o666)
            self.folder.chmod(0o711)

    def _serve_metrics(self, stack: contextlib.ExitStack, address: Address) -> None:
        from headway.live.scrape import Scrape  # it takes a while to load, and few want it

        try:
            scrape = Scrape(self, address)
        except OSError as error:
            raise DaemonError(f"--metrics {address}: {error.strerror or error}") from None
        stack.callback(scrape.close)
        self._listeners.append(scrape.listener)

    def _signals(self, stack: contextlib.ExitStack) -> int:
        """Signals become readable bytes, so that they are handled between two events."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, reader)
        stack.callback(os.close, writer)
        old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        stack.callback(signal.set_wakeup_fd, old)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            previous = signal.signal(number, lambda *_: None)
            stack.callback(signal.signal, number, previous)
        return reader

    def _woken(self, reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(reader, 256):
                if number == signal.SIGHUP:
                    self._say_spec(self.reload())
                else:
                    self._stopping = True

    def reload(self) -> str:
        """Read the spec file again; one with a mistake changes nothing, and is told."""
        self._take_spec(self.spec_file.reload())
        return self.spec_file.problem

    def _take_spec(self, changed: bool) -> None:
        if changed:
            self.registry.replace(self.spec_file.spec)

    def _refresh_spec(self) -> None:
        """The file counts for every new channel as it is then."""
        before = self.spec_file.problem
        self._take_spec(self.spec_file.refresh())
        if self.spec_file.problem != before:
            self._say_spec(self.spec_file.problem)

    def _say_spec(self, problem: str) -> None:
        if problem:
            log(f"the spec that was read last stays in force: {problem}")

    # -- the loop ----------------------------------------------------------------------------

    def _turn(self) -> None:
        now_ns = time.monotonic_ns()
        if self._spin_ns and now_ns - self._heard_ns < self._spin_ns:
            self._spin(now_ns)
        else:
            self._look(False, now_ns)
            due_ns = self._next_due_ns()
            self.loop.turn(None if due_ns is None else max(0.0, (due_ns - now_ns) / 1e9))
        now_ns, watcher = time.monotonic_ns(), self.foreground.watcher
        try:
            due_ns = self.arbiter.next_timer_ns()
            if self.servers.tick(now_ns) or (due_ns is not None and due_ns <= now_ns):
                self.arbiter.tick(now_ns)
            self.servers.refresh(now_ns)
        except Exception as error:
            self._doubt(error)
        self.loop.guarded(partial(watcher.tick, now_ns), watcher.failed)
        if self._in_doubt:
            self._start_over()
        self.recordings.send(self.engine, now_ns)
        for listener in self._listeners:
            listener.resume(now_ns)
        if self._beats and now_ns - self._beat_ns >= HEARTBEAT_NS:
            self._beat(now_ns)
        if self.until_idle and not self.channels:
            self._stopping |= self._is_over(now_ns)

    def _spin(self, now_ns: int) -> None:
        """Look until there is something to do, or has not been for long."""
        self._look(True, now_ns)
        due_ns, end_ns = self._next_due_ns(), self._heard_ns + self._spin_ns
        end_ns = end_ns if due_ns is None else min(end_ns, due_ns)
        try:
            while now_ns < end_ns and not self.loop.is_ready():
                if self.arbiter.glance(now_ns):
                    self._heard_ns = now_ns
                    return
                now_ns = time.monotonic_ns()
        except Exception as error:
            self._doubt(error)
        self.loop.turn(0.0)

    def _look(self, on: bool, now_ns: int) -> None:
        """Programs that are looked at need not say everything by a message."""
        try:
            self.arbiter.look(on, now_ns)
        except Exception as error:
            self._doubt(error)

    def _is_over(self, now_ns: int) -> bool:
        waited = self._had_clients or now_ns - self.since_ns > FIRST_NS
        return waited and not self._launched

    def launched(self, pid: int) -> None:
        """This process becomes a program of ours, or starts some: while it lives, a daemon that
        ends with its last client stays, however late the GPU work comes."""
        if not self.until_idle or len(self._launched) >= MAX_LAUNCHED:
            return
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            self._launched.add(fd)
            gone = partial(self._launch_over, fd)
            self.loop.watch(fd, gone, gone)

    def _launch_over(self, fd: int) -> None:
        if fd in self._launched:
            self._launched.remove(fd)
            self._had_clients = True  # whether it ever came or not
            self.loop.unwatch(fd)
            self.loop.close_later(partial(os.close, fd))

    def _next_due_ns(self) -> int | None:
        times = [self.arbiter.next_timer_ns(), self.servers.next_timer_ns()]
        times += [self.recordings.due_ns, self.foreground.watcher.due_ns]
        times += [listener.paused_until_ns for listener in self._listeners]
        if self._beats:
            times.append(self._beat_ns + HEARTBEAT_NS)
        elif self.until_idle:
            times.append(time.monotonic_ns() + 1_000_000_000)
        return min((t for t in times if t is not None), default=None)

    @property
    def _beats(self) -> bool:
        """Whether anybody looks; an idle daemon sleeps."""
        return bool(self.channels) or self._alive is not None

    def _beat(self, now_ns: int) -> None:
        self._beat_ns = now_ns
        if self._alive is not None:
            self._alive()
        self._beats_so_far += 1
        rounds = len(self.channels) // SAMPLES_A_BEAT + 1
        for channel in list(self.channels.values()):
            if channel.pages is not None:
                channel.pages.beat(now_ns)
                if (channel.number + self._beats_so_far) % rounds == 0:
                    sample(self, channel, now_ns)
                leases.tell_passed(self.engine, channel, now_ns)
            elif now_ns - channel.since_ns > HELLO_NS:
                self._drop(channel)

    def _doubt(self, error: Exception) -> None:
        """The engine failed in the middle of something: what it says now is not to be relied on."""
        log(f"the engine starts over: {describe_failure(error)}")
        self._in_doubt = True

    def _start_over(self) -> None:
        """Let everybody go, as a daemon that died would; they come back by themselves."""
        self._in_doubt = False
        self.restarts += 1
        for channel in list(self.channels.values()):
            channel.task = None
            self._drop(channel)
        grants, leases = self.arbiter.grants, self.arbiter.leases
        self.engine = self.registry.engine = self._new_engine()
        self.arbiter = Arbiter(self.engine, self._grant, self._bounds)
        self.arbiter.grants, self.arbiter.leases = grants, leases
        self.servers.start_over(self.engine)

    # -- clients -----------------------------------------------------------------------------

    def _accept_client(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        # Those for whom there is no room hear it at once, and go unmanaged without waiting.
        if len(self.channels) >= self.room or not self.registry.arrive(peer):
            self.refused += 1
            connection.close()
            return
        self._numbers += 1
        channel = Channel(self._numbers, connection, peer, time.monotonic_ns())
        self.channels[channel.number] = channel
        self._had_clients = True
        drop = partial(self._drop, channel)
        self.loop.watch(connection.fileno(), partial(self._readable, channel), drop)

    def _readable(self, channel: Channel) -> None:
        """Read what is there, but not for ever: the others want to be heard too."""
        for _ in range(16):
            if channel.number not in self.channels:
                return
            try:
                data = channel.socket.recv(max(HELLO_SIZE, MESSAGE_SIZE) + 1)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._drop(channel)
                return
            try:
                if channel.task is None:
                    self._greet(channel, data)
                else:
                    self._hear(channel, parse_message(data))
            except (ProtocolError, OSError):
                self.refused += 1
                self._drop(channel)
                return

    def _hear(self, channel: Channel, message: Message) -> None:
        now_ns = time.monotonic_ns()
        if channel.turns:
            self._heard_ns = now_ns
        try:
            if message.type in (ENTER, LEAVE):
                self.servers.heard(channel, message, now_ns)
                self.arbiter.decide(now_ns)
            else:
                self.arbiter.heard(channel, message, now_ns)
        except ProtocolError:
            raise
        except Exception as error:
            self._doubt(error)

    def _greet(self, channel: Channel, data: bytes) -> None:
        hello = parse_hello(data)
        self._refresh_spec()
        now_ns = time.monotonic_ns()
        pages = channel.pages = Pages()
        pages.beat(now_ns)
        channel.task = self.registry.enrol(channel, hello, now_ns)
        self.arbiter.add(channel)
        self.servers.arrived(channel)
        self.set_splits()  # before it can ask for anything
        welcome = [build_welcome(channel.number)]
        socket.send_fds(channel.socket, welcome, [pages.daemon_fd, pages.client_fd])
        pages.close_fds()
        pidfd = channel.open_pidfd()
        if pidfd >= 0:
            drop = partial(self._drop, channel)
            self.loop.watch(pidfd, drop, drop)
        self.foreground.arrived(channel)

    def set_splits(self) -> None:
        """Splitting bounds what the others wait for, and how far a budget is overrun. A program
        that is alone and has no budget is left as it is; the first to come meets at most what its
        driver had queued, once."""
        served = [c for c in self.channels.values() if c.task is not None]
        crowded = any(c.peer.pid != served[0].peer.pid for c in served)
        for channel in served:
            if channel.pages is not None and channel.task is not None:
                bounded = crowded or channel.task.reserve is not None
                channel.pages.set_split(self.split_ns if bounded else 0)
                channel.pages.set_window(self._window_ns(channel, served) if bounded else 0)

    def _window_ns(self, channel: Channel, others: list[Channel]) -> int:
        """Somebody more important waits for a window at most. Equals wait for slices anyway, and a
        budget is for much more than a window: a wider one keeps the GPU busy."""
        level = _level(channel)
        if any(_level(c) > level for c in others):
            return self.window_ns
        reserved = channel.task is not None and channel.task.reserve is not None
        equal = any(c is not channel and _level(c) == level for c in others)
        return WIDER * self.window_ns if equal or reserved else 0

    def show(self, tasks: Collection[Task]) -> None:
        """A person looks at these now."""
        now_ns = time.monotonic_ns()
        try:
            self.engine.set_foreground(tasks, now_ns)
            self.arbiter.pump(now_ns)
        except Exception as error:
            self._doubt(error)

    def _grant(self, channel: Channel) -> None:
        try:
            channel.socket.send(build_message(Message(GRANT, channel.seq)))
        except OSError:  # gone, or it reads nothing of what it asks for
            drop = partial(self._drop, channel)
            self.loop.soon(drop, drop)

    def _drop(self, channel: Channel) -> None:
        """A connection is over, by whatever cause."""
        if self.channels.pop(channel.number, None) is None:
            return
        self.loop.unwatch(channel.socket.fileno())
        if channel.pidfd >= 0:
            self.loop.unwatch(channel.pidfd)
        self.registry.leave(channel.peer)
        # The other side hears it now, though the descriptor goes at the end of the turn.
        with contextlib.suppress(OSError):
            channel.socket.shutdown(socket.SHUT_RDWR)
        self.loop.close_later(channel.close)
        now_ns = time.monotonic_ns()
        try:
            self.arbiter.remove(channel, now_ns)
            self.servers.gone(channel, now_ns)
        except Exception as error:
            self._doubt(error)
        self.set_splits()

    def status(self) -> dict[str, Any]:
        """Everything `headway status` shows."""
        return describe(self)


def _level(channel: Channel) -> int:
    return channel.task.priority if channel.task is not None else 0


def _with_holdoff(spec: Spec, holdoff_ns: int) -> tuple[Policy | Predictor, ...]:
    """The spec's settings; policies it says nothing of get the daemon's hold-off."""
    given = {item.name for item in spec.settings.named}
    ours = [cls(holdoff_ns) for cls in (Prt, Ht, Overlap) if cls.name not in given]
    return (*spec.settings.named, *ours)
