"""Whether the daemon polls instead of sleeping, which takes a CPU, and saves some 50 us each turn.

If nobody says so it does where CPUs are plenty and free: on a busy machine the CPU that it takes
would be missed by the programs it serves.
"""

from __future__ import annotations

import os

PLENTY = 4
"""So many CPUs at least: the programs', one for whatever else there is, and this one."""
AUTO_NS = 20_000_000
"""Longer than most pauses of a program with work."""


def auto_ns() -> int:
    """For how long to poll after a program was heard, on this machine."""
    return AUTO_NS if (os.cpu_count() or 1) >= PLENTY else 0


def is_free() -> bool:
    """Whether a CPU has nothing to do, as of the last minute."""
    try:
        return os.getloadavg()[0] < (os.cpu_count() or 1)
    except OSError:
        return False
