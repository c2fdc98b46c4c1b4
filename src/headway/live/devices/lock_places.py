"""Places on GPUs that programs keep from their start to their end (`headway run --gpu auto`).

A launcher asks for a token as any job does, has the daemon keep the token, and becomes the program.
From then on the token lasts as long as the process. With the place's key, which stands in the
program's environment, the interposer attaches a connection that asks for units.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from headway.engine.locks.jobs import LockError
from headway.live.server.callers import Caller

Outlive = Callable[[int, Callable[[], None]], Callable[[], None]]
"""Calls a function when a process has ended (`Ends.watch`)."""


class Held(Protocol):
    """A session, as far as places know it."""

    caller: Caller


S = TypeVar("S", bound=Held)


@dataclass(slots=True, eq=False)
class _Place(Generic[S]):
    session: S
    uid: int
    stop: Callable[[], None]
    attached: Caller | None = None


class Places(Generic[S]):
    """All places that are kept, by their keys."""

    def __init__(self, outlive: Outlive, ended: Callable[[S], None]) -> None:
        """`ended` is called with the session of a process that has ended."""
        self._outlive = outlive
        self._ended = ended
        self._known: dict[str, _Place[S]] = {}
        self._keys: dict[S, str] = {}

    def keep(self, session: S) -> str:
        """The session lasts as long as its caller's process; the key of its place."""
        if self.has(session):
            raise LockError("keep: the place is kept already")
        key = secrets.token_hex(16)
        peer = session.caller.peer
        try:
            stop = self._outlive(peer.pid, partial(self._over, key))
        except OSError as error:
            raise LockError(f"keep: process {peer.pid}: {error.strerror}") from None
        self._known[key] = _Place(session, peer.uid, stop)
        self._keys[session] = key
        return key

    def has(self, session: S) -> bool:
        """Whether the session is kept."""
        return session in self._keys

    def attach(self, key: object, caller: Caller) -> tuple[S, Caller | None]:
        """The session whose units this connection asks for from now on, and the connection that
        the same process had before it became another program."""
        place = self._known.get(key) if isinstance(key, str) else None
        if place is None or place.uid != caller.peer.uid:
            raise LockError("attach: there is no such place; its program has ended")
        before = place.attached
        if before is not None and before.peer.pid != caller.peer.pid:
            raise LockError("attach: another process of this program passes the units already")
        place.attached = place.session.caller = caller
        return place.session, before

    def detach(self, session: S, caller: Caller) -> None:
        """A connection is closed; another one may be attached."""
        place = self._known[self._keys[session]]
        if place.attached is caller:
            place.attached = None

    def drop(self, session: S) -> None:
        """The session is over."""
        key = self._keys.pop(session, None)
        if key is not None:
            self._known.pop(key).stop()

    def _over(self, key: str) -> None:
        place = self._known.get(key)
        if place is not None:
            self._ended(place.session)
