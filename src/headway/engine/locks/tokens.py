"""The token allocator of a cluster: a k-exclusion lock with one FIFO queue for each token.

The first job of a queue holds the queue's token; the others wait in order. Jobs for which the
queues have no room stand in a priority queue, the overflow. What happens at the two seams, when a
job finds no room and when a place becomes free, is the order's: `donation.py` or `by_priority.py`.

Every event is atomic: its rule, then the repair of the overflow, then the grants, which the methods
return. A call that the rules forbid raises LockError and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Protocol

from headway.engine.locks.jobs import Base, Grant, Job, LockError, Place
from headway.engine.locks.settings import AllocatorSettings


def _base(job: Job) -> Base:
    return job.base


class Placement(Protocol):
    """Chooses among queues, donors and donees where the rules leave a choice to affinity."""

    any_queue: bool
    """Whether the job that fills a free place may enter a queue other than the one with room."""

    def queue(self, job: Job, locks: TokenAllocator) -> int:
        """The queue that the job enters; one with `nominal` below the length limit."""

    def enters(self, job: Job, token: int) -> None:
        """The job now stands in this queue."""

    def leaves(self, job: Job, token: int) -> None:
        """The job no longer stands in this queue."""

    def donee(self, donor: Job, locks: TokenAllocator, lowest: Job) -> Job:
        """Which job `donor` lends to; `lowest` has the lowest rank of all."""

    def donor(self, token: int, donors: list[Job]) -> Job:
        """Which donor enters when this token is free; `donors` are sorted, strongest last."""

    def stolen(self, token: int, locks: TokenAllocator, *, waited_for: bool) -> Job | None:
        """Which waiter of another queue moves to this empty one. `waited_for`: a job was to enter
        this queue and went elsewhere, so only a waiter that gains moves."""


class ShortestQueue:
    """Placement without affinity: the shortest queue, an idle token before any other."""

    any_queue = False

    def queue(self, job: Job, locks: TokenAllocator) -> int:
        best = -1
        best_key = (0, 0)
        for token, queue in enumerate(locks.queues):
            if not locks.has_room(token):
                continue
            key = (len(queue), locks.held_on(locks.settings.device_of(token)))
            if best < 0 or key < best_key:
                best, best_key = token, key
        return best

    def enters(self, job: Job, token: int) -> None:
        pass

    def leaves(self, job: Job, token: int) -> None:
        pass

    def donee(self, donor: Job, locks: TokenAllocator, lowest: Job) -> Job:
        return lowest

    def donor(self, token: int, donors: list[Job]) -> Job:
        return donors[-1]

    def stolen(self, token: int, locks: TokenAllocator, *, waited_for: bool) -> Job | None:
        waiting = [job for queue in locks.queues for job in queue[1:]]
        return max(waiting, key=lambda job: locks.lender(job).base, default=None)


class TokenAllocator(ABC):
    """State and events that both orders share."""

    def __init__(self, settings: AllocatorSettings, placement: Placement | None = None) -> None:
        for key, found, expected in settings.mistakes():
            raise LockError(f"{key}: found {found}, expected {expected}")
        self.settings = settings
        self.placement: Placement = ShortestQueue() if placement is None else placement
        self.queues: list[list[Job]] = [[] for _ in range(settings.tokens)]
        self.overflow: list[Job] = []
        """By base priority, the strongest last."""
        self.donors: list[Job] = []
        """By base priority, the strongest last. Empty under priority order."""
        self.in_queues = 0
        """Requests in the FIFO queues, without virtually unlocked holders."""
        self._holders: list[Job | None] = [None] * settings.tokens
        self._held = [0] * settings.devices
        self._ranked: list[Base] = []
        self._granted: list[Grant] = []

    # -- questions ---------------------------------------------------------------------------

    def holder(self, token: int) -> Job | None:
        """The job that holds this token."""
        return self._holders[token]

    def holds(self, job: Job) -> bool:
        """Whether the job holds a token of this allocator."""
        return job.token >= 0 and self._holders[job.token] is job

    def waits(self, job: Job) -> bool:
        """Whether the job has asked and holds no token yet."""
        return job.place is not Place.NOWHERE and not self.holds(job)

    def held_on(self, device: int) -> int:
        """How many tokens of this device are held now."""
        return self._held[device]

    def nominal(self, token: int) -> int:
        """The length of a queue without a virtually unlocked holder."""
        queue = self.queues[token]
        return len(queue) - (1 if queue and queue[0].virtual else 0)

    def has_room(self, token: int) -> bool:
        """Whether a queue is shorter than the length limit."""
        limit = self.settings.length
        return limit is None or self.nominal(token) < limit

    def in_top(self, job: Job) -> bool:
        """Whether the job is among the m strongest of all that hold a token or wait for one."""
        ranked, top = self._ranked, self.settings.top
        return len(ranked) <= top or job.base >= ranked[-top]

    def jobs(self) -> Iterator[Job]:
        """Every job that holds a token or waits for one."""
        for queue in self.queues:
            yield from queue
        yield from self.overflow
        yield from self.donors

    @abstractmethod
    def lender(self, job: Job) -> Job:
        """The job whose base priority this one runs with because of tokens; itself if nobody
        lends to it. The answer is a job and no number, so a deadline that moves is followed."""

    # -- events ------------------------------------------------------------------------------

    def request(self, job: Job) -> list[Grant]:
        """The job asks for a token."""
        if job.place is not Place.NOWHERE:
            what = "holds a token" if self.holds(job) else "has a request outstanding"
            raise LockError(f"{job.name} asks for a token, but {what}; release or cancel it first")
        insort(self._ranked, job.base)
        self._admit(job)
        return self._settle()

    def release(self, job: Job) -> list[Grant]:
        """The holder gives its token back."""
        if not self.holds(job):
            raise LockError(f"{job.name} releases a token, but holds none")
        self._leave(job)
        return self._settle()

    def cancel(self, job: Job) -> list[Grant]:
        """The job died or gave up. A holder must have given its units back before."""
        if job.place is Place.NOWHERE:
            raise LockError(f"{job.name} is cancelled, but has no request and no token")
        self._leave(job)
        return self._settle()

    def change(self, job: Job, priority: int) -> list[Grant]:
        """The job's base priority is another. A waiter whose priority falls asks anew, and may
        lose its place in a FIFO queue."""
        new: Base = (priority, job.base[1])
        if job.place is Place.NOWHERE or new == job.base:
            job.base = new
            return []
        if new < job.base and self.waits(job):
            self._leave(job)
            self._repair()
            job.base = new
            insort(self._ranked, new)
            self._admit(job)
        else:
            self._reposition(job, new)
        return self._settle()

    def unlock_virtually(self, job: Job) -> list[Grant]:
        """The holder overran its budget under bandwidth inheritance: it keeps its token and no
        longer counts, so that one more request comes into the queues."""
        if not self.holds(job) or job.virtual:
            what = "has lost its place already" if job.virtual else "holds no token"
            raise LockError(f"{job.name} is to be unlocked virtually, but {what}")
        self._uncount(job)
        job.virtual = True
        donor = self._end_donation(job)
        self._fill(job.token, donor, anywhere=True)
        return self._settle()

    # -- the orders' part --------------------------------------------------------------------

    @abstractmethod
    def _admit(self, job: Job) -> None:
        """Rules Q: where a request goes."""

    @abstractmethod
    def _next(self, token: int, donor: Job | None) -> Job | None:
        """Rules F1 to F3: who takes the place that became free in this token's queue. `donor` is
        the donor of the job that left; the job returned stands nowhere."""

    def _repair(self) -> None:
        """Rule R: what may leave the overflow after an event."""

    def _end_donation(self, donee: Job) -> Job | None:
        """The donor of a job, which then stands nowhere; None if the job had none."""
        return None

    # -- inside ------------------------------------------------------------------------------

    def _settle(self) -> list[Grant]:
        self._repair()
        granted, self._granted = self._granted, []
        return granted

    def _room_in_all(self) -> bool:
        cap = self.settings.cap
        return cap is None or self.in_queues < cap

    def _overflow(self, job: Job) -> None:
        job.place = Place.OVERFLOW
        insort(self.overflow, job, key=_base)

    def _enter(self, job: Job, token: int) -> None:
        """To the tail of this queue."""
        queue = self.queues[token]
        if not queue:
            self._held[self.settings.device_of(token)] += 1
        queue.append(job)
        job.place = Place.QUEUE
        job.token = token
        self.in_queues += 1
        self.placement.enters(job, token)
        self._grant_first(token)

    def _grant_first(self, token: int) -> None:
        """Rule G: the first of a queue holds its token from the instant it is the first."""
        queue = self.queues[token]
        first = queue[0] if queue else None
        if first is not self._holders[token]:
            self._holders[token] = first
            if first is not None:
                self._granted.append(Grant(token, first))

    def _step_out(self, job: Job) -> None:
        """Out of its queue, without the rest of an exit."""
        token = job.token
        queue = self.queues[token]
        queue.remove(job)
        if not queue:
            self._held[self.settings.device_of(token)] -= 1
        self.placement.leaves(job, token)
        job.place = Place.NOWHERE
        job.token = -1

    def _uncount(self, job: Job) -> None:
        """The job no longer counts: not among the strongest, not in the queues' number."""
        del self._ranked[bisect_left(self._ranked, job.base)]
        self.in_queues -= 1

    def _leave(self, job: Job) -> None:
        """Rule X, and what cancellation makes of it for those that wait."""
        if job.place is Place.OVERFLOW:
            del self.overflow[bisect_left(self.overflow, job.base, key=_base)]
        elif job.place is Place.DONOR:
            assert job.donee is not None
            self._end_donation(job.donee)
        if job.place is not Place.QUEUE:
            del self._ranked[bisect_left(self._ranked, job.base)]
            job.place = Place.NOWHERE
            return
        token, was_virtual, was_holder = job.token, job.virtual, self.holds(job)
        donor = self._end_donation(job)
        if not was_virtual:
            self._uncount(job)
        self._step_out(job)
        job.virtual = False
        if was_holder:
            self._holders[token] = None
        filled = not was_virtual and self._fill(token, donor)
        if was_holder and not self.queues[token]:
            self._steal(token, waited_for=filled)
        self._grant_first(token)

    def _fill(self, token: int, donor: Job | None, *, anywhere: bool = False) -> bool:
        """A place became free in this token's queue: whether a job took it. `anywhere`: the
        entrant chooses its queue."""
        entrant = self._next(token, donor)
        if entrant is None:
            return False
        if anywhere or self.placement.any_queue:
            self._enter(entrant, self.placement.queue(entrant, self))
        else:
            self._enter(entrant, token)
        return True

    def _steal(self, token: int, *, waited_for: bool) -> None:
        """Rule F4: a waiter of another queue moves to this empty one, its donor with it."""
        job = self.placement.stolen(token, self, waited_for=waited_for)
        if job is None:
            return
        self._step_out(job)
        self.in_queues -= 1
        self._enter(job, token)

    def _reposition(self, job: Job, new: Base) -> None:
        """Another base priority in the same place."""
        if not job.virtual:
            del self._ranked[bisect_left(self._ranked, job.base)]
            insort(self._ranked, new)
        sorted_list = {Place.OVERFLOW: self.overflow, Place.DONOR: self.donors}.get(job.place)
        if sorted_list is not None:
            del sorted_list[bisect_left(sorted_list, job.base, key=_base)]
        job.base = new
        if sorted_list is not None:
            insort(sorted_list, job, key=_base)
