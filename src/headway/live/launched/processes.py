"""The processes of a launched program: its first one, and whatever that starts or leaves behind.

Every process of a program carries the program's mark in its environment, so those that a script
leaves behind are found as well. The launcher is their reaper (`adopt`): whoever loses its parent
becomes the launcher's child and cannot get lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from headway.live.identity.process import variables_of

MARK = "HEADWAY_LAUNCHED"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt() -> None:
    """Processes below this one that lose their parent become children of this one."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def begin_child(parent: int) -> None:
    """In a new child, before the program: a group of its own, and an end when its launcher's comes,
    however that comes. The signals that Python ignores are as they are for other programs."""
    os.setpgid(0, 0)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent:  # it is gone already
        os.kill(os.getpid(), signal.SIGINT)


def marked(mark: str) -> list[int]:
    """The living processes of a program, of those that are below this one."""
    return [
        pid
        for pid in _below(os.getpid())
        if not _is_dead(pid) and variables_of_quietly(pid) == mark
    ]


def variables_of_quietly(pid: int) -> str | None:
    try:
        return variables_of(pid, MARK).get(MARK)
    except OSError:
        return None


def _below(pid: int) -> Iterator[int]:
    """Children, and theirs."""
    for child in _children(pid):
        yield child
        yield from _below(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def survives(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for this signal, or ignores it: any other is ended
    by it, wherever it is."""
    handled = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("SigCgt:", "SigIgn:")):
                handled |= int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        return False
    return bool(handled >> (number - 1) & 1)


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
