"""Ends of processes that something lasts as long as."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from headway.live.server.loop import Loop


class Ends:
    """Calls a function when a process has ended, which the kernel tells by a descriptor."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._watched: dict[int, Callable[[], None]] = {}

    def watch(self, pid: int, then: Callable[[], None]) -> Callable[[], None]:
        """Call `then` at the end of this process; the answer stops watching. OSError: the process
        has ended already, or there is no descriptor left."""
        fd = os.pidfd_open(pid)
        self._watched[fd] = then
        ended = partial(self._ended, fd)
        self._loop.watch(fd, ended, ended)
        return partial(self._forget, fd)

    def close(self) -> None:
        """Stop watching everybody."""
        for fd in list(self._watched):
            self._forget(fd)

    def _ended(self, fd: int) -> None:
        then = self._watched.get(fd)
        self._forget(fd)
        if then is not None:
            then()

    def _forget(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._loop.unwatch(fd)
            self._loop.close_later(partial(os.close, fd))
