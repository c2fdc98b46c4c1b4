"""Control connections: one JSON object a line in, one a line out.

A caller is read and answered as errands are done: line by line, in turn with the other callers. An
answer that takes long is made in steps. Nothing more is read of a caller who has an answer to come.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from headway.live.gate.channel import Peer, peer_of
from headway.live.server.loop import READ, WRITE, describe_failure, log

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

MAX_LINE = 16384
"""Many times what any request needs; reading so much takes a tenth of a millisecond."""
MAX_HEARD = 65536
"""Who says so much without an end of the line is not heard any more."""
MOST_CALLERS = 1024

Answer = dict[str, Any] | bytes
"""What is said to a caller; bytes are the text of it, with the end of the line."""
Answering = Generator[None, None, Answer]
"""An answer that is made in steps."""
T = TypeVar("T")


class Caller:
    """One control connection: what it said and what it has not read yet."""

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.socket = connection
        self.peer = peer
        self.heard = bytearray()
        self.unread = memoryview(b"")
        self.answering: Answering | None = None
        self.records = False
        """Events go to it, until it closes its side."""
        self.keeps = False
        """It holds or waits for a token, or has programs share the GPU, which its end would end."""

    @property
    def process(self) -> tuple[int, int]:
        return self.peer.uid, self.peer.pid


class Callers:
    """All control connections."""

    def __init__(
        self,
        daemon: Daemon,
        handle: Callable[[dict[str, Any], Caller], Answer | Answering],
    ) -> None:
        """`handle` answers a request; a ValueError of it is what the caller hears instead."""
        self._daemon = daemon
        self._handle = handle
        self._known: dict[Caller, None] = {}
        """Who said something last stands last."""
        self._processes: Counter[tuple[int, int]] = Counter()
        self.room = 64

    def accept(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        if not self._daemon.registry.rights.may_connect(peer):
            self._daemon.refused += 1
            connection.close()
            return
        while len(self._known) >= min(self.room, MOST_CALLERS):
            self._close(self._spare())
        caller = Caller(connection, peer)
        self._known[caller] = None
        self._processes[caller.process] += 1
        ready, gone = partial(self._ready, caller), partial(self._close, caller)
        self._daemon.loop.watch(connection.fileno(), ready, gone)

    def _spare(self) -> Caller:
        """Who makes room: of the user with the most connections, and of that user's process with
        the most, the one that was silent for longest; those that record are silent as long as they
        do."""
        users: Counter[int] = Counter()
        for (uid, _), number in self._processes.items():
            users[uid] += number
        ((user, _),) = users.most_common(1)
        most = max((p for p in self._processes if p[0] == user), key=self._processes.__getitem__)
        own = [caller for caller in self._known if caller.process == most]
        return next((c for c in own if not (c.records or c.keeps)), own[0])

    def close(self) -> None:
        """What was answered goes out as far as it can, and that is the end."""
        for caller in list(self._known):
            self._close(caller)

    def _close(self, caller: Caller) -> None:
        if caller not in self._known:
            return
        del self._known[caller]
        self._processes[caller.process] -= 1
        if not self._processes[caller.process]:
            del self._processes[caller.process]
        self._daemon.recordings.end(caller, time.monotonic_ns())
        if self._daemon.locks is not None:
            self._daemon.locks.gone(caller)
        self._daemon.shares.gone(caller)
        self._daemon.loop.unwatch(caller.socket.fileno())
        self._daemon.loop.close_later(caller.socket.close)

    # -- its turn ----------------------------------------------------------------------------

    def _ready(self, caller: Caller) -> None:
        """There is something to read, or room to write: that waits until it is its turn."""
        if caller in self._known:
            self._daemon.loop.want(caller.socket.fileno(), 0)
            self._daemon.errands.add(caller.peer, partial(self._serve, caller))

    def _serve(self, caller: Caller) -> bool:
        """Do one thing for a caller; True if there is more."""
        if caller not in self._known:
            return False
        try:
            return self._step(caller)
        except OSError:
            self._close(caller)
        except Exception as error:
            log(describe_failure(error))
            self._close(caller)
        return False

    def _step(self, caller: Caller) -> bool:
        if caller.unread:
            self._send(caller)
        elif caller.answering is not None:
            self._go_on(caller)
        elif b"\n" not in caller.heard and not self._read(caller):
            return False
        else:
            self._answer(caller)
        if caller.unread:  # there was no room for all of it
            self._daemon.loop.want(caller.socket.fileno(), WRITE)
            return False
        if caller.answering is not None or b"\n" in caller.heard:
            return True
        self._daemon.loop.want(caller.socket.fileno(), READ)
        return False

    def _read(self, caller: Caller) -> bool:
        """Hear more; False if there is no more of this caller, or not yet."""
        try:
            data = caller.socket.recv(MAX_LINE)
        except BlockingIOError:
            self._daemon.loop.want(caller.socket.fileno(), READ)
            return False
        caller.heard += data
        if not data:
            self._close(caller)
            return False
        self._known.pop(caller)
        self._known[caller] = None
        return True

    def _answer(self, caller: Caller) -> None:
        """Answer the first line, if there is a whole one."""
        end = caller.heard.find(b"\n")
        if end < 0:
            if len(caller.heard) > MAX_HEARD:
                raise ConnectionAbortedError
            return
        line = bytes(caller.heard[:end])
        del caller.heard[: end + 1]
        answer = _tried(lambda: self._handle(_request(line), caller))
        if isinstance(answer, Generator):
            caller.answering = answer
        else:
            self._say(caller, answer)

    def _go_on(self, caller: Caller) -> None:
        answering, caller.answering = caller.answering, None
        assert answering is not None
        answer = _tried(lambda: _next(answering))
        if answer is None:
            caller.answering = answering
        else:
            self._say(caller, answer)

    def _say(self, caller: Caller, answer: Answer) -> None:
        if not isinstance(answer, bytes):
            answer = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        caller.unread = memoryview(answer)
        self._send(caller)

    def tell(self, caller: Caller, words: dict[str, Any]) -> None:
        """Say something that was not asked for in this instant, such as a lock that is granted."""
        if caller not in self._known:
            return
        line = json.dumps(words, separators=(",", ":")).encode() + b"\n"
        caller.unread = memoryview(bytes(caller.unread) + line)
        with contextlib.suppress(OSError):  # its end is noticed by the loop
            self._send(caller)
        if caller.unread:
            self._daemon.loop.want(caller.socket.fileno(), WRITE)

    def _send(self, caller: Caller) -> None:
        with contextlib.suppress(BlockingIOError):
            caller.unread = caller.unread[caller.socket.send(caller.unread) :]


def _request(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE:
        raise ValueError(f"expected a line of at most {MAX_LINE} bytes, found {len(line)}")
    request = json.loads(line)
    if not isinstance(request, dict):
        raise ValueError("expected a JSON object")
    return request


def _next(answering: Answering) -> Answer | None:
    """The answer, once it is made."""
    try:
        next(answering)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    return None


def _tried(work: Callable[[], T]) -> T | dict[str, Any]:
    """What comes of it, or what went wrong; only a mistake of ours is logged."""
    try:
        return work()
    except (ValueError, RecursionError) as error:
        return {"ok": False, "error": " ".join(str(error).split())[:500]}
    except Exception as error:
        log(describe_failure(error))
        words = "the daemon could not do that; its log says why"
        return {"ok": False, "error": words, "failed": True}
