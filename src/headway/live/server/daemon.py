"""The daemon: one loop over sockets, timers and deaths, around the arbiter.

Everything runs in one thread, and nothing in it waits for anybody. A mistake of the daemon's own is
one line on stderr and costs the connection at hand; if the engine itself is in doubt, everybody is
let go and comes back to a new one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from headway.engine.events import Observer
from headway.engine.locks.system import LockSystem
from headway.engine.model import Task
from headway.engine.reading import BadInput
from headway.engine.settings import DEFAULT_HOLDOFF_NS
from headway.engine.turns.conduct import Conduct
from headway.engine.turns.spaces import Spaces
from headway.engine.turns.windows import DEFAULT_SPLIT_NS
from headway.live.desktop.foreground import Foreground
from headway.live.desktop.servers import Inherit, Servers
from headway.live.devices.inventory import Inventory
from headway.live.devices.lock_server import LockServer
from headway.live.devices.mps import MEANING, Mps
from headway.live.devices.share_server import DEFAULT_CONTROLLER, ShareServer
from headway.live.gate.arbiter import Bounds
from headway.live.gate.channel import Channel
from headway.live.identity.options import Address
from headway.live.identity.registry import Registry
from headway.live.identity.rights import Allow
from headway.live.server import spinning, startup
from headway.live.server.clients import Clients
from headway.live.server.control import Control
from headway.live.server.directory import Directory
from headway.live.server.ends import Ends
from headway.live.server.errands import Errands
from headway.live.server.listener import Listener
from headway.live.server.loop import Loop, describe_failure, log
from headway.live.server.schedulers import Schedulers, Setting
from headway.live.server.scout import Scout
from headway.live.server.specfile import SpecFile
from headway.live.server.startup import DaemonError
from headway.live.watch.accounts import Accounts
from headway.live.watch.accuracy import Accuracy
from headway.live.watch.recording import Recordings
from headway.live.wire import paths
from headway.live.wire.fence import fence

HEARTBEAT_NS = 100_000_000
FIRST_NS = 60_000_000_000
"""How long a daemon that ends with its last client waits for the first."""
MAX_LAUNCHED = 100
ARRIVALS_PART, ARRIVALS_BURST_NS, ARRIVALS_SLICE_NS = 2, 500_000_000, 1_000_000
"""Programs that come have half of the time: two thousand of them can at once, and those that are
there are decided on every millisecond meanwhile."""
ERRANDS_PART, ERRANDS_BURST_NS, ERRANDS_SLICE_NS = 8, 50_000_000, 250_000
"""People have an eighth; a decision waits for a slice at most."""


class Daemon:
    """Serves clients and control connections until it is told to stop."""

    def __init__(
        self,
        folder: Path,
        *,
        spec_file: str | None = None,
        is_spec_optional: bool = False,
        split_ns: int = DEFAULT_SPLIT_NS,
        holdoff_ns: int = DEFAULT_HOLDOFF_NS,
        bounds: Bounds | None = None,
        observers: tuple[Observer, ...] = (),
        until_idle: bool = False,
        allow: Allow | None = None,
        software_gpu: int | None = None,
        mps: bool = False,
        spin_ns: int = 0,
        spin_if_free: bool = False,
        display: str | None = None,
        metrics: Address | None = None,
        inherit: Inherit | None = None,
        locks: LockSystem | None = None,
        controller: str = DEFAULT_CONTROLLER,
        inventory: Inventory | None = None,
    ) -> None:
        self.folder = folder
        self.inventory = inventory or Inventory([])
        self._spin_ns = spin_ns
        self._spins_if_free = spin_if_free
        self._may_spin = True
        self.until_idle = until_idle
        self.software_gpu = software_gpu
        """The CPU that plays the GPU for every program that is launched; None: a real one."""
        self.mps = Mps(folder) if mps else None
        self._metrics = metrics
        self.bounds = bounds or Bounds()
        self.pages = Spaces(self._record)
        self.accounts = Accounts()
        self.accuracy = Accuracy()
        try:
            self.spec_file = SpecFile(spec_file, may_be_missing=is_spec_optional)
        except BadInput:
            raise
        except (ValueError, RecursionError) as error:
            raise DaemonError(str(error)) from None
        self.recordings = Recordings()
        self.channels: dict[int, Channel] = {}
        self.directory = Directory()
        self.clients = Clients(self)
        self.arrivals = Errands(ARRIVALS_PART, ARRIVALS_BURST_NS, ARRIVALS_SLICE_NS)
        """Programs that come."""
        self.errands = Errands(ERRANDS_PART, ERRANDS_BURST_NS, ERRANDS_SLICE_NS)
        """What people ask for."""
        self.conduct = Conduct(self.bounds.hold_ns, sends_away=True)
        own = (self.accuracy, self.pages, *observers)
        setting = Setting(
            self.spec_file,
            self.bounds,
            split_ns,
            holdoff_ns,
            software_gpu is not None,
            lambda: (*own, *self.recordings.observers()),
            self.clients.grant,
            self.clients.expel,
            self._look_at_launches,
        )
        schedulers = self.schedulers = Schedulers(setting, self.inventory, self.conduct)
        inherit = inherit or Inherit()
        self.registry = Registry(
            lambda channel: schedulers.of(channel).engine,
            lambda: schedulers.engines,
            self.spec_file.spec,
            allow,
            inherit,
            folder,
        )
        self.loop = Loop()
        self.ends = Ends(self.loop)
        self.scout = Scout(self.loop)
        self.servers = Servers(
            schedulers.first.engine,
            lambda channel: schedulers.of(channel).engine,
            self.loop,
            inherit,
            self.registry.rights,
            lambda channel, now_ns: schedulers.of(channel).arbiter.take_back(channel, now_ns),
        )
        self.control = Control(self)
        tell = self.control.callers.tell
        self.locks = None if locks is None else LockServer(locks, tell, self.ends.watch)
        self.shares = ShareServer(controller, tell, self._record, self.pages)
        self.foreground = Foreground(self, display)
        self.refused = 0
        self.restarts = 0
        """How often the engine was in doubt and replaced."""
        self.room = 0
        """Clients that there are descriptors for."""
        self._stopping = False
        self._in_doubt = False
        self._beat_ns = 0
        self._arbiter_due_ns: int | None = None
        """When the arbiter had something to do, as of the beginning of this turn."""
        self._listeners: list[Listener] = []
        self._paths: list[Path] = []
        """Sockets that programs and commands know."""
        self.since_ns = time.monotonic_ns()
        self._measured: set[Channel] = set()
        """Whose launches are about to be read."""
        self._had_launches = False
        self._launched: set[int] = set()
        """Processes that `headway run` turned into programs, as pidfds."""
        self._alive: Callable[[], None] | None = None

    def _look_at_launches(self, channel: Channel) -> None:
        """A cost model's work is an errand: what a program says must not keep others waiting."""
        if channel not in self._measured:
            self._measured.add(channel)
            self.errands.add(channel.peer, partial(self._look_at_launch, channel))

    def _look_at_launch(self, channel: Channel) -> bool:
        launch = channel.next_launch() if channel.task is not None else None
        if launch is None or channel.task is None:
            self._measured.discard(channel)
            return False
        engine = self.schedulers.of(channel).engine
        engine.measured(channel.task, launch, time.monotonic_ns())
        return True

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
            startup.lock(stack, self.folder)
            fence()  # that it is there is known before a client needs it
            self.registry.tidy()
            room = startup.make_room(metrics=self._metrics is not None)
            self.room, self.control.callers.room = room
            self.registry.rights.room = self.room
            if self.mps is not None:
                log(MEANING)
                self.mps.start()
                stack.callback(self.mps.stop)
            clients, control = paths.client_socket(self.folder), paths.control_socket(self.folder)
            newcomers, callers = self.clients.newcomers, self.control.callers
            self._listen(stack, clients, socket.SOCK_SEQPACKET, newcomers.accept, self.arrivals)
            self._listen(stack, control, socket.SOCK_STREAM, callers.accept, self.errands)
            if self._metrics is not None:
                self._serve_metrics(stack, self._metrics)
            wake = startup.catch_signals(stack)
            self.loop.watch(wake, lambda: self._woken(wake), self.stop)
            startup.spare_pauses()
            self.foreground.start()
            stack.callback(self.foreground.watcher.close)
            if ready is not None:
                ready()
            try:
                while not self._stopping:
                    self._turn()
            finally:
                for channel in list(self.channels.values()):
                    self.clients.drop(channel)
                newcomers.close()
                self.scout.close()
                self.servers.close()
                callers.close()
                self.recordings.close(self.schedulers.engines)
                self.ends.close()
                for fd in list(self._launched):
                    self._launch_over(fd)

    def stop(self) -> None:
        self._stopping = True

    def _listen(
        self,
        stack: contextlib.ExitStack,
        path: Path,
        kind: int,
        accept: Callable[[socket.socket], None],
        errands: Errands,
    ) -> None:
        try:
            listener = Listener(self.loop, path, kind, accept, errands)
        except OSError as error:
            raise DaemonError(f"{path}: {error.strerror or error}") from None
        stack.callback(listener.close)
        self._listeners.append(listener)
        self._paths.append(path)
        self._open_doors()

    def _open_doors(self) -> None:
        """Others may knock if the spec names some; who they are is asked then."""
        if self.registry.rights.serves_others:
            for path in self._paths:
                path.chmod(0o666)
            self.folder.chmod(0o711)

    def _serve_metrics(self, stack: contextlib.ExitStack, address: Address) -> None:
        from headway.live.watch.scrape import Scrape  # it takes a while to load, and few want it

        try:
            scrape = Scrape(self, address)
        except OSError as error:
            raise DaemonError(f"--metrics {address}: {error.strerror or error}") from None
        stack.callback(scrape.close)
        self._listeners.append(scrape.listener)

    def _woken(self, reader: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(reader, 256):
                if number == signal.SIGHUP:
                    self._say_spec(self.reload())
                elif number in (signal.SIGTERM, signal.SIGINT):
                    self._stopping = True

    def reload(self) -> str:
        """Read the spec file again; one with a mistake changes nothing, and is told."""
        self._take_spec(self.spec_file.reload())
        return self.spec_file.problem

    def _take_spec(self, changed: bool) -> None:
        if changed:
            self.registry.replace(self.spec_file.spec)
            with contextlib.suppress(OSError):  # somebody removed the sockets
                self._open_doors()

    def refresh_spec(self) -> None:
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
        spins = self._spin_ns and self._may_spin
        if spins and now_ns - self.clients.heard_ns < self._spin_ns:
            self._spin(now_ns)
        else:
            self._look(False, now_ns)
            due_ns = self._next_due_ns()
            self.loop.turn(None if due_ns is None else max(0.0, (due_ns - now_ns) / 1e9))
        now_ns, watcher = time.monotonic_ns(), self.foreground.watcher
        try:
            due_ns = self._arbiter_due_ns  # what is due since then is so for the next turn
            if self.servers.tick(now_ns) or (due_ns is not None and due_ns <= now_ns):
                self.schedulers.tick(now_ns)
            self.servers.refresh(now_ns)
        except Exception as error:
            self.doubt(error)
        if watcher.due_ns is not None:
            self.loop.guarded(partial(watcher.tick, now_ns), watcher.failed)
        if self.locks is not None:
            self.loop.guarded(partial(self.locks.tick, now_ns), lambda: None)
        if self.schedulers.policies_fail and not self._in_doubt:
            channels = list(self.channels.values())
            replace = partial(self.schedulers.replace_policies, channels, now_ns)
            self.loop.guarded(replace, lambda: None)
        if self._in_doubt:
            self._start_over()
        self.schedulers.tell_windows()
        self.arrivals.run(time.monotonic_ns())
        self.errands.run(time.monotonic_ns())
        self.loop.finish()
        self.recordings.send(self.schedulers.engines, now_ns)
        for listener in self._listeners:
            listener.resume(now_ns)
        if self._beats and now_ns - self._beat_ns >= HEARTBEAT_NS:
            self._beat(now_ns)
        in_use = (self.locks is not None and self.locks.busy) or self.shares.busy
        if self.until_idle and not (self.channels or self.clients.newcomers or in_use):
            self._stopping |= self._is_over(now_ns)

    def _spin(self, now_ns: int) -> None:
        """Look until there is something to do, or has not been for long."""
        self._look(True, now_ns)
        due_ns, end_ns = self._next_due_ns(), self.clients.heard_ns + self._spin_ns
        end_ns = end_ns if due_ns is None else min(end_ns, due_ns)
        try:
            while now_ns < end_ns and not self.loop.is_ready():
                if self.schedulers.poll(now_ns):
                    self.clients.heard_ns = now_ns
                    return
                now_ns = time.monotonic_ns()
        except Exception as error:
            self.doubt(error)
        self.loop.turn(0.0)

    def _look(self, on: bool, now_ns: int) -> None:
        """Programs that are looked at need not say everything by a message."""
        try:
            self.schedulers.set_polling(on, now_ns)
        except Exception as error:
            self.doubt(error)

    def _is_over(self, now_ns: int) -> bool:
        came = self._had_launches or self.clients.came > 0
        waited = came or now_ns - self.since_ns > FIRST_NS
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
            self._had_launches = True  # whether it ever came or not
            self.loop.unwatch(fd)
            self.loop.close_later(partial(os.close, fd))

    def _next_due_ns(self) -> int | None:
        self._arbiter_due_ns = self.schedulers.next_timer_ns()
        times = [self._arbiter_due_ns, self.servers.next_timer_ns()]
        times += [self.recordings.due_ns, self.foreground.watcher.due_ns]
        times += [listener.paused_until_ns for listener in self._listeners]
        times += [self.arrivals.due_ns(), self.errands.due_ns()]
        if self.locks is not None:
            times.append(self.locks.due_ns())
        if self.schedulers.is_stale or self.servers.is_stale:
            times.append(0)
        if self._beats:
            times.append(self._beat_ns + HEARTBEAT_NS)
        elif self.until_idle:
            times.append(time.monotonic_ns() + 1_000_000_000)
        return min((t for t in times if t is not None), default=None)

    @property
    def _beats(self) -> bool:
        """Whether anybody looks; an idle daemon sleeps."""
        return bool(self.channels or self.clients.newcomers) or self._alive is not None

    def _beat(self, now_ns: int) -> None:
        self._beat_ns = now_ns
        if self._spins_if_free:
            self._may_spin = spinning.is_free()
        if self._alive is not None:
            self._alive()
        self.clients.beat(now_ns)

    def doubt(self, error: Exception) -> None:
        """The engine failed in the middle of something: what it says now is not to be relied on."""
        log(f"the engine starts over: {describe_failure(error)}")
        self._in_doubt = True

    def _start_over(self) -> None:
        """Let everybody go, as a daemon that died would; they come back by themselves."""
        self._in_doubt = False
        self.restarts += 1
        for channel in list(self.channels.values()):
            channel.task = None
            self.clients.drop(channel)
        self.schedulers.start_over()
        self.servers.start_over(self.schedulers.first.engine)

    def _record(self, hook: str, *args: object, at_ns: int) -> None:
        """Something that launched programs did, for whoever watches."""
        try:
            self.schedulers.first.engine.tell(hook, *args, at_ns=at_ns)
        except Exception as error:
            self.doubt(error)

    # -- what others ask of it ---------------------------------------------------------------

    def show(self, tasks: Collection[Task]) -> None:
        """A person looks at these now."""
        now_ns = time.monotonic_ns()
        try:
            self.schedulers.show(tasks, now_ns)
        except Exception as error:
            self.doubt(error)
