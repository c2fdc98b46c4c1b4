"""Conduct: programs that keep the GPU too long, and how long others put up with it.

A program keeps the GPU too long if it has not given it back within the hold while somebody waits
who is at least as important. The program then owes an answer: that its group is done, or that it
uses its lease no more. Whether it lies, is stopped or has long groups cannot be seen from outside:

- *Patience*: with every answer that is owed, or came too late, the hold of the process becomes
  shorter. Whatever a program says or does not say, the others wait for moments.
- *Standing*: a process that asks again without having answered, as no honest program does, is
  served after its equals, then after everybody, and then is unmanaged for a time.

All of that is by process, because a connection costs nothing, and forgiven with time. A process
costs little either: once one of a user's is unmanaged, newcomers of that user get little patience
until they have shown that they give the GPU back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import IntEnum

from headway.engine.turns.client import Client

PATIENCE = ((4, 30), (2, 4))
"""With so many troubles the hold is divided by so much. One may happen to anybody."""
AFTER_EQUALS, LAST, UNMANAGED = 4, 6, 8
"""So many groups without an answer lead to that standing."""
FORGIVEN_NS = 10_000_000_000
"""In this time one trouble of each kind is forgiven."""
AWAY_NS = 10_000_000_000
"""For so long a process is unmanaged the first time, and twice as long each time after,"""
MOST_DOUBLED = 6
"""up to so many times, until everything is forgiven."""
SUSPECT_NS = 60_000_000_000
"""For so long after a process became unmanaged newcomers of its user get little patience."""
SHOWN = 10
"""So many groups that were answered for end that for a newcomer."""
REMEMBERED = 1000
"""So many processes are remembered that have troubles and no connection."""


class Standing(IntEnum):
    """How a process is served."""

    GOOD = 0
    AFTER_EQUALS = 1
    LAST = 2
    UNMANAGED = 3


@dataclass(frozen=True, slots=True)
class _Owed:
    """A client kept the GPU too long, and has not said yet that it is done."""

    since_ns: int
    """When others began to wait for it,"""
    lost_ns: int
    """and when it lost the GPU."""
    granted: bool
    """It was let go with a group, which it says the end of; else it has a lease."""
    progress: tuple[object, ...]
    """What it had said of its lease."""


@dataclass(slots=True, eq=False)
class Record:
    """The conduct of one process."""

    user: Hashable
    process: Hashable
    is_suspect: bool = False
    """It came when others of its user had just become unmanaged."""
    clients: dict[Client, None] = field(default_factory=dict)
    owed: dict[Client, _Owed] = field(default_factory=dict)
    late: int = 0
    """How often it answered too late, or not at all."""
    silent: int = 0
    """How often it went on without having answered."""
    kept: int = 0
    """How many groups it answered for in time."""
    forgiven_ns: int = 0
    """Up to when time has been taken for forgiving."""
    standing: Standing = Standing.GOOD
    times_away: int = 0
    away_until_ns: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.late or self.silent or self.owed or self.away_until_ns)

    @property
    def troubles(self) -> int:
        """What costs patience."""
        return self.late + len(self.owed)

    @property
    def unanswered(self) -> int:
        """What costs standing. Groups on the GPU count until they are answered for; a lease does
        not, because a program that has nothing to do may keep the mark of one."""
        return self.silent + sum(owed.granted for owed in self.owed.values())

    def forgive(self, now_ns: int) -> None:
        """Time has passed."""
        times = max(0, (now_ns - self.forgiven_ns) // FORGIVEN_NS)
        self.forgiven_ns += times * FORGIVEN_NS
        self.late, self.silent = max(0, self.late - times), max(0, self.silent - times)
        if now_ns >= self.away_until_ns:
            self.away_until_ns = 0
        if self.is_clean:
            self.times_away = 0


class Conduct:
    """The records of all processes at the gate, and of those with troubles that have left."""

    def __init__(self, hold_ns: int, *, sends_away: bool = False) -> None:
        """`sends_away`: whether a process can become unmanaged at all."""
        self.hold_ns = hold_ns
        """How long others wait for whoever is on the GPU."""
        self._sends_away = sends_away
        self.tell: Callable[[Record, int], None] = lambda record, now_ns: None
        """Called when a process has another standing."""
        self._records: dict[Hashable, Record] = {}
        self._left: dict[Hashable, None] = {}
        """Processes without a connection, the first to leave first."""
        self._suspect_until_ns: dict[Hashable, int] = {}
        """By user."""
        self.demotions = 0
        """How often a process got a worse standing."""

    # -- who is there ------------------------------------------------------------------------

    def admits(self, process: Hashable, now_ns: int) -> bool:
        """Whether a process may come to the gate now: it is not unmanaged."""
        record = self._records.get(process)
        if record is None:
            return True
        self._judge(record, now_ns)
        return record.standing < Standing.UNMANAGED

    def joins(self, client: Client, now_ns: int) -> None:
        """A client comes to the gate."""
        record = self._records.get(client.identity)
        if record is None:
            record = Record(client.user, client.identity)
            record.is_suspect = now_ns < self._suspect_until_ns.get(client.user, now_ns)
            self._records[client.identity] = record
        self._left.pop(record.process, None)
        record.clients[client] = None
        client.record = record
        if not record.is_clean:
            self._judge(record, now_ns)

    def leaves(self, client: Client, now_ns: int) -> int:
        """Its connection is over. Who closes one instead of answering has not answered. Returns for
        how long it overran: see `answered`."""
        record = client.record
        if record is None:
            return 0
        client.record = None
        del record.clients[client]
        owed = record.owed.pop(client, None)
        if owed is not None and record.standing < Standing.UNMANAGED:
            self._add(record, now_ns, silent=owed.granted)
        if not record.clients:
            self._dismiss(record, now_ns)
        return self._overran_ns(owed, now_ns)

    def _dismiss(self, record: Record, now_ns: int) -> None:
        """The process has no connection any more."""
        record.forgive(now_ns)
        if record.is_clean:
            del self._records[record.process]
            return
        self._left[record.process] = None
        while len(self._left) > REMEMBERED:
            first = next(iter(self._left))
            del self._left[first], self._records[first]

    def start_over(self) -> None:
        """Everybody's connection is over, and not by their doing."""
        for record in self._records.values():
            for client in record.clients:
                client.record = None
            record.clients.clear()
            record.owed.clear()
            self._left[record.process] = None

    # -- what they do ------------------------------------------------------------------------

    def patience_ns(self, client: Client) -> int:
        """How long somebody at least as important waits for this client."""
        record = client.record
        if record is None:
            return self.hold_ns
        if record.is_suspect and record.kept < SHOWN:
            return self.hold_ns // PATIENCE[0][1]
        troubles = record.troubles
        for number, part in PATIENCE:
            if troubles >= number:
                return self.hold_ns // part
        return self.hold_ns

    def overdue(self, client: Client, since_ns: int, now_ns: int) -> None:
        """It lost the GPU, for which others as important have waited since then."""
        record = client.record
        if record is None:
            return
        if client in record.owed:
            self._add(record, now_ns)
        if record.is_clean:
            record.forgiven_ns = now_ns
        record.owed[client] = _Owed(since_ns, now_ns, not client.leased, _progress(client))
        self._judge(record, now_ns)

    def answered(self, client: Client, now_ns: int) -> int:
        """It is done with what it had on the GPU. Returns for how long it overran: patience is less
        than the hold so that others wait less, not so that less is paid for."""
        record = client.record
        if record is None:
            return 0
        owed = record.owed.pop(client, None)
        if owed is None:
            record.kept += 1
            return 0
        if now_ns - owed.since_ns > self.hold_ns:  # else it was in time, for all that was known
            self._add(record, now_ns)
        self._judge(record, now_ns)
        return self._overran_ns(owed, now_ns)

    def _overran_ns(self, owed: _Owed | None, now_ns: int) -> int:
        """For a group: up to when it would have lost the GPU to others who wait for the whole hold.
        A lease is charged for what its program says, too."""
        if owed is None or not owed.granted:
            return 0
        return max(0, min(now_ns, owed.since_ns + self.hold_ns) - owed.lost_ns)

    def asks(self, client: Client, now_ns: int) -> int:
        """It wants the GPU again. Returns for how long it overran: see `answered`."""
        record = client.record
        if record is None or record.is_clean:
            return 0
        owed = record.owed.pop(client, None)
        if owed is not None:
            silent = owed.granted or owed.progress == _progress(client)
            if silent or now_ns - owed.since_ns > self.hold_ns:
                self._add(record, now_ns, silent=silent)
        self._judge(record, now_ns)
        return self._overran_ns(owed, now_ns)

    def _add(self, record: Record, now_ns: int, *, silent: bool = False) -> None:
        record.forgive(now_ns)
        record.forgiven_ns = now_ns
        record.late += 1
        record.silent += silent

    def _judge(self, record: Record, now_ns: int) -> None:
        """See what its standing is now."""
        record.forgive(now_ns)
        if self._sends_away and record.silent >= UNMANAGED and not record.away_until_ns:
            away_ns = AWAY_NS << min(record.times_away, MOST_DOUBLED)
            record.away_until_ns = record.forgiven_ns = now_ns + away_ns
            record.times_away += 1
            record.silent = LAST  # so it comes back
            self._suspect_until_ns[record.user] = now_ns + SUSPECT_NS
        standing = _earned(record)
        if standing != record.standing:
            self.demotions += standing > record.standing
            record.standing = standing
            self.tell(record, now_ns)

    def away(self, now_ns: int) -> list[Record]:
        """Processes that are unmanaged."""
        return [self._records[p] for p in self._left if now_ns < self._records[p].away_until_ns]


def _earned(record: Record) -> Standing:
    if record.away_until_ns:
        return Standing.UNMANAGED
    if record.unanswered >= LAST:
        return Standing.LAST
    return Standing.AFTER_EQUALS if record.unanswered >= AFTER_EQUALS else Standing.GOOD


def _progress(client: Client) -> tuple[object, ...]:
    """What a program says of its work; that it changes says more than what it is."""
    if client.port is None:
        return ()
    report = client.port.report
    return report.passed, report.used_ns, report.last_ns, report.paused, report.pieces, report.busy
