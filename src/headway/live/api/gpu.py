"""Tokens and units from inside a program; the lock server is the daemon (`daemon --locks`).

Each token is a connection of its own, so the kernel tells the daemon when its holder dies. Without
a daemon that serves tokens the program goes on, ungated, on GPU 0, and says so once.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from headway.engine.locks.copies import CopySettings
from headway.engine.locks.quantities import parse_size
from headway.engine.units import parse_duration
from headway.live.api import client
from headway.live.wire import paths

ANSWER_S = 5.0
"""How long the daemon may take to answer what needs no waiting."""
UNITS = ("compute", "h2d", "d2h")


class TokenTimeout(TimeoutError):
    """The token or the unit did not come in time; nothing is held for it."""


class BudgetExceeded(RuntimeError):
    """The job has used its budget. Raised once, in the job that overran, when it is out of the
    lock call and of the unit; what the job holds is given back as the blocks around it end."""


class LockMisuse(RuntimeError):
    """A call that the rules of tokens and units forbid; nothing changed."""


class _Gone(ConnectionError):
    """The daemon is gone."""


_here = threading.local()
_said = False
_saying = threading.Lock()


def _say_once(why: str) -> None:
    global _said
    with _saying:
        if not _said:
            _said = True
            sys.stderr.write(f"headway: GPUs are used without tokens: {why}\n")


class _Line:
    """One control connection, a JSON object a line each way."""

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
            raise _Gone(str(error)) from None
        while True:
            answer = self.read(ANSWER_S)
            if answer is None:
                raise _Gone("the daemon does not answer")
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
                raise _Gone(str(error)) from None
            if not part:
                raise _Gone("the daemon is gone")
            self._heard += part
        line, _, rest = bytes(self._heard).partition(b"\n")
        self._heard = bytearray(rest)
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {}


class Device:
    """The GPU of a token. Only the thread that has the token may use it."""

    def __init__(self, line: _Line | None, index: int, home: int | None, budget_ns: int | None):
        self.index = index
        """The number of the GPU."""
        self.home = home
        """The GPU that holds the task's state from before; None: there is none yet."""
        self._line = line
        self._thread = threading.get_ident()
        self._open = True
        self._unit: str | None = None
        self._budget_ns = budget_ns
        self._used_ns = 0
        self._told = False

    @property
    def moved(self) -> bool:
        """Whether the task's state is on another GPU."""
        return self.home is not None and self.home != self.index

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
    def _owned(self, kind: str, timeout: float | None) -> Iterator[None]:
        self._check()
        if self._unit is not None:
            raise LockMisuse(
                f"{kind}: {self._unit} is owned already; units are owned one at a time"
            )
        self._ask(timeout, act="unit", unit=kind)
        self._unit = kind
        began_ns = time.monotonic_ns()
        try:
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
        """If the state is on another GPU, own a copy engine of both and call `move(home, here)`,
        which copies it. True if the state moved."""
        self._check()
        if not self.moved:
            return False
        assert self.home is not None
        with self._owned("peer", None):
            move(self.home, self.index)
        self.home = self.index
        return True

    def copy(
        self,
        kind: str,
        size: int,
        part: Callable[[int, int], None],
        *,
        chunk: str = "2MiB",
    ) -> None:
        """Copy `size` bytes in chunks: for each, own the unit ("h2d" or "d2h") and call
        `part(offset, length)`, which copies those bytes and waits until they are there."""
        if kind not in ("h2d", "d2h"):
            raise LockMisuse(f"copy: found {kind!r}, expected h2d or d2h")
        for offset, length in chunks(size, chunk):
            with self.unit(kind):
                part(offset, length)

    def _ask(self, timeout: float | None, **request: Any) -> None:
        """Ask, and wait for what is granted later. Without a daemon there is nobody to ask."""
        if self._line is None:
            return
        try:
            if self._line.ask(**request).get("wait") and self._line.read(timeout) is None:
                self._line.ask(act="withdraw")
                raise TokenTimeout(f"{request.get('unit')}: not granted within {timeout:g} s")
        except _Gone as error:
            self._line.close()
            self._line = None
            _say_once(str(error))

    def _close(self) -> None:
        self._open = False
        if self._line is not None:
            with contextlib.suppress(_Gone, LockMisuse):
                self._line.ask(act="release")
            self._line.close()
            self._line = None


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
) -> Iterator[Device]:
    """Wait for a place on a GPU and hold it for the block; its GPU is current for PyTorch and CuPy
    if they are loaded.

    `name` is the task whose state stays on a GPU from token to token. `timeout` in seconds:
    TokenTimeout. `budget`, such as "5ms": time in units, after which BudgetExceeded is raised once.
    """
    budget_ns = None if budget is None else parse_duration(budget)
    if getattr(_here, "held", False):
        raise LockMisuse("this thread holds a token already; a job has one at a time")
    device = _acquire(name, priority, cluster, timeout, budget_ns)
    _here.held = True
    try:
        _make_current(device.index)
        yield device
    finally:
        _here.held = False
        device._close()


def _acquire(
    name: str, priority: int, cluster: int, timeout: float | None, budget_ns: int | None
) -> Device:
    """A device with its token, or without one where nobody serves tokens."""
    line: _Line | None = None
    try:
        line = _Line()
        answer = line.ask(act="token", name=name, priority=priority, cluster=cluster)
        if answer.get("wait"):
            granted = line.read(timeout)
            if granted is None:
                line.close()
                raise TokenTimeout(f"{name}: no token within {timeout:g} s")
            answer = granted
        return Device(line, answer["device"], answer.get("home"), budget_ns)
    except LockMisuse as error:
        if line is not None:
            line.close()
        if "serves no tokens" not in str(error):
            raise
        _say_once(str(error))
    except TokenTimeout:
        raise
    except OSError as error:
        if line is not None:
            line.close()
        _say_once(str(error))
    except BaseException:
        if line is not None:
            line.close()
        raise
    return Device(None, 0, None, budget_ns)


def _make_current(index: int) -> None:
    """Make the GPU current in the frameworks that the program has loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.set_device(index)
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None:
        cupy.cuda.Device(index).use()
