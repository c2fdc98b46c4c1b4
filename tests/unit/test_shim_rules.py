"""Rules of the interposer's code that its compiler does not know."""

from __future__ import annotations

import re
from pathlib import Path

SHIM = Path(__file__).resolve().parents[2] / "shim"
LOCKS = {"core/own.h": "HW_HOLD", "stream/lanes.c": "hw_lock, which LOCKED of turn.c takes"}


def test_locks_are_taken_where_cancellation_is_off() -> None:
    """A thread that is cancelled under a lock leaves it locked for ever. So locks are taken by
    what turns cancellation off, and by nobody else."""
    taken = {
        str(path.relative_to(SHIM))
        for path in SHIM.rglob("*.[ch]")
        if re.search(r"pthread_mutex_lock|pthread_rwlock|sem_wait|call_once", path.read_text())
    }
    assert taken == set(LOCKS)


def test_the_turns_lock_is_taken_from_a_program_by_one_way_in() -> None:
    """hw_lock by itself says nothing of cancellation: only who is inside may use it."""
    uses = {
        str(path.relative_to(SHIM)): len(re.findall(r"\bhw_lock\(\)", path.read_text()))
        for path in SHIM.rglob("*.c")
    }
    assert {name for name, count in uses.items() if count} == {"stream/lanes.c", "stream/turn.c"}
