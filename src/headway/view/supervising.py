"""Runs a program as a child, for commands that have something to say when the program has ended.

The child is in the same process group and has the same terminal, so what a person types there
reaches the child directly. Signals that somebody sends to this process alone are passed on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from typing import NoReturn

PASSED_ON = frozenset(
    {
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGWINCH,
    }
)
_SI_KERNEL = 0x80
"""Not sent by a process: a terminal tells the whole group, the child too."""


def run(start: Callable[[], NoReturn], *, then: Callable[[], None]) -> NoReturn:
    """Have `start` become a program in a child, wait for its end, do `then`, and end in the same
    way: with its exit code, or by its signal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
    child = os.fork()
    if not child:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        start()
    status = _wait(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with contextlib.suppress(Exception):  # what comes after is not to change how the program ended
        then()
    _end(status)


def _wait(child: int) -> int:
    """The child's exit status. Meanwhile signals reach the child."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        found = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        if found.si_signo != signal.SIGCHLD and found.si_code != _SI_KERNEL:
            with contextlib.suppress(OSError):
                os.kill(child, found.si_signo)


def _end(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's own core is enough
        with contextlib.suppress(OSError):  # SIGKILL has no other way
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
