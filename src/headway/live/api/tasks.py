"""Headway from inside a program: `headway.task()`, `headway.job()` and `headway.current()`.

Under `headway run` the interposer is in the process: a task changes what the daemon knows of this
process, and a job tells the interposer where a piece of work begins and ends. In a program that
was started without it nothing can be interposed; there a job is a turn of its own, asked for
before the work and given back after it. Without a daemon nothing of this does anything.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from headway.engine.shares import WHOLE_PERMILLE
from headway.live.api.arguments import check_task, duration_ns
from headway.live.api.asking import ask
from headway.live.api.blocks import Block
from headway.live.api.own_turns import OwnChannel


@dataclass(frozen=True, slots=True)
class Current:
    """What the daemon knows of this process."""

    task: str
    policy: str
    priority: str
    state: str
    interposed: bool
    jobs: int
    misses: int


@functools.cache
def _interposer() -> ctypes.CDLL | None:
    """The library in this process, if `headway run` put it there."""
    if "HEADWAY_SOCKET" not in os.environ:
        return None
    library = ctypes.CDLL(None)
    try:
        library.headway_job_begin.argtypes = (ctypes.c_uint64,)
        library.headway_job_begin.restype = library.headway_job_end.restype = None
    except AttributeError:
        return None
    return library


# -- tasks ---------------------------------------------------------------------------------------


def task(
    name: str,
    *,
    priority: int | str | None = None,
    reserve: str | None = None,
    policy: str | None = None,
    period: str | None = None,
    deadline: str | None = None,
    slowdown: str | None = None,
) -> Block:
    """Within this block, and all threads of this process, GPU work is this task's.

    `with`, `async with`, or a decorator. Tasks may stand in tasks: the innermost counts. A wrong
    value is a ValueError that names it; whether there is a daemon makes no difference to that.
    """
    options = {"name": name, "priority": priority, "reserve": reserve, "policy": policy}
    options |= {"period": period, "deadline": deadline, "slowdown": slowdown}
    check_task(options)

    def begin() -> Callable[[], None]:
        if _interposer() is not None:
            told = ask({"do": "become", **options}) is not None
            return _unbecome if told else _nothing
        channel = OwnChannel(options)
        _own.set((*_own.get(), channel))
        return functools.partial(_leave, channel)

    return Block(begin)


_own: ContextVar[tuple[OwnChannel, ...]] = ContextVar("headway_tasks", default=())
"""The tasks of this thread or coroutine in a program without the interposer."""


def _nothing() -> None:
    pass


def _unbecome() -> None:
    ask({"do": "unbecome"})


def _leave(channel: OwnChannel) -> None:
    _own.set(tuple(other for other in _own.get() if other is not channel))
    channel.close()


# -- jobs ----------------------------------------------------------------------------------------


def job(deadline: str | None = None) -> Block:
    """This block is one job: its GPU work is a turn that is not given away in between, and it is
    late if the block takes longer than the deadline. `with`, `async with`, or a decorator."""
    deadline_ns = 0 if deadline is None else duration_ns("job", "deadline", deadline)

    def begin() -> Callable[[], None]:
        library = _interposer()
        if library is not None:
            library.headway_job_begin(deadline_ns)
            return library.headway_job_end
        around, channels = _job.get(), _own.get()
        if (around is not None and around.goes_on) or not channels:
            return _nothing  # jobs within jobs are one
        now = _Job(channels[-1], deadline_ns)
        _job.set(now)
        return now.end

    return Block(begin)


class _Job:
    """A job that holds the turn of a task of this process."""

    def __init__(self, channel: OwnChannel, deadline_ns: int) -> None:
        self._pid = os.getpid()
        self._channel, self._deadline_ns = channel, deadline_ns
        channel.begin()

    @property
    def goes_on(self) -> bool:
        """A forked child is not in its parent's job."""
        return self._pid == os.getpid()

    def end(self) -> None:
        self._pid = 0
        self._channel.end(self._deadline_ns)


_job: ContextVar[_Job | None] = ContextVar("headway_job", default=None)
"""The job that this thread or coroutine is in, or was in last."""


# -- shares --------------------------------------------------------------------------------------


def told_share() -> int:
    """Which part of the multiprocessors this program may use now, in thousandths."""
    library = _interposer()
    if library is not None:
        try:
            library.headway_share.restype = ctypes.c_uint32
        except AttributeError:  # an older one
            return WHOLE_PERMILLE
        return int(library.headway_share()) or WHOLE_PERMILLE
    channels = _own.get()
    return channels[-1].share if channels else WHOLE_PERMILLE


# -- looking -------------------------------------------------------------------------------------


def current() -> Current | None:
    """What the daemon knows of this process; None: nothing, or there is no daemon."""
    answer = ask({"do": "status"})
    own = [
        c for c in (answer or {}).get("status", {}).get("channels", []) if c["pid"] == os.getpid()
    ]
    if not own:
        return None
    entry = own[-1]
    return Current(
        task=entry["task"],
        policy=entry["policy"],
        priority=entry["priority"],
        state=entry["state"],
        interposed=_interposer() is not None,
        jobs=entry["jobs"],
        misses=entry["misses"],
    )
