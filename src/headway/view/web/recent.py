"""What a daemon did in the last seconds, kept while it runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from headway.live.api import client
from headway.live.watch import following
from headway.trace.analysis import History
from headway.view.report.page import data_of

AGAIN_S = 1.0
"""Until a daemon that is gone is looked for again."""
FORGET_NS = 1_000_000_000
"""Between two times that what is old is forgotten."""


class Recent(threading.Thread):
    """Follows the daemon of a folder; one that is gone is waited for."""

    def __init__(self, folder: Path, window_ns: int, *, writes: bool) -> None:
        super().__init__(name="headway-web", daemon=True)
        self._folder = folder
        self._window_ns = window_ns
        self._writes = writes
        """Whether the page may change what it shows."""
        self._lock = threading.Lock()
        """Of the history and the problem."""
        self._history = History()
        self._problem = "no daemon has answered yet"
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                with following.connect(self._folder) as connection:
                    self._follow(following.Follower(connection))
                problem = "the daemon has ended"
            except (OSError, client.Refused) as error:
                problem = str(error)
            with self._lock:
                self._problem = problem
            self._over.wait(AGAIN_S)

    def _follow(self, follower: following.Follower) -> None:
        """A daemon that comes anew begins a new history."""
        with self._lock:
            self._history, self._problem = History(), ""
        forgot_ns = 0
        for event in follower.events(lambda: not self._over.is_set()):
            with self._lock:
                self._history.feed(event)
                if event.ns - forgot_ns >= FORGET_NS:
                    self._history.forget(event.ns - self._window_ns)
                    forgot_ns = event.ns

    def data(self) -> bytes:
        """The page's JSON of the last seconds, until now."""
        with self._lock:
            problem = self._problem
            now_ns = time.monotonic_ns() if self._history.events and not problem else 0
            known = self._history.until(now_ns)
        seconds = self._window_ns / 1e9
        facts = {
            "trace": "live",
            "written": time.strftime("%H:%M:%S"),
            "command": "headway web",
            "scope": f"the last {seconds:g} s at most",
            "problem": problem,
            "writes": self._writes,
        }
        end_ns = known.end_ns
        known.begin_ns = from_ns = max(known.begin_ns, end_ns - self._window_ns)
        return data_of(known, facts=facts, from_ns=from_ns, to_ns=end_ns, zero_ns=end_ns)
