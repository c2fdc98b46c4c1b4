"""Worker threads that follow: while a thread waits for its GPU work, the other threads of its
process have its real-time priority, so that the runtime's own threads do not keep it waiting.

(GPUSync, section 3.5: the workers of a process inherit the priority of its real-time thread that is
suspended for a GPU operation. Here the thread's own, real-time priority of POSIX is lent.)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from headway.live.api.gpu_line import say_once

REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR)


@contextlib.contextmanager
def following() -> Iterator[None]:
    """Lend this thread's real-time priority to the process's other threads for the block. Threads
    with a real-time priority of their own keep that; without one, or without the right to lend,
    nothing changes and one line says so."""
    policy = os.sched_getscheduler(0)
    lent: dict[int, tuple[int, os.sched_param]] = {}
    if policy & ~os.SCHED_RESET_ON_FORK not in REAL_TIME:
        say_once(
            "worker threads keep their priorities",
            "this thread has no real-time priority that they could follow (chrt sets one)",
        )
    else:
        lent = _lend(policy, os.sched_getparam(0))
    try:
        yield
    finally:
        for thread, (own, parameters) in lent.items():
            with contextlib.suppress(OSError):  # the thread has ended
                os.sched_setscheduler(thread, own, parameters)


def _lend(policy: int, parameters: os.sched_param) -> dict[int, tuple[int, os.sched_param]]:
    """Which threads had what before."""
    lent = {}
    for folder in Path("/proc/self/task").iterdir():
        thread = int(folder.name)
        try:
            own = os.sched_getscheduler(thread)
            if own & ~os.SCHED_RESET_ON_FORK in REAL_TIME:
                continue  # this thread itself, or one with a priority of its own
            before = (own, os.sched_getparam(thread))
            os.sched_setscheduler(thread, policy, parameters)
            lent[thread] = before
        except PermissionError:
            say_once(
                "worker threads keep their priorities",
                "no right to set real-time priorities (CAP_SYS_NICE, or ulimit -r)",
            )
            break
        except OSError:
            continue  # the thread has ended
    return lent
