"""Servers that work on their clients' behalf: who they are, and who waits for them (PIX/RIX §6).

A client enters its server before it asks for something and leaves when that is answered; in between
the server inherits the client's priority and reserve. A window server is found by the display of
the program that uses it, and its clients enter and leave around each swap. Two kinds:

- One that draws on the GPU itself is a client of ours too: a task, matched by its process. Programs
  end their group before they ask, since the server needs the GPU to answer.
- One that works on the CPU alone is no task on the GPU. Programs keep their group open until it has
  answered, so what it does for them is charged to them, and comes in their order.

What a client says can only concern requests of its own: it has one at a time, to a server that it
may name, and one that nobody answers ends by itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from headway.engine.inheritance import Request
from headway.engine.model import BACKGROUND_LEVEL, Task
from headway.engine.priorities import Fixed
from headway.live.desktop.niceness import Niceness
from headway.live.desktop.xserver import listeners_of, name_of
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.rights import Rights
from headway.live.server.loop import Loop
from headway.live.wire.protocol import AWAIT, ENTER, TELL, YIELD, Message

if TYPE_CHECKING:
    from headway.engine.core import Engine

REQUEST_NS = 1_000_000_000
"""A request that is not answered by then is forgotten: its client was stopped, or lies."""
A_TURN = 64
"""Pages that are written in one go."""
MOST_TASKS = 8
"""Contexts of one server that inherit; more would make a request dear."""


@dataclass(frozen=True, slots=True)
class Inherit:
    """What a server inherits from its clients."""

    pix: bool = True
    """Their priority."""
    rix: bool = True
    """Their reserve; and what a server on the CPU does for them is charged to them."""
    nice: bool = False
    """A window server's CPU priority follows what it inherits, where that is permitted."""
    watch: bool = True
    """Whether window servers are looked for at all."""

    def __str__(self) -> str:
        return ",".join(name for name in ("pix", "rix") if getattr(self, name)) or "none"


class WindowServer:
    """The process behind a display."""

    def __init__(self, display: str, peer: Peer, pidfd: int) -> None:
        self.display = display
        self.peer = peer
        self.name = name_of(peer.pid)
        self.pidfd = pidfd
        self.niceness = Niceness(peer.pid, pidfd)
        self.clients: set[Channel] = set()
        self.asking: set[Channel] = set()
        """Those of them that wait for an answer."""
        self.task: Task | None = None
        """Its place in the engine while it is not on the GPU: what it inherits shows there."""


@dataclass(slots=True)
class _Asking:
    """A channel's request, and the tasks of the server that it goes to."""

    since_ns: int
    server: WindowServer | None
    requests: list[Request] = field(default_factory=list)


class Servers:
    """All servers of a daemon's clients."""

    def __init__(
        self,
        engine: Engine,
        engine_of: Callable[[Channel], Engine],
        loop: Loop,
        inherit: Inherit,
        rights: Rights,
        take_back: Callable[[Channel, int], None],
    ) -> None:
        """`engine` is that of the first GPU, on which window servers draw; `engine_of` that of a
        connection's GPU."""
        self.engine = engine
        self._engine_of = engine_of
        self.inherit = inherit
        self._loop = loop
        self._rights = rights
        self._take_back = take_back
        self.known: dict[tuple[str, int], WindowServer] = {}
        """By display and process: more than one may listen there, each at an address of its own."""
        self._of_process: dict[int, list[WindowServer]] = {}
        self._crowded = False
        """There are programs of more than one process."""
        self._channels: dict[int, dict[Channel, None]] = {}
        """By process."""
        self._used: dict[Channel, WindowServer] = {}
        self._asking: dict[Channel, _Asking] = {}
        self._stale: dict[Channel, None] = {}
        """Clients of window servers whose pages may be out of date."""
        self._ended = False

    # -- who is there ------------------------------------------------------------------------

    def arrived(self, channel: Channel) -> None:
        """A channel has a task now: see whether it is a window server."""
        self._channels.setdefault(channel.peer.pid, {})[channel] = None
        self._processes_changed(channel.peer.pid)

    def shows_on(self, channel: Channel, display: str) -> None:
        """A channel's display is known: find its window server."""
        if not self.inherit.watch or channel.task is None:
            return
        server = self._find(display, channel.peer) if display else None
        if server is not None and server.peer.pid != channel.peer.pid:
            server.clients.add(channel)
            self._used[channel] = server
            self._stale[channel] = None

    def gone(self, channel: Channel, now_ns: int) -> None:
        """Its task has left the engine, and its requests with it."""
        mine = self._channels.get(channel.peer.pid, {})
        mine.pop(channel, None)
        if not mine:
            self._channels.pop(channel.peer.pid, None)
        self._processes_changed(channel.peer.pid)
        self._stale.pop(channel, None)
        asking = self._asking.pop(channel, None)
        if asking is not None and asking.server is not None:
            asking.server.asking.discard(channel)
            self._follow(asking.server)
        server = self._used.pop(channel, None)
        if server is not None:
            server.clients.discard(channel)
            if not server.clients:
                self._forget(server, now_ns)

    def _processes_changed(self, pid: int) -> None:
        """One came or went. That concerns the clients of a window server whose contexts come and
        go, and, where a server's CPU priority matters, everybody if there is a second program
        now, or no longer."""
        for server in self._of_process.get(pid, ()):
            self._stale.update(dict.fromkeys(server.clients))
        if self.inherit.nice and self._crowded != (len(self._channels) > 1):
            self._crowded = not self._crowded
            self._stale.update(dict.fromkeys(self._used))

    def _find(self, display: str, client: Peer) -> WindowServer | None:
        """The server of a client's display; it is remembered while it lives and somebody uses it. A
        process of some other user that listens there is not the client's server."""
        for server in self.known.values():
            if server.display == display and self._rights.may_serve(server.peer, client):
                return server
        peer = next((p for p in listeners_of(display) if self._rights.may_serve(p, client)), None)
        if peer is None:
            return None
        try:
            pidfd = os.pidfd_open(peer.pid)
        except OSError:
            return None
        server = self.known[display, peer.pid] = WindowServer(display, peer, pidfd)
        self._of_process.setdefault(peer.pid, []).append(server)
        over = partial(self._server_over, server)
        self._loop.watch(pidfd, over, over)
        return server

    def _server_over(self, server: WindowServer) -> None:
        """It died: whoever waits for it waits for nobody."""
        now_ns = time.monotonic_ns()
        for channel in server.clients:
            self._used.pop(channel, None)
            self.left(channel, now_ns)
            if channel.pages is not None:
                channel.pages.set_server(0)
        server.clients.clear()
        self._ended = True
        self._forget(server, now_ns)

    def _forget(self, server: WindowServer, now_ns: int) -> None:
        key = server.display, server.peer.pid
        if self.known.get(key) is not server:
            return
        del self.known[key]
        same = self._of_process[server.peer.pid]
        same.remove(server)
        if not same:
            del self._of_process[server.peer.pid]
        server.niceness.close()
        if server.task is not None:
            self.engine.remove_task(server.task, now_ns)
            server.task = None
        self._loop.unwatch(server.pidfd)
        self._loop.close_later(partial(os.close, server.pidfd))

    def close(self) -> None:
        """The daemon ends: every server is left as it was found."""
        for server in list(self.known.values()):
            self._forget(server, time.monotonic_ns())

    def start_over(self, engine: Engine) -> None:
        """Another engine, which knows nobody yet; the old one is not to be asked any more."""
        self.engine = engine
        for known in (self._asking, self._used, self._channels, self._stale):
            known.clear()
        self._crowded = False
        for server in list(self.known.values()):
            server.task = None
            self._forget(server, time.monotonic_ns())

    # -- what clients do around a swap -------------------------------------------------------

    def refresh(self, now_ns: int) -> None:
        """Tell clients what their swaps mean to others, where that may have changed: some at a
        time, if they are many."""
        for _ in range(min(A_TURN, len(self._stale))):
            channel = next(iter(self._stale))
            del self._stale[channel]
            server = self._used.get(channel)
            if server is None:
                continue
            for context in self._channels.get(server.peer.pid, ()):
                self._serves(context, now_ns)
            if channel.pages is not None:
                channel.pages.set_server(self._wants(channel, server))

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` has something to do."""
        return bool(self._stale)

    def _serves(self, channel: Channel, now_ns: int) -> None:
        """It has clients: from now on it asks for every group, and says when each is done."""
        if not channel.serves:
            channel.serves = True
            self._take_back(channel, now_ns)

    def changed(self, channels: Iterable[Channel]) -> None:
        """These have another reserve or priority."""
        self._stale.update(dict.fromkeys(channels))

    def _wants(self, channel: Channel, server: WindowServer) -> int:
        task = channel.task
        if task is None:
            return 0
        if server.peer.pid in self._channels:
            return AWAIT | TELL | YIELD
        charged = 0  # without a budget there is nothing to charge, and it waits for nothing
        if task.reserve is not None:
            charged = AWAIT if self.inherit.rix else YIELD
        nice = len(self._channels) > 1 and self.inherit.nice and self.inherit.pix
        return charged | (AWAIT | TELL if nice else 0)

    # -- requests ----------------------------------------------------------------------------

    def heard(self, channel: Channel, message: Message, now_ns: int) -> None:
        """ENTER or LEAVE of a channel that has a task."""
        self.left(channel, now_ns)
        if message.type == ENTER:
            self.entered(channel, message.units, now_ns)

    def entered(self, channel: Channel, pid: int, now_ns: int) -> None:
        """The client asks the process `pid` for something, or (0) the server of its display. One
        that nobody knows is nobody: servers come and go."""
        client = channel.task
        server = self._used.get(channel) if not pid or pid == self._window_pid(channel) else None
        assert client is not None
        asking = _Asking(now_ns, server)
        for task in self._tasks_of(channel, server, pid, now_ns):
            if task.device != client.device:
                continue  # nobody waits there for the client's GPU
            with contextlib.suppress(ValueError):  # it would wait for itself
                asking.requests.append(self._engine_of(channel).enter(client, task, now_ns))
        if asking.requests:
            self._asking[channel] = asking
            if server is not None:
                server.asking.add(channel)
                self._follow(server)

    def left(self, channel: Channel, now_ns: int) -> None:
        """It was answered."""
        asking = self._asking.pop(channel, None)
        if asking is None:
            return
        for request in asking.requests:
            self._engine_of(channel).leave(request, now_ns)
        if asking.server is not None:
            asking.server.asking.discard(channel)
            self._follow(asking.server)

    def _window_pid(self, channel: Channel) -> int:
        server = self._used.get(channel)
        return server.peer.pid if server is not None else 0

    def _tasks_of(
        self, channel: Channel, server: WindowServer | None, pid: int, now_ns: int
    ) -> list[Task]:
        """The contexts of the server; of a window server without any, its place in the engine."""
        if server is not None:
            pid = server.peer.pid
        others = [c for c in self._channels.get(pid, ()) if c.peer.pid != channel.peer.pid]
        if server is None:
            others = [c for c in others if self._rights.may_manage(channel.peer, c.peer.uid)]
        for context in others[:MOST_TASKS]:
            self._serves(context, now_ns)
        tasks = [c.task for c in others[:MOST_TASKS] if c.task is not None]
        if not tasks and server is not None:
            tasks = [self._place_of(server, now_ns)]
        return tasks

    def _place_of(self, server: WindowServer, now_ns: int) -> Task:
        if server.task is None:
            name = f"{server.name}.{server.peer.pid}"
            if name in self.engine.tasks:
                name = f"{name}.cpu"
            rank = Fixed(BACKGROUND_LEVEL)  # it has none of its own: what it serves is what counts
            server.task, _ = self.engine.add_task(
                name, now_ns, priority=rank, pix=self.inherit.pix, rix=self.inherit.rix
            )
        return server.task

    def _follow(self, server: WindowServer) -> None:
        """Its CPU priority is that of whom it works for."""
        if not self.inherit.nice or not self._rights.may_be_nice(server.peer):
            return
        tasks = {r.server for c in server.asking for r in self._requests(c)}
        inherited = [t.priority for t in tasks if t.alive and t.rank != t.base_rank]
        server.niceness.follow(max(inherited, default=None))

    def _requests(self, channel: Channel) -> list[Request]:
        asking = self._asking.get(channel)
        return asking.requests if asking is not None else []

    def tick(self, now_ns: int) -> bool:
        """Forget requests that nobody answers; True if some ended, here or by a server's death."""
        over = list(takewhile(lambda c: self._is_over(c, now_ns), self._asking))
        for channel in over:
            self.left(channel, now_ns)
        ended, self._ended = self._ended or bool(over), False
        return ended

    def _is_over(self, channel: Channel, now_ns: int) -> bool:
        return now_ns - self._asking[channel].since_ns >= REQUEST_NS

    def next_timer_ns(self) -> int | None:
        """Requests are kept in the order in which they came."""
        first = next(iter(self._asking.values()), None)
        return None if first is None else first.since_ns + REQUEST_NS
