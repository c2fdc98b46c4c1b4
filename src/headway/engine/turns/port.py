"""Ports: what can be read of a program at the gate, and what is published to it.

The live daemon's ports are pages of memory that a program and the daemon share; the simulator's are
simulated programs. What a program says is a hint: it may say anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a program says of one of its jobs."""

    begun_ns: int = 0
    """When it wanted the GPU for it."""
    ended_ns: int = 0
    """When it last had seen that all of its work was done."""
    deadline_ns: int = 0
    """As the program itself said; 0: it said nothing."""
    waited_ns: int = 0
    """For how long it waited for the GPU,"""
    held_ns: int = 0
    """and at its gate."""
    groups: int = 0
    pauses: int = 0
    """How often all of its work was done."""
    closed: bool = False
    """It said that the job is over."""

    def bounded(self, now_ns: int) -> JobReport:
        """The same as far as it is possible: it may say anything."""
        ended_ns = min(self.ended_ns, now_ns)
        begun_ns = min(self.begun_ns, ended_ns)
        waited_ns = min(self.waited_ns, ended_ns - begun_ns)
        held_ns = min(self.held_ns, ended_ns - begun_ns - waited_ns)
        return replace(
            self, begun_ns=begun_ns, ended_ns=ended_ns, waited_ns=waited_ns, held_ns=held_ns
        )


class Report(Protocol):
    """A copy of all that a program says, made at one instant."""

    @property
    def busy(self) -> bool:
        """Something went to the GPU under a lease, and may still be there."""

    @property
    def passed(self) -> int:
        """Groups that went under leases so far."""

    @property
    def used_ns(self) -> int:
        """GPU time of these groups."""

    @property
    def last_ns(self) -> int:
        """When the last of its work was done."""

    @property
    def paused(self) -> int:
        """How often all of its work was done, and the program has seen that."""

    @property
    def gated(self) -> bool:
        """Its work waits on the GPU itself for the gate to open."""

    @property
    def waiting(self) -> bool:
        """A thread of the program waits for the GPU."""

    @property
    def unmarked(self) -> bool:
        """Work went whose end nothing tells."""

    @property
    def marked(self) -> bool:
        """Work went that a mark stands behind, and the GPU has not written that mark yet."""

    @property
    def piece_ns(self) -> int:
        """How long the piece takes to which work was added last, as predicted."""

    @property
    def pieces(self) -> bytes:
        """Of each stream how many pieces were given, ended, begun and done; to compare."""

    @property
    def drains(self) -> bool:
        """The program uses the GPU, or may."""

    @property
    def runs(self) -> bool:
        """Pieces are on the GPU to which nothing more is added."""


class Port(Protocol):
    """One program's end of the gate."""

    # -- read --------------------------------------------------------------------------------

    @property
    def report(self) -> Report: ...

    # The same, each without copying the rest.

    @property
    def busy(self) -> bool: ...
    @property
    def asks(self) -> int:
        """Turns the program has asked for without waiting for the answer."""

    @property
    def paused(self) -> int: ...
    @property
    def passed(self) -> int: ...
    @property
    def used_ns(self) -> int: ...
    @property
    def last_ns(self) -> int: ...
    @property
    def counts(self) -> tuple[int, int, int]:
        """Groups, frames and GPU time under leases."""

    @property
    def gated(self) -> bool: ...
    @property
    def pending(self) -> bool:
        """Pieces wait on the GPU for the gate to open."""

    @property
    def trails(self) -> bool:
        """Pieces are on the GPU, or may be."""

    @property
    def piece_ns(self) -> int: ...
    @property
    def waiting(self) -> bool: ...
    @property
    def end_reached(self) -> bool:
        """The program waits for its work, and the GPU has done all but the last copy of it."""

    @property
    def jobs_begun(self) -> int:
        """Jobs so far; 0: the program keeps no records of them."""

    def job(self, number: int) -> JobReport:
        """The record of one of the last jobs, of which 0 was the first."""

    @property
    def pauses(self) -> Sequence[int]:
        """How many pauses so far were of each length (see pauses.py)."""

    @property
    def share(self) -> int:
        """Which share the program's last group kept to that was confined, in thousandths; 0: none
        was yet."""

    @property
    def whole(self) -> int:
        """Groups so far that had all multiprocessors though they were to have fewer."""

    def is_stopped(self) -> bool:
        """Somebody has stopped the process, as Ctrl-Z does."""

    # -- published ---------------------------------------------------------------------------

    @property
    def shows_lease(self) -> bool: ...
    @property
    def wanted(self) -> bool: ...
    @property
    def window_ns(self) -> int: ...
    def set_lease(self, on: bool) -> None:
        """Give the program a lease, with an open gate, or take it back. Nothing read after this is
        older than this."""

    def keep_lease(self) -> None:
        """Give a lease again that was closed in advance."""

    def hold_back(self, on: bool) -> None:
        """Keep the gate on the GPU closed though there is a lease, or no longer."""

    def open_early(self) -> None:
        """Open the gate on the GPU just before the lease is given."""

    def set_wanted(self, on: bool, *, marks: bool = False) -> None:
        """Others wait: the program is to say when its work is done, if `marks` also by the GPU."""

    def set_waits(self, on: bool) -> None:
        """That the program wants a turn is known: it need not ask again."""

    def set_at_once(self, on: bool) -> None:
        """A turn may begin with the asking for it."""

    def set_polled(self, on: bool) -> None:
        """The port is looked at all the time: what is seen there need not be said."""

    def set_jobs(self, rest_ns: int, tell_after: int) -> None:
        """A pause that is longer than this ends a job. If others wait the program is to say when a
        job had so many pauses; 0: it need not."""

    def set_split(self, split_ns: int) -> None:
        """Groups of more than this are split; 0: none."""

    def set_share(self, permille: int) -> None:
        """The program may use this part of the multiprocessors, in thousandths."""

    def set_window(self, window_ns: int, longest_ns: int) -> None:
        """No more predicted work than a window is in flight; 0: any. A piece of a program that is
        slower than the GPU, so that little of the piece is in flight, may become so long."""


Owner = tuple[Any, ...]
"""Whose groups are the same groups: equal signatures of different owners mean different work."""
