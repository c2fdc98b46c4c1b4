"""What a daemon sees to before it serves: that it is alone, its descriptors, its signals."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import signal
from pathlib import Path

from headway.live.server.loop import log
from headway.live.wire import paths

MAX_DESCRIPTORS = 65_536
OWN_DESCRIPTORS = 16
"""Listeners, lock, signals, the X server, and the pages of one client while it is greeted."""
RLIMIT_RTTIME = 15
"""Linux; Python has no name for it yet."""
RT_US, RT_MOST_US = 300_000, 3_000_000
"""CPU time that a real-time daemon takes without a pause before it steps down, and before the
kernel ends it: a machine must not hang with it. A turn of the loop takes some milliseconds."""
METRICS_DESCRIPTORS = 18
"""Those who read metrics, and where they come in."""


class DaemonError(RuntimeError):
    """The daemon cannot start; one line."""


def lock(stack: contextlib.ExitStack, folder: Path) -> None:
    """One daemon a folder. The file is this user's alone: whoever may open it may lock it too, and
    then no daemon could start."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = stack.enter_context(os.fdopen(os.open(paths.lock_file(folder), flags, 0o600), "r+"))
    os.fchmod(file.fileno(), 0o600)  # an older daemon may have made it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DaemonError(f"{folder}: a daemon is running there already") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()


def go_first(priority: int) -> None:
    """Decisions are short and others wait for them: ahead of ordinary programs, if permitted. What
    the daemon starts is ordinary; and so is the daemon once it has computed for long without a
    pause, which only a mistake of its own can make it do."""
    how = os.SCHED_RR | os.SCHED_RESET_ON_FORK
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, how, os.sched_param(priority))
        signal.signal(signal.SIGXCPU, _step_down)
        _, hard = resource.getrlimit(RLIMIT_RTTIME)
        most = RT_MOST_US if hard == resource.RLIM_INFINITY else min(hard, RT_MOST_US)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(RLIMIT_RTTIME, (min(RT_US, most), most))


def _step_down(number: int, frame: object) -> None:
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    log("it computed for long without a pause, and is an ordinary process from now on")


def make_room(*, metrics: bool) -> tuple[int, int]:
    """As many descriptors as are permitted; for how many clients and control connections they do.
    A client takes two; a quarter is for control, so that the daemon can be asked and stopped
    however many clients there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    control = max(1, limit // 4)
    own = OWN_DESCRIPTORS + (METRICS_DESCRIPTORS if metrics else 0)
    return max(1, (limit - own - control) // 2), control


def spare_pauses() -> None:
    """Look for garbage only among what was made lately. What clients leave behind is none, it goes
    with them; to look through all there is takes 90 ms with 2000 clients."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 3, 1_000_000_000)


def catch_signals(stack: contextlib.ExitStack) -> int:
    """Signals become readable bytes, so that they are handled between two events."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    stack.callback(os.close, reader)
    stack.callback(os.close, writer)
    old = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    stack.callback(signal.set_wakeup_fd, old)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        previous = signal.signal(number, lambda *_: None)
        stack.callback(signal.signal, number, previous)
    return reader
