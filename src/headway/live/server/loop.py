"""The daemon's loop over descriptors. A handler that fails costs its own connection, nobody else's.

Descriptors are closed only after the events of a turn were handled: their numbers are used again at
once, and an event that was meant for the old owner must not reach the new one.
"""

from __future__ import annotations

import contextlib
import select
import sys
import traceback
from collections.abc import Callable

FD_SETSIZE = 1024
FINE_S = 0.1
READ = select.EPOLLIN
WRITE = select.EPOLLOUT

Handler = Callable[[], None]


def log(text: str) -> None:
    """One line to stderr, if that still goes anywhere."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"headway daemon: {' '.join(text.split())}\n")
        sys.stderr.flush()


def describe_failure(error: Exception) -> str:
    """Where and what, in one line: this is a bug, and its report should be of use."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.name}, line {frame.lineno})"


class Loop:
    """Calls a handler for each descriptor that is ready."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[Handler, Handler]] = {}
        self._soon: list[tuple[Handler, Handler]] = []
        self._closing: list[Callable[[], None]] = []

    def watch(self, fd: int, handler: Handler, failed: Handler) -> None:
        """`failed` is called when the handler raises: it should give the connection up."""
        self._epoll.register(fd, READ)
        self._handlers[fd] = (handler, failed)

    def want(self, fd: int, events: int) -> None:
        """Ask for other events than readable."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def soon(self, handler: Handler, failed: Handler) -> None:
        """Go on with this after the others had their turn."""
        self._soon.append((handler, failed))

    def close_later(self, close: Callable[[], None]) -> None:
        self._closing.append(close)

    def is_ready(self) -> bool:
        """Whether a turn would find something to do."""
        return bool(self._soon) or bool(self._epoll.poll(0))

    def turn(self, timeout_s: float | None) -> None:
        """Wait for events, or until the time is over, and handle them."""
        if self._soon:
            timeout_s = 0
        calls = self._epoll.poll(0)
        if not calls and timeout_s != 0:
            if timeout_s is not None and timeout_s < FINE_S and self._epoll.fileno() < FD_SETSIZE:
                # epoll counts in milliseconds and rounds up; budgets and hold-offs are finer.
                select.select([self._epoll], [], [], timeout_s)
                timeout_s = 0
            calls = self._epoll.poll(timeout_s)
        soon, self._soon = self._soon, []
        for fd, _ in calls:
            pair = self._handlers.get(fd)
            if pair is not None:
                self.guarded(*pair)
        for pair in soon:
            self.guarded(*pair)
        self.finish()

    def guarded(self, handler: Handler, failed: Handler) -> None:
        try:
            handler()
        except Exception as error:
            log(describe_failure(error))
            with contextlib.suppress(Exception):
                failed()

    def finish(self) -> None:
        """Close what was given up."""
        closing, self._closing = self._closing, []
        for close in closing:
            with contextlib.suppress(OSError):
                close()

    def close(self) -> None:
        self.finish()
        self._epoll.close()
