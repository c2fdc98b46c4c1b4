"""A task's state: buffers that move to the GPU of the task's next token."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from headway.live.api import gpu_buffers as buffers
from headway.live.api.gpu_line import LockMisuse

Copy = Callable[[str, Any, Any, "int | None"], None]
"""Copies a whole buffer under a unit: the unit, the target, the source, and for "peer" the device
that has the source."""


class State:
    """The buffers of a task, by name or by number. After a migration a tensor is the same object on
    the other GPU; of other buffers `state[name]` is the one to use."""

    def __init__(self, found: dict[str | int, Any]) -> None:
        if not found:
            raise LockMisuse("state: found no buffers, expected at least one")
        for name, buffer in found.items():
            buffers.check(buffer, _what(name))
        homes = {name: buffers.device_of(buffer) for name, buffer in found.items()}
        if len(set(homes.values())) > 1:
            raise LockMisuse(f"state: found buffers on GPUs {homes}, expected all on the same")
        self.home: int | None = next(iter(homes.values()))
        """The GPU that has the buffers, by this process's count; None: the host has them."""
        self.device: int | None = None
        """The device among those of the tokens; a GPU may stand for several. None: not known."""
        self._buffers = found
        self._saved: dict[str | int, Any] = {}
        """Copies on the host, where state moves through the host's memory."""
        self._fresh = False
        """Whether these are what the GPU has."""
        self._user = threading.Lock()

    def __getitem__(self, name: str | int) -> Any:
        return self._buffers[name]

    @property
    def nbytes(self) -> int:
        return sum(buffers.size_of(buffer) for buffer in self._buffers.values())

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """A token's job uses the buffers. LockMisuse if another job does, or one was freed."""
        if not self._user.acquire(blocking=False):
            raise LockMisuse("state: another job uses it; one job at a time")
        try:
            self._check()
            yield
        finally:
            self._user.release()

    def _check(self) -> None:
        for name, buffer in self._buffers.items():
            buffers.check(buffer, _what(name))

    def bring(self, here: int, device: int, copy: Copy) -> bool:
        """Move everything to a device of GPU `here`; True if anything moved. If a copy fails, all
        is where it was: the old buffers are given up when all new ones are complete."""
        fresh, self._fresh = self._fresh, False  # the job may write to the buffers
        if self.device == device:
            return False
        moved = {}
        for name, buffer in self._buffers.items():
            new = buffers.like(buffer, here)
            if fresh:
                copy("state in", new, self._saved[name], None)
            elif self.home is None:
                copy("state in", new, buffer, None)
            else:
                copy("peer", new, buffer, self.device)
            moved[name] = new
        for name, new in moved.items():
            self._buffers[name] = buffers.adopt(self._buffers[name], new)
        self.home, self.device = here, device
        return True

    def save(self, copy: Copy) -> None:
        """Copy everything to the host, for the next job that is on another GPU."""
        self._check()
        for name, buffer in self._buffers.items():
            if name not in self._saved:
                self._saved[name] = buffers.like(buffer, None)
            copy("state out", self._saved[name], buffer, None)
        self._fresh = True


def _what(name: str | int) -> str:
    return (
        f"buffer {name!r} of the state" if isinstance(name, str) else f"buffer {name} of the state"
    )


def state(*unnamed: Any, **named: Any) -> State:
    """Register buffers as a task's state, for `gpu.token(..., state=...)`."""
    found: dict[str | int, Any] = dict(enumerate(unnamed))
    found.update(named)
    return State(found)
