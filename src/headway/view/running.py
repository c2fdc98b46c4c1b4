"""A run as a person sees it: a progress bar on a terminal, and Ctrl-C that loses nothing."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

BAR_AFTER_S = 0.5


class Watch:
    """Called now and then by a run: moves the bar, and says whether to go on."""

    def __init__(self, label: str, duration_ns: int | None) -> None:
        self.interrupted = False
        self._label = label
        self._duration_ns = duration_ns
        self._began = time.monotonic()
        self._bar: Progress | None = None
        self._row: TaskID | None = None
        self._shows = sys.stderr.isatty() and duration_ns is not None

    def __call__(self, now_ns: int) -> bool:
        if self._shows:
            self._show(now_ns)
        return not self.interrupted

    def _show(self, now_ns: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._began < BAR_AFTER_S:
                return
            from rich.console import Console
            from rich.markup import escape
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._row = self._bar.add_task(escape(self._label), total=self._duration_ns)
            self._bar.start()
        if self._row is not None:
            self._bar.update(self._row, completed=now_ns)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def watch(label: str, duration_ns: int | None) -> Iterator[Watch]:
    """The first Ctrl-C (or SIGTERM) ends the run between two instants, so that everything that was
    asked for is written as far as it got; a second one leaves at once."""
    watcher = Watch(label, duration_ns)

    def stop(number: int, frame: FrameType | None) -> None:
        if watcher.interrupted:
            raise KeyboardInterrupt
        watcher.interrupted = True

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield watcher
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        watcher.close()
