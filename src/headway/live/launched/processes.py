"""The processes of a launched program: its first one, and whatever that starts or leaves behind.

Every process of a program carries the program's mark in its environment, so those that a script
leaves behind are found as well. The launcher is their reaper (`adopt`): whoever loses its parent
becomes the launcher's child and cannot get lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from headway.live.identity.process import variables_of

MARK = "HEADWAY_LAUNCHED"
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt() -> None:
    """Processes below this one that lose their parent become children of this one."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def begin_child(parent: int) -> None:
    """In a new child, before the program: a group of its own. It does not begin if its launcher is
    gone already."""
    os.setpgid(0, 0)
    if os.getppid() != parent:
        os._exit(1)


def belonging(mark: str, first: int) -> list[int]:
    """The living processes of a program, of those that are below this one: the first and what is
    below it, whatever their environments are, and who carries the mark."""
    own = _with_below({first} if first else set())
    return [
        pid
        for pid in _below(os.getpid())
        if not is_dead(pid) and (pid in own or mark_of(pid) == mark)
    ]


def everywhere(marks: str, first: set[int]) -> list[int]:
    """The same of several programs, whose marks begin like that, wherever they are by now."""
    own = _with_below(first)
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [
        pid
        for pid in pids
        if not is_dead(pid) and (pid in own or (mark_of(pid) or "").startswith(marks))
    ]


def _with_below(pids: set[int]) -> set[int]:
    return pids.union(*map(_below, pids))


def mark_of(pid: int) -> str | None:
    """Which launch it comes from, as far as that is ours to know."""
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


def is_dead(pid: int) -> bool:
    fields = _fields(pid)
    return not fields or fields[0] in "ZX"


def begun(pid: int) -> str:
    """When it began: a number that it shares with no later process of its pid."""
    fields = _fields(pid)
    return fields[19] if fields and fields[0] not in "ZX" else ""


def _fields(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def bury(known: set[int]) -> None:
    """Forget the dead that were adopted. `known`: the others' ends are somebody's business."""
    for pid in set(_children(os.getpid())) - known:
        if is_dead(pid):
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)


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
