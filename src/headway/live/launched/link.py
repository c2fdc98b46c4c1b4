"""A launcher's connection with the daemon: requests in order, their answers, and shares that the
daemon tells in between."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

from headway.live.api import client

Words = dict[str, Any]
ANSWER_S = 5.0
MOST_UNANSWERED = 8
"""So many messages are sent ahead of their answers: a daemon that is busy hears no more."""


class Link:
    """One connection. Every method may raise client.NoDaemon: then the connection is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = client.connect(folder)
        self._heard = bytearray()
        self._unanswered = 0
        self._events: list[Words] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def has_room(self) -> bool:
        """Whether a message may be sent."""
        return self._unanswered < MOST_UNANSWERED

    def ask(self, **request: Any) -> Words:
        """A request and its answer; client.Refused says why it cannot be done."""
        self.send(**request)
        self._socket.settimeout(ANSWER_S)
        while self._unanswered > 1:
            self._answer(self._line())
        while True:
            words = self._line()
            if "event" in words:
                self._events.append(words)
                continue
            self._unanswered -= 1
            if not words.get("ok"):
                raise client.Refused(str(words.get("error")))
            return words

    def send(self, **request: Any) -> None:
        """A request whose answer does not matter."""
        self._socket.settimeout(ANSWER_S)
        try:
            self._socket.sendall(json.dumps({"do": "share", **request}).encode() + b"\n")
        except OSError as error:
            raise client.NoDaemon(f"{self._folder}: {error}") from None
        self._unanswered += 1

    def events(self) -> list[Words]:
        """What the daemon has told since the last time. Waits for nothing."""
        self._socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._answer(self._line())
        told, self._events = self._events, []
        return told

    def _answer(self, words: Words) -> None:
        if "event" in words:
            self._events.append(words)
        else:
            self._unanswered -= 1

    def _line(self) -> Words:
        while b"\n" not in self._heard:
            try:
                data = self._socket.recv(65536)
            except (BlockingIOError, InterruptedError):
                raise BlockingIOError from None
            except (OSError, socket.timeout) as error:  # noqa: UP041
                raise client.NoDaemon(f"{self._folder}: {error}") from None
            if not data:
                raise client.NoDaemon(f"{self._folder}: the daemon closed the connection")
            self._heard += data
        line, _, rest = self._heard.partition(b"\n")
        self._heard = bytearray(rest)
        try:
            words = json.loads(line)
        except (ValueError, RecursionError):
            words = None
        if not isinstance(words, dict):
            raise client.NoDaemon(f"{self._folder}: what answers there is no daemon")
        return words
