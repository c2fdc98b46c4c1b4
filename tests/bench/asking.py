"""A daemon that is not served, and those who knock at its doors, in one process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Generator
from typing import Any

from headway.live.gate.channel import Peer
from headway.live.server.callers import Caller
from headway.live.server.daemon import Daemon
from headway.live.server.report import Report


def come(daemon: Daemon) -> socket.socket:
    """A program connects; its end of the connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    daemon.clients.newcomers.accept(ours)
    return theirs


def status_of(daemon: Daemon) -> dict[str, Any]:
    """What `headway status` would be told."""
    status: dict[str, Any] = json.loads(finish(Report(daemon).telling()))
    return status


def ask(daemon: Daemon, peer: Peer | None = None, **request: object) -> dict[str, Any]:
    """The answer to a request; what is refused raises."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        caller = Caller(ours, peer or Peer(os.getpid(), os.geteuid(), os.getegid()))
        answer = daemon.control._handle(dict(request), caller)
        if isinstance(answer, Generator):
            answer = finish(answer)
    found: dict[str, Any] = json.loads(answer) if isinstance(answer, bytes) else answer
    return found


def finish(steps: Generator[None, None, Any]) -> Any:
    """What comes of it in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value
