"""The connection of one token with the daemon's lock server: a JSON object a line each way."""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from typing import Any

from headway.live.api import client
from headway.live.wire import paths

ANSWER_S = 5.0
"""How long the daemon may take to answer what needs no waiting."""


class TokenTimeout(TimeoutError):
    """The token or the unit did not come in time; nothing is held for it."""


class LockMisuse(RuntimeError):
    """A call that the rules of tokens and units forbid; nothing changed."""


class Gone(ConnectionError):
    """The daemon is gone."""


_said: set[str] = set()
_saying = threading.Lock()


def say_once(what: str, why: str) -> None:
    """One line on standard error for each `what`."""
    with _saying:
        if what not in _said:
            _said.add(what)
            sys.stderr.write(f"headway: {what}: {why}\n")


class Line:
    """One control connection."""

    def __init__(self) -> None:
        self._socket: socket.socket = client.connect(paths.runtime_folder(), ANSWER_S)
        self._socket.setblocking(False)
        self._heard = bytearray()

    def close(self) -> None:
        self._socket.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer; grants that come before are dropped."""
        try:
            self._socket.sendall(json.dumps({"do": "lock", **request}).encode() + b"\n")
        except OSError as error:
            raise Gone(str(error)) from None
        while True:
            answer = self.read(ANSWER_S)
            if answer is None:
                raise Gone("the daemon does not answer")
            if "granted" not in answer:
                break
        if not answer.get("ok"):
            raise LockMisuse(str(answer.get("error")))
        return answer

    def read(self, timeout_s: float | None) -> dict[str, Any] | None:
        """The next line; None if none came in time."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            left_s = None if end_s is None else end_s - time.monotonic()
            if left_s is not None and left_s < 0:
                return None
            ready, _, _ = select.select([self._socket], [], [], left_s)
            if not ready:
                return None
            try:
                part = self._socket.recv(65536)
            except OSError as error:
                raise Gone(str(error)) from None
            if not part:
                raise Gone("the daemon is gone")
            self._heard += part
        line, _, rest = bytes(self._heard).partition(b"\n")
        self._heard = bytearray(rest)
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {}
