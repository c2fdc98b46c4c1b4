"""Tokens and units from inside a program; the lock server is the daemon (`daemon --locks`).

Each token is a connection of its own, so the kernel tells the daemon when its holder dies. Without
a daemon that serves tokens the program goes on, ungated, on GPU 0, and says so once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from headway.engine.locks.copies import CopySettings
from headway.engine.locks.quantities import parse_size
from headway.engine.units import parse_duration
from headway.live.api import gpu_buffers as buffers
from headway.live.api.followers import following
from headway.live.api.gpu_current import machine_number, make_current, ordinal
from headway.live.api.gpu_line import Gone, Line, LockMisuse, TokenTimeout, say_once
from headway.live.api.gpu_slices import slice_stream
from headway.live.api.gpu_state import State

UNITS = ("compute", "h2d", "d2h")
UNGATED = "GPUs are used without tokens"


class BudgetExceeded(RuntimeError):
    """The job has used its budget. Raised once, in the job that overran, when it is out of the
    lock call and of the unit; what the job holds is given back as the blocks around it end."""


_here = threading.local()


class Device:
    """The GPU of a token. Only the thread that has the token may use it."""

    def __init__(
        self,
        line: Line | None,
        granted: dict[str, Any],
        budget_ns: int | None,
        *,
        workers: bool = False,
    ) -> None:
        self.index: int = granted.get("device", 0)
        """The number of the GPU, or of the slice where a GPU stands for several devices."""
        self._slices: int = granted.get("slices", 1)
        self.gpu = self.index // self._slices
        """The number of the GPU on the machine."""
        self.home: int | None = granted.get("home")
        """The GPU of the task's token before this one; None: this is the first."""
        self._line = line
        self._through_host = granted.get("migration") == "system"
        self._thread = threading.get_ident()
        self._open = True
        self._unit: str | None = None
        self._budget_ns = None if granted.get("enforced") else budget_ns
        self._used_ns = 0
        self._told = False
        self._workers = workers

    @property
    def moved(self) -> bool:
        """Whether the task's last token was on another GPU."""
        return self.home is not None and self.home != self.index

    @property
    def stream(self) -> int:
        """A stream of CUDA whose kernels have this slice's multiprocessors only; the GPU's default
        stream (0) where a GPU is one device. For `torch.cuda.ExternalStream` or CuPy's."""
        self._check()
        if self._slices == 1:
            return 0
        return slice_stream(ordinal(self.gpu), self.index % self._slices, self._slices)

    def _check(self) -> None:
        if not self._open:
            raise LockMisuse("the token was released; use the device inside its with block")
        if threading.get_ident() != self._thread:
            raise LockMisuse("the token belongs to another thread; each thread asks for its own")

    @contextlib.contextmanager
    def unit(self, kind: str, *, timeout: float | None = None) -> Iterator[None]:
        """Own a unit of the GPU: "compute", "h2d" or "d2h". One at a time. Work that the block
        starts must be done when the block ends. `timeout` in seconds: TokenTimeout."""
        if kind not in UNITS:
            raise LockMisuse(f"unit: found {kind!r}, expected {', '.join(UNITS)}")
        with self._owned(kind, timeout):
            yield
        self._may_tell()

    @contextlib.contextmanager
    def _owned(self, kind: str, timeout: float | None, **more: Any) -> Iterator[None]:
        self._check()
        if self._unit is not None:
            raise LockMisuse(
                f"{kind}: {self._unit} is owned already; units are owned one at a time"
            )
        self._ask(timeout, act="unit", unit=kind, **more)
        self._unit = kind
        began_ns = time.monotonic_ns()
        try:
            with following() if self._workers else contextlib.nullcontext():
                yield
        finally:
            self._unit = None
            self._used_ns += time.monotonic_ns() - began_ns
            self._ask(None, act="give back")

    def _may_tell(self) -> None:
        if self._budget_ns is not None and self._used_ns > self._budget_ns and not self._told:
            self._told = True
            raise BudgetExceeded(
                f"used {self._used_ns} ns of the GPU, the budget is {self._budget_ns} ns"
            )

    def migrate(self, move: Callable[[int, int], None]) -> bool:
        """If the task's last token was on another GPU, own a copy engine of both and call
        `move(home, here)`, which copies what the task has there. True if it was called. With
        `gpu.state` none of this is needed."""
        self._check()
        if not self.moved:
            return False
        assert self.home is not None
        with self._owned("peer", None, home=self.home):
            move(self.home, self.index)
        self.home = self.index
        return True

    def copy(self, target: Any, source: Any, *, chunk: str = "2MiB") -> None:
        """Copy a buffer to another of the same size, chunk by chunk: for each the copy engine of
        its direction is owned, or that of both GPUs."""
        self._check()
        for what, buffer in (("the target", target), ("the source", source)):
            buffers.check(buffer, f"copy: {what}")
        sizes = buffers.size_of(target), buffers.size_of(source)
        if sizes[0] != sizes[1]:
            raise LockMisuse(
                f"copy: found {sizes[1]} bytes for {sizes[0]}, expected buffers of the same size"
            )
        places = buffers.device_of(target), buffers.device_of(source)
        here = ordinal(self.gpu)
        if places == (None, None) or here not in places:
            raise LockMisuse(
                f"copy: found a copy from {_place(places[1])} to {_place(places[0])}, expected to "
                f"or from GPU {here}, which the token is for"
            )
        other = next((place for place in places if place not in (None, here)), None)
        if other is not None:
            self._copy("peer", target, source, machine_number(other) * self._slices, chunk)
        elif None in places:
            self._copy("d2h" if places[0] is None else "h2d", target, source, None, chunk)
        else:
            self._copy("compute", target, source, None, chunk)
        self._may_tell()

    def copy_parts(
        self, kind: str, size: int, part: Callable[[int, int], None], *, chunk: str = "2MiB"
    ) -> None:
        """Copy `size` bytes in chunks by a function of the program: for each, own the unit ("h2d"
        or "d2h") and call `part(offset, length)`, which copies those bytes and waits for them."""
        if kind not in ("h2d", "d2h"):
            raise LockMisuse(f"copy_parts: found {kind!r}, expected h2d or d2h")
        for offset, length in chunks(size, chunk):
            with self.unit(kind):
                part(offset, length)

    def _copy(
        self, kind: str, target: Any, source: Any, home: int | None, chunk: str = "2MiB"
    ) -> None:
        more = {} if home is None else {"home": home}
        for offset, length in chunks(buffers.size_of(source), chunk):
            with self._owned(kind, None, **more):
                buffers.copy_part(target, source, offset, length)

    def _bring(self, state: State) -> None:
        """The state to this GPU, before the program's own work (GPUSync: migrate first)."""
        here = ordinal(self.gpu)
        if state.device is None and state.home is not None:
            there = machine_number(state.home) * self._slices
            state.device = self.index if state.home == here else there
        state.bring(here, self.index, self._copy)

    def _leave(self, state: State) -> None:
        """The state to the host, after the program's own work, where it moves that way."""
        if self._through_host:
            state.save(self._copy)

    def _ask(self, timeout: float | None, **request: Any) -> None:
        """Ask, and wait for what is granted later. Without a daemon there is nobody to ask."""
        if self._line is None:
            return
        try:
            if self._line.ask(**request).get("wait") and self._line.read(timeout) is None:
                self._line.ask(act="withdraw")
                raise TokenTimeout(f"{request.get('unit')}: not granted within {timeout:g} s")
        except Gone as error:
            self._line.close()
            self._line = None
            say_once(UNGATED, str(error))

    def _close(self) -> None:
        self._open = False
        if self._line is not None:
            with contextlib.suppress(Gone, LockMisuse):
                self._line.ask(act="release")
            self._line.close()
            self._line = None


def _place(device: int | None) -> str:
    return "the host" if device is None else f"GPU {device}"


def chunks(size: int, chunk: str = "2MiB") -> Iterator[tuple[int, int]]:
    """(offset, length) of each chunk of a copy."""
    offset = 0
    for length in CopySettings(chunk=parse_size(chunk)).chunks(size):
        yield offset, length
        offset += length


@contextlib.contextmanager
def token(
    name: str = "job",
    *,
    priority: int = 0,
    cluster: int = 0,
    timeout: float | None = None,
    budget: str | None = None,
    period: str | None = None,
    state: State | None = None,
    workers: bool = False,
) -> Iterator[Device]:
    """Wait for a place on a GPU and hold it for the block; its GPU is current for PyTorch, CuPy,
    JAX and the CUDA runtime if they are loaded.

    `name` is the task whose state stays on a GPU from token to token; `state` (`gpu.state`) is
    brought along. Larger `priority` is more important; among equals, whoever is due first by
    `period`. `timeout` in seconds: TokenTimeout. `budget`, such as "5ms": time in units; whoever
    has used more is told by BudgetExceeded, once, or is due a period later, as the daemon is set
    up. `workers`: the process's other threads follow this one's real-time priority while it owns
    units.
    """
    budget_ns = None if budget is None else parse_duration(budget)
    period_ns = None if period is None else parse_duration(period)
    if getattr(_here, "held", False):
        raise LockMisuse("this thread holds a token already; a job has one at a time")
    with contextlib.nullcontext() if state is None else state.used():
        terms = {"name": name, "priority": priority, "cluster": cluster}
        terms |= {"period_ns": period_ns, "budget_ns": budget_ns}
        line, granted = _acquire(terms, timeout)
        device = Device(line, granted, budget_ns, workers=workers)
        _here.held = True
        try:
            make_current(ordinal(device.gpu))
            if state is not None:
                device._bring(state)
            yield device
            if state is not None:
                device._leave(state)
        finally:
            _here.held = False
            device._close()


def _acquire(terms: dict[str, Any], timeout: float | None) -> tuple[Line | None, dict[str, Any]]:
    """A token and what was said with it; neither where nobody serves tokens."""
    line: Line | None = None
    try:
        line = Line()
        answer = line.ask(act="token", **terms)
        if answer.get("wait"):
            granted = line.read(timeout)
            if granted is None:
                line.close()
                raise TokenTimeout(f"{terms['name']}: no token within {timeout:g} s")
            answer = granted
        return line, answer
    except LockMisuse as error:
        if line is not None:
            line.close()
        if "serves no tokens" not in str(error):
            raise
        say_once(UNGATED, str(error))
    except TokenTimeout:
        raise
    except OSError as error:
        if line is not None:
            line.close()
        say_once(UNGATED, str(error))
    except BaseException:
        if line is not None:
            line.close()
        raise
    return None, {}
