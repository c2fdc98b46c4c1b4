"""A full memory barrier: what is read after it is no older than what was written before it.

Python has none. A lock is none either: an acquire and a release let the store before the one and
the load after the other pass each other between the two, as ARM does. So this is a function of C,
shim/core/fence.c, which is the processor's own barrier on each (`dmb ish` on ARM, a locked
instruction on x86). A call takes 30 to 50 ns, a third of what the lock took.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from headway.live.wire.libraries import installed

LIBRARY = "libheadway_fence.so"


def _load() -> Callable[[], None]:
    try:
        path = installed(LIBRARY)
    except FileNotFoundError:
        return _missing
    # PyDLL keeps the interpreter's lock: letting it go would cost more than the barrier does.
    function = ctypes.PyDLL(str(path)).headway_fence
    function.argtypes, function.restype = (), None
    return function


def _missing() -> None:
    installed(LIBRARY)
    raise OSError(f"{LIBRARY} was missing when this process began")


fence: Callable[[], None] = _load()
