"""What the daemon's books say while programs run: `headway status --json`, over and over."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu.stage import Stage

EVERY_S = 0.1


class Books:
    """Of every program by the name it was started under: when it was seen, and what was said."""

    def __init__(self) -> None:
        self.seen: dict[str, list[tuple[float, dict[str, Any]]]] = {}

    def note(self, status: dict[str, Any]) -> None:
        for channel in status["channels"]:
            name = str(channel["task"]).partition(".")[0]
            self.seen.setdefault(name, []).append((float(status["uptime_s"]), channel))

    def last(self, name: str, what: str) -> int:
        """What was said of it at the end; 0 if it was never there."""
        return int(self.seen[name][-1][1][what]) if name in self.seen else 0

    def shares(self, *names: str) -> list[float]:
        """The part of the GPU's time that each was charged with while all of them were there."""
        if not all(name in self.seen for name in names):
            return [0.0] * len(names)
        ran = [self._ran(name) for name in names]
        since, until = max(start for start, _ in ran), min(end for _, end in ran)
        return [self._share(name, since, until) for name in names]

    def _ran(self, name: str) -> tuple[float, float]:
        """When it was first and last seen to use the GPU: it waits for others to begin."""
        seen = self.seen[name]
        pairs = itertools.pairwise(seen)
        grew = [(a, b) for (a, old), (b, new) in pairs if new["gpu_ns"] > old["gpu_ns"]]
        return (grew[0][0], grew[-1][1]) if grew else (seen[0][0], seen[-1][0])

    def _share(self, name: str, since: float, until: float) -> float:
        kept = [(at, said) for at, said in self.seen[name] if since <= at <= until]
        if len(kept) < 2:
            return 0.0
        (start, first), (end, last) = kept[0], kept[-1]
        return float((last["gpu_ns"] - first["gpu_ns"]) / 1e9 / (end - start))


@contextlib.contextmanager
def kept(stage: Stage) -> Iterator[Books]:
    """Books that are kept until the block ends."""
    books, stop = Books(), threading.Event()

    def keep() -> None:
        while not stop.wait(EVERY_S):
            with contextlib.suppress(subprocess.CalledProcessError, ValueError):
                books.note(stage.status())

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield books
    finally:
        stop.set()
        thread.join()
