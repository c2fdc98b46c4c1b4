"""Follows the active window of a display for as long as there is one, and comes back with it.

Nothing here waits: a server that is silent, talks nonsense or talks too much costs its connection
and is tried again later, less and less often. While nothing changes there is nothing to do.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

from headway.live.desktop.x11 import wire
from headway.live.desktop.x11.names import Display, cookie_for
from headway.live.desktop.x11.session import Owner, Session
from headway.live.desktop.x11.wire import Broken
from headway.live.server.loop import Loop, log

ANSWER_NS = 10_000_000_000
"""A server that owes an answer for this long is given up."""
FIRST_PAUSE_NS, LAST_PAUSE_NS = 250_000_000, 5_000_000_000
"""Before a server is tried again; doubled each time."""
STEADY_NS = 10_000_000_000
"""A connection that lasted this long was a good one: what comes after it is news."""
LOOK_NS = 5_000_000
"""Between two looks at the active window, however often it changes."""
NOT_YET = "it has not answered yet"
CHUNK = 16_384
MAX_BYTES_A_SECOND = 1 << 20
"""More than thirty thousand events a second: nobody needs that, and the daemon has better to do."""


def connect(display: Display) -> socket.socket:
    """OSError if nobody listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        connection.connect(str(display.socket))
    except OSError:
        connection.close()
        raise
    return connection


class Watcher:
    """Tells `found` whose window is active, and None when that is no longer known."""

    def __init__(
        self,
        loop: Loop,
        found: Callable[[Owner | None], None],
        *,
        connect: Callable[[Display], socket.socket] = connect,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._loop = loop
        self._found = found
        self._connect = connect
        self._clock = clock
        self.display: Display | None = None
        self.problem = ""
        """Why the display is not followed at the moment; empty: it is, or there is none."""
        self.due_ns: int | None = None
        """When `tick` has something to do."""
        self._socket: socket.socket | None = None
        self._session: Session | None = None
        self._pause_ns = FIRST_PAUSE_NS
        self._told = ""
        self._began_ns = self._asked_ns = self._looked_ns = self._second_ns = 0
        self._bytes = 0

    @property
    def follows(self) -> bool:
        """Whether a change of the active window would be heard of now."""
        return self._session is not None and self._session.follows

    def follow(self, display: Display) -> None:
        """This display instead of the one before, from the next `tick` on."""
        self.close()
        self.display = display
        self.problem, self._told = NOT_YET, ""
        self._pause_ns = FIRST_PAUSE_NS
        self.due_ns = self._clock()

    def tick(self, now_ns: int) -> None:
        """The timer: connect, look, or give up."""
        if self.due_ns is None or now_ns < self.due_ns:
            return
        if self._session is None:
            self._begin(now_ns)
        elif self._session.waits:
            self._end("it does not answer")
        else:
            self._looked_ns = now_ns
            self._say(self._session.look())

    def failed(self) -> None:
        """A mistake of the daemon's own; the loop has told what it was."""
        self._end("the daemon could not handle what it said")

    def close(self) -> None:
        """Follow nothing; nobody is told."""
        self.due_ns = None
        self._session = None
        if self._socket is not None:
            self._loop.unwatch(self._socket.fileno())
            self._loop.close_later(self._socket.close)
            self._socket = None

    def _begin(self, now_ns: int) -> None:
        assert self.display is not None
        self._began_ns = now_ns
        try:
            self._socket = self._connect(self.display)
        except OSError as error:
            self._end(f"no X server answers ({error.strerror or error})")
            return
        self._session = Session(self.display.screen, self._found)
        self._loop.watch(self._socket.fileno(), self._readable, self.failed)
        self._say(wire.setup(*cookie_for(self.display)))

    def _readable(self) -> None:
        if self._socket is None or self._session is None:
            return
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end("it closed the connection")
            return
        try:
            self._count(len(data))
            self._say(self._session.hear(data))
        except Broken as error:
            self._end(str(error))

    def _count(self, size: int) -> None:
        now_ns = self._clock()
        if now_ns - self._second_ns >= 1_000_000_000:
            self._second_ns, self._bytes = now_ns, 0
        self._bytes += size
        if self._bytes > MAX_BYTES_A_SECOND:
            raise Broken("it says too much")

    def _say(self, data: bytes) -> None:
        """Little is said, and only when all was answered: a server with no room for it is stuck."""
        if data and self._socket is not None:
            self._asked_ns = self._clock()
            sent = 0
            with contextlib.suppress(OSError):
                sent = self._socket.send(data)
            if sent != len(data):
                self._end("it does not listen")
                return
        self._plan()

    def _plan(self) -> None:
        """What the timer is for now."""
        session = self._session
        if session is None:
            return
        if session.follows:
            self.problem = ""
        if session.waits:
            self.due_ns = self._asked_ns + ANSWER_NS
        else:
            self.due_ns = self._looked_ns + LOOK_NS if session.changed else None

    def _end(self, problem: str) -> None:
        """Try again later. What goes wrong again and again is told once."""
        assert self.display is not None
        now_ns = self._clock()
        had = self._session is not None
        if self.follows and now_ns - self._began_ns >= STEADY_NS:
            self._pause_ns, self._told = FIRST_PAUSE_NS, ""
        self.close()
        self.problem = problem
        if problem != self._told:
            log(f"display {self.display.name}: {problem}; it is tried again now and then")
            self._told = problem
        self.due_ns = now_ns + self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, LAST_PAUSE_NS)
        if had:
            self._found(None)
