"""Virtual time: what is to be called when, in order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Call = Callable[[], None]
Entry = list[Any]
"""When, the how-manieth call that was put in, and the call; None once it is cancelled."""
PROGRESS_EVERY = 4096
"""Calls between two looks at whether the run goes on."""


class Clock:
    """Calls things at their times; those of one instant in the order in which they were put in."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._entries: list[Entry] = []
        self._count = 0

    def at(self, time_ns: int, call: Call) -> Entry:
        """Have `call` called at this time, or now if that is over."""
        self._count += 1
        entry: Entry = [max(time_ns, self.now_ns), self._count, call]
        heappush(self._entries, entry)
        return entry

    @staticmethod
    def cancel(entry: Entry | None) -> None:
        """Whatever this entry stands for is not called any more."""
        if entry is not None:
            entry[2] = None

    def run(
        self,
        until_ns: int | None,
        progress: Callable[[int], bool] | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> bool:
        """Go on up to and including `until_ns`, or until `is_over` says so, if there is no such
        time; tells whether it came to that, rather than `progress` ending it."""
        entries, countdown = self._entries, PROGRESS_EVERY
        while entries and (until_ns is None or entries[0][0] <= until_ns):
            time_ns, _, call = heappop(entries)
            if call is None:
                continue
            self.now_ns = time_ns
            countdown -= 1
            if not countdown:
                countdown = PROGRESS_EVERY
                if progress is not None and not progress(time_ns):
                    return False
            call()
            if until_ns is None and is_over is not None and is_over():
                break
        if until_ns is not None:
            self.now_ns = until_ns
        return True
