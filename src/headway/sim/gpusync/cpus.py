"""The CPUs of a cluster: preemptive, the strongest ready threads run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.engine.locks.helpers import CpuKey


class CpuThread:
    """Something that runs on CPUs: a task's thread, an interrupt thread or a worker."""

    __slots__ = ("active_ns", "epoch", "key", "on_done", "remaining_ns", "since_ns", "watcher")

    def __init__(self, key: Callable[[], CpuKey], on_done: Callable[[], None]) -> None:
        self.key = key
        """Its place among the others now; asked only when threads compete."""
        self.on_done = on_done
        """Called when what it was woken for is done."""
        self.remaining_ns = 0
        self.since_ns = 0
        self.active_ns = 0
        """How long it has been on a CPU since somebody set this to zero."""
        self.epoch = 0
        """Counts starts and stops, so that an end that was put off is known as such."""
        self.watcher: Any = None
        """A budget that drains while the thread runs."""


def _key(thread: CpuThread) -> CpuKey:
    return thread.key()


class Cpus:
    """A cluster of CPUs. `at(when, thread, epoch)` asks for `ended` to be called then."""

    def __init__(self, count: int, at: Callable[[int, CpuThread, int], None]) -> None:
        self.count = count
        self.running: list[CpuThread] = []
        self.ready: list[CpuThread] = []
        self.busy_ns = 0
        self._at = at

    def wake(self, thread: CpuThread, length_ns: int, now_ns: int) -> None:
        """The thread wants a CPU for so long. A thread that wants none runs at once where a CPU is
        free."""
        thread.remaining_ns = length_ns
        if len(self.running) + len(self.ready) < self.count:
            self._start(thread, now_ns)
        else:
            self.ready.append(thread)

    def ended(self, thread: CpuThread, epoch: int, now_ns: int) -> None:
        """What a thread was woken for is done, if nothing stopped it since."""
        if thread.epoch != epoch:
            return
        self._stop(thread, now_ns)
        thread.on_done()

    def remove(self, thread: CpuThread, now_ns: int) -> None:
        """The thread no longer wants a CPU."""
        if thread in self.running:
            self._stop(thread, now_ns)
        elif thread in self.ready:
            self.ready.remove(thread)

    def balance(self, now_ns: int) -> None:
        """The strongest threads run; call when threads are ready or priorities have changed."""
        ready = self.ready
        while ready:
            best = ready[0] if len(ready) == 1 else max(ready, key=_key)
            if len(self.running) >= self.count:
                worst = min(self.running, key=_key)
                if worst.key() >= best.key():
                    return
                self._stop(worst, now_ns)
                ready.append(worst)
            ready.remove(best)
            self._start(best, now_ns)

    def _start(self, thread: CpuThread, now_ns: int) -> None:
        thread.epoch += 1
        if not thread.remaining_ns:
            thread.on_done()
            return
        thread.since_ns = now_ns
        self.running.append(thread)
        if thread.watcher is not None:
            thread.watcher.starts(now_ns, thread.remaining_ns)
        self._at(now_ns + thread.remaining_ns, thread, thread.epoch)

    def _stop(self, thread: CpuThread, now_ns: int) -> None:
        self.running.remove(thread)
        thread.epoch += 1
        ran_ns = now_ns - thread.since_ns
        thread.remaining_ns -= ran_ns
        thread.active_ns += ran_ns
        self.busy_ns += ran_ns
        if thread.watcher is not None:
            thread.watcher.stops(now_ns)
