"""Token order "donation": the R2DGLP, and the k-FMLP where the queues are unlimited.

A request that finds the FIFO queues full and is among the m strongest lends its priority to the
weakest request in them and takes that one's place when it leaves. So a strong request waits for a
bounded number of sections, and FIFO queues stay FIFO.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from headway.engine.locks.jobs import Base, Job, Place
from headway.engine.locks.tokens import TokenAllocator


def _base(job: Job) -> Base:
    return job.base


def rank(job: Job) -> Base:
    """What a job in a FIFO queue is worth: its donor's base priority, else its own."""
    return job.base if job.donor is None else job.donor.base


class DonationAllocator(TokenAllocator):
    """Rules Q1 to Q3, F1 to F3 and R."""

    def lender(self, job: Job) -> Job:
        best = job
        if job.place is not Place.QUEUE:
            return best
        if job.donor is not None and job.donor.base > best.base:
            best = job.donor
        if self._holders[job.token] is not job:
            return best
        for waiter in self.queues[job.token]:
            if waiter.base > best.base:
                best = waiter
            donor = waiter.donor
            if donor is not None and donor.base > best.base:
                best = donor
        return best

    def _admit(self, job: Job) -> None:
        if self._room_in_all():
            self._enter(job, self.placement.queue(job, self))
        elif not (self.in_top(job) and self._donate(job)):
            self._overflow(job)

    def _donate(self, job: Job) -> bool:
        """Rule Q2: the job lends to the one of lowest rank, if that is below its own priority."""
        lowest: Job | None = None
        for queue in self.queues:
            for member in queue:
                if not member.virtual and (lowest is None or rank(member) < rank(lowest)):
                    lowest = member
        if lowest is None or rank(lowest) >= job.base:
            return False
        donee = self.placement.donee(job, self, lowest)
        displaced = self._end_donation(donee)
        if displaced is not None:
            self._overflow(displaced)
        donee.donor, job.donee = job, donee
        job.place = Place.DONOR
        insort(self.donors, job, key=_base)
        return True

    def _end_donation(self, donee: Job) -> Job | None:
        donor = donee.donor
        if donor is None:
            return None
        del self.donors[bisect_left(self.donors, donor.base, key=_base)]
        donee.donor = donor.donee = None
        donor.place = Place.NOWHERE
        return donor

    def _next(self, token: int, donor: Job | None) -> Job | None:
        if donor is not None:
            return donor
        head = self.overflow[-1] if self.overflow else None
        if self.donors and not (head is not None and self.in_top(head)):
            chosen = self.placement.donor(token, self.donors)
            assert chosen.donee is not None
            return self._end_donation(chosen.donee)
        return self.overflow.pop() if self.overflow else None

    def _repair(self) -> None:
        while self.overflow and self.in_top(self.overflow[-1]):
            head = self.overflow.pop()
            if not self._donate(head):
                self.overflow.append(head)
                return
