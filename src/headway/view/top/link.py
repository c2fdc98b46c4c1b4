"""The thread that talks to the daemon, so that the screen never waits for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway.live.api.client import Refused

Ask = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Status:
    """What the daemon says now."""

    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gone:
    """Nobody answers; the next refresh tries again."""

    why: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a change that a person asked for."""

    text: str
    done: bool


News = Status | Gone | Answer


class Link(threading.Thread):
    """Asks for the status every interval, and passes changes on, one at a time and in order."""

    def __init__(self, ask: Ask, interval_s: float, tell: Callable[[News], object]) -> None:
        super().__init__(name="headway-top", daemon=True)  # a daemon that hangs must not hold us
        self._ask = ask
        self._interval_s = interval_s
        self._tell = tell
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def send(self, request: dict[str, Any]) -> None:
        """A change; an Answer tells what became of it, and a Status follows."""
        self._requests.put(request)

    def stop(self) -> None:
        self._requests.put(None)

    def run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                request = self._requests.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                self._tell(self._status())
                due = time.monotonic() + self._interval_s
                continue
            if request is None:
                return
            self._tell(self._change(request))
            due = time.monotonic()

    def _status(self) -> News:
        try:
            status = self._ask({"do": "status"})["status"]
        except (OSError, Refused) as error:
            return Gone(str(error))
        except (ValueError, KeyError):
            return Gone("the daemon answers in words of another version")
        return Status(status)

    def _change(self, request: dict[str, Any]) -> Answer:
        try:
            tasks = self._ask({"do": "set", **request}).get("tasks", [])
        except (OSError, ValueError) as error:
            return Answer(str(error), done=False)
        return Answer(f"changed: {', '.join(map(str, tasks))}", done=True)
