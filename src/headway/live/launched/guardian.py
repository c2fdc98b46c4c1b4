"""The guardian of a launcher: a process that outlives it, and has its programs end.

A launcher that is killed can ask nobody to end. What it started, wrapper scripts' programs and
those in sessions of their own included, is known by the launcher's mark in the environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from headway.live.devices import mps
from headway.live.identity.process import variables_of
from headway.live.launched import processes
from headway.live.launched.ending import Ending

LOOK_S = 0.1
NUMBER = 32
"""Bytes of a message, which is a process number."""
QUIET_LOOKS = 5
"""Nobody is left if nobody is found so many times: a program that is about to begin carries no mark
before."""


@dataclass(frozen=True, slots=True)
class _First:
    """The first process of a program, when it had begun, and the end of its stderr."""

    pid: int
    begun: str
    stderr: int

    @property
    def runs(self) -> bool:
        return processes.begun(self.pid) == self.begun != ""


class Guardian:
    """This process's end of the connection with its guardian, who acts when that is closed by
    whatever end of this process, unless it was dismissed before."""

    def __init__(self, family: str, patience_s: float) -> None:
        """The marks of this process's programs begin with `family`."""
        theirs, self._socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork():
            theirs.close()
            return
        try:  # from here on a process of its own, which returns to nobody
            heard = _leave_all(theirs)
            first = _listen(heard)
            if first is not None:
                _have_end(family, first, patience_s)
        finally:
            os._exit(0)

    def started(self, pid: int, stderr: int) -> None:
        """Another program runs, of which this is the first process, and the end of its stderr: who
        writes there when nobody is left to read is killed for it, perhaps inside a kernel."""
        with contextlib.suppress(OSError):  # it was killed
            socket.send_fds(self._socket, [str(pid).encode()], [stderr])

    def dismiss(self) -> None:
        """Whoever is left now is left on purpose."""
        with contextlib.suppress(OSError):
            self._socket.send(b"dismissed")


def _leave_all(ours: socket.socket) -> socket.socket:
    """Keep nothing of the launcher but this: its terminal, its output and its connections are not
    the guardian's."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.set_wakeup_fd(-1)
    os.dup2(ours.fileno(), 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    with contextlib.suppress(OSError):
        os.chdir("/")
    return socket.socket(fileno=0)


def _listen(heard: socket.socket) -> list[_First] | None:
    """The programs that still ran when the launcher ended; None: there is nothing to do."""
    first: list[_First] = []
    while True:
        data, fds, _, _ = socket.recv_fds(heard, NUMBER, 1)
        if not data:
            return first
        if not data.isdigit() or not fds:
            return None
        for one in first:
            if not one.runs:
                os.close(one.stderr)
        first = [one for one in first if one.runs]
        first.append(_First(int(data), processes.begun(int(data)), fds[0]))


def _have_end(family: str, first: list[_First], patience_s: float) -> None:
    """Ask whoever is left to end, step by step."""
    ending, quiet = Ending(patience_s), 0
    for one in first:
        os.set_blocking(one.stderr, False)
    while quiet < QUIET_LOOKS:
        pids = processes.everywhere(family + ".", {one.pid for one in first if one.runs})
        if pids:
            quiet = 0
            under = any(map(mps.may_use, pids))
            if ending.urge(pids, time.monotonic(), mps=under, terminate=_terminate):
                return
        else:
            quiet += 1
        for one in first:
            with contextlib.suppress(OSError):
                while os.read(one.stderr, 65536):
                    pass
        time.sleep(LOOK_S)


def _terminate(pid: int) -> bool:
    with contextlib.suppress(OSError):
        folder = variables_of(pid, mps.PIPES).get(mps.PIPES, mps.DEFAULT_PIPES)
        return mps.terminate_client(Path(folder), pid)
    return False
