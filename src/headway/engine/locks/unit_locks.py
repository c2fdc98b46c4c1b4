"""Locks of the units of a cluster's devices: one for each execution engine and copy engine.

All units of a cluster use one order. FIFO: a request takes what is free, waits for the rest and
keeps what it has. By priority: a request takes all its units or none, and a unit that the head of
its queue cannot use yet stays free for it. Neither can deadlock: under FIFO a group joins all its
queues in one step, by priority nobody holds a unit while waiting.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence

from headway.engine.locks.jobs import Base, Job, LockError

KINDS = ("ee", "ce0", "ce1")
"""The execution engine of a device and its copy engines."""
Key = tuple[Base, Base]
ORDERS = ("fifo", "priority")


class Unit:
    """One unit of one device."""

    __slots__ = ("device", "kind", "owner", "queue")

    def __init__(self, device: int, kind: str) -> None:
        self.device = device
        self.kind = kind
        self.owner: Job | None = None
        self.queue: list[Claim] = []
        """By arrival, or the strongest first."""

    def __repr__(self) -> str:
        return f"{self.kind} of device {self.device}"


class Claim:
    """A job waits for units."""

    __slots__ = ("job", "key", "missing", "units")

    def __init__(self, job: Job, units: tuple[Unit, ...], key: Key) -> None:
        self.job = job
        self.units = units
        self.key = key
        """Effective priority, then the job's own: for the priority order."""
        self.missing = len(units)


def _weakness(claim: Claim) -> tuple[int, ...]:
    """Sorts the strongest first."""
    (priority, order), (own, own_order) = claim.key
    return (-priority, -order, -own, -own_order)


def _itself(job: Job) -> Job:
    return job


class UnitLocks:
    """The unit locks of a cluster. Methods that can start jobs return those that now own all they
    asked for, in the order in which they got it."""

    def __init__(
        self,
        devices: Iterable[int],
        order: str = "fifo",
        *,
        copy_units: int = 2,
        lender: Callable[[Job], Job] = _itself,
    ) -> None:
        """`lender` says whose priority a job has through tokens."""
        if order not in ORDERS:
            raise LockError(f"order: found {order!r}, expected {' or '.join(ORDERS)}")
        if copy_units not in (1, 2):
            raise LockError(f"copy_units: found {copy_units}, expected 1 or 2")
        kinds = KINDS[: 1 + copy_units]
        self.by_priority = order == "priority"
        self.units = {(d, kind): Unit(d, kind) for d in devices for kind in kinds}
        self.claims = 0
        """How many jobs wait."""
        self._lender = lender

    def unit(self, device: int, kind: str) -> Unit:
        """A unit by its place; LockError if there is none."""
        found = self.units.get((device, kind))
        if found is None:
            devices = sorted({d for d, _ in self.units})
            raise LockError(f"found {kind} of device {device}, expected a unit of {devices}")
        return found

    def effective(self, job: Job) -> Job:
        """The job whose base priority this one runs with: through tokens and through its units."""
        best = self._lender(job)
        for unit in job.owned:
            for claim in unit.queue:
                waiter = self.effective(claim.job)
                if waiter.base > best.base:
                    best = waiter
        return best

    # -- events ------------------------------------------------------------------------------

    def request(self, job: Job, units: Sequence[Unit]) -> list[Job]:
        """The job asks for one unit, or for several at once (a peer-to-peer copy)."""
        if job.claim is not None:
            raise LockError(f"{job.name} asks for {_shown(units)}, but waits for units already")
        if job.owned:
            raise LockError(
                f"{job.name} asks for {_shown(units)}, but owns {_shown(job.owned)}; "
                "a job asks for all the units of one operation at once"
            )
        if not units or len({id(unit) for unit in units}) < len(units):
            raise LockError(f"{job.name} asks for {_shown(units)}, expected different units")
        if len(units) == 1 and units[0].owner is None and not units[0].queue:
            units[0].owner = job
            job.owned.append(units[0])
            return [job]
        claim = Claim(job, tuple(units), (job.base, job.base))
        job.claim = claim
        self.claims += 1
        if self.by_priority:
            claim.key = self._key(job)
            for unit in claim.units:
                if len(unit.queue) == 1:  # `refresh` leaves the key of a lone waiter as it was
                    unit.queue[0].key = self._key(unit.queue[0].job)
                insort(unit.queue, claim, key=_weakness)
            return self._grant(claim.units)
        started: list[Job] = []
        for unit in claim.units:
            if unit.owner is None:
                self._take(claim, unit, started)
            else:
                unit.queue.append(claim)
        return started

    def release(self, job: Job) -> list[Job]:
        """The job gives back all its units, in reverse order."""
        if not job.owned or job.claim is not None:
            what = "owns none" if not job.owned else "waits for more"
            raise LockError(f"{job.name} releases units, but {what}")
        return self._give_back(job)

    def cancel(self, job: Job) -> list[Job]:
        """The job died or gave up: it leaves every queue and gives back what it has."""
        claim = job.claim
        if claim is not None:
            for unit in claim.units:
                if claim in unit.queue:
                    unit.queue.remove(claim)
            job.claim = None
            self.claims -= 1
            if self.by_priority:
                return self._grant(claim.units)
        return self._give_back(job)

    def refresh(self) -> list[Job]:
        """Priorities of waiters may have changed: queues by priority are sorted anew. Call after
        every event of the token allocator."""
        if not self.by_priority or self.claims < 2:
            return []
        changed: list[Unit] = []
        for unit in self.units.values():
            if len(unit.queue) < 2:
                continue
            head = unit.queue[0]
            for claim in unit.queue:
                claim.key = self._key(claim.job)
            unit.queue.sort(key=_weakness)
            if unit.queue[0] is not head:
                changed.append(unit)
        return self._grant(changed)

    def may_keep(self, job: Job) -> bool:
        """Whether the job may go on with the next chunk without giving its units back: nobody
        waits, or, by priority, nobody stronger than what the job has through tokens."""
        if not self.by_priority:
            return not any(unit.queue for unit in job.owned)
        own = self._lender(job).base
        heads = (unit.queue[0].job for unit in job.owned if unit.queue)
        return not any(self.effective(head).base > own for head in heads)

    # -- inside ------------------------------------------------------------------------------

    def _key(self, job: Job) -> Key:
        return (self.effective(job).base, job.base)

    def _take(self, claim: Claim, unit: Unit, started: list[Job]) -> None:
        unit.owner = claim.job
        claim.job.owned.append(unit)
        claim.missing -= 1
        if not claim.missing:
            claim.job.claim = None
            self.claims -= 1
            started.append(claim.job)

    def _give_back(self, job: Job) -> list[Job]:
        free = job.owned[::-1]
        job.owned.clear()
        for unit in free:
            unit.owner = None
        if self.by_priority:
            return self._grant(free)
        started: list[Job] = []
        for unit in free:
            if unit.queue:
                self._take(unit.queue.pop(0), unit, started)
        return started

    def _grant(self, units: Iterable[Unit]) -> list[Job]:
        """By priority: free units go to the heads of their queues, where these can have all."""
        started: list[Job] = []
        for unit in units:
            if unit.owner is not None or not unit.queue:
                continue
            claim = unit.queue[0]
            if all(other.owner is None and other.queue[0] is claim for other in claim.units):
                for other in claim.units:
                    other.queue.pop(0)
                    self._take(claim, other, started)
        return started


def _shown(units: Sequence[Unit]) -> str:
    return " and ".join(map(repr, units)) or "no unit"
