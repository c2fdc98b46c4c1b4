"""The job detector: which of a program's pauses end its jobs, and what is known of these.

A port counts a program's pauses by length and keeps a record of each of its last jobs, split where
a pause was longer than the detector said. A program that keeps no records, as one that asks for
each turn by itself, has a job from each asking to each rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headway.engine.turns.arrivals import PeriodEstimator
from headway.engine.turns.pauses import Pauses, Split
from headway.engine.turns.port import JobReport, Port
from headway.engine.turns.usage import Usage

ALIKE = 8
"""So many jobs with the same number of pauses tell which pause ends the next one."""
TOLD = 32
"""Of the last so many jobs a port keeps records."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What it costs to give a turn away and get it back."""

    preemption_ns: int
    """The GPU does nothing for so long, or what the others have in flight."""
    loss_ns: int
    """What that is worth to the important program, in time that others get."""


class Jobs:
    """What one program's jobs are, and when they come."""

    def __init__(self) -> None:
        self.pauses = Pauses()
        self.arrivals = PeriodEstimator()
        self.usage = Usage()
        self.split: Split | None = None
        self.keep_ns = 0
        """How long a pause may last before the turn is given away."""
        self.tell_after = 1
        """With so many pauses a job is taken to be over; 0: pauses do not tell."""
        self._lengths: deque[int] = deque(maxlen=ALIKE)
        """How many pauses the last jobs had, the one included that ended each."""
        self.begun = 0
        """Jobs whose begin is known,"""
        self._ended = 0
        """and whose end is."""
        self._alike_from = 0
        """Jobs from this one on were told apart as they are now."""
        self._looked_ns: int | None = None
        self._asked: tuple[int, int] | None = None
        """Of a program that keeps no records: with which of its pauses a job began, and when."""

    # -- programs that keep records ----------------------------------------------------------

    def look(self, port: Port, now_ns: int) -> list[tuple[int, JobReport]]:
        """The jobs that have ended since the last look, as far as their records are still there."""
        begun = port.jobs_begun
        if not begun:
            return []
        span_ns = 0 if self._looked_ns is None else now_ns - self._looked_ns
        self._looked_ns = now_ns
        self.pauses.observe(port.pauses, span_ns)
        if begun - self.begun not in range(TOLD):
            self.begun = max(0, begun - TOLD)
        for number in range(self.begun, begun):
            self.arrivals.began(min(port.job(number).begun_ns, now_ns))
        self.begun = begun
        ended = begun if self.is_over(port, now_ns) else begun - 1
        first = max(self._ended, begun - TOLD) if self._ended <= begun else begun - 1
        self._ended = max(ended, first)
        return [(number, self._end(number, port, now_ns)) for number in range(first, ended)]

    def _end(self, number: int, port: Port, now_ns: int) -> JobReport:
        job = port.job(number).bounded(now_ns)
        if number >= self._alike_from:
            self._lengths.append(job.pauses)
        self.arrivals.lasted(job.ended_ns - job.begun_ns)
        return job

    def is_over(self, port: Port, now_ns: int) -> bool:
        """Whether the last job that began is over, as far as anybody can tell."""
        if port.busy or not port.jobs_begun:
            return False
        job = port.job(port.jobs_begun - 1)
        if job.closed:
            return True
        rest_ns = 0 if self.split is None else self.split.rest_ns
        return now_ns >= max(job.ended_ns, port.last_ns) + rest_ns

    def learn(self, port: Port, costs: Costs, period_ns: int | None) -> None:
        """Work out what pauses say, and publish what the program has to know of it."""
        before, self.split = self.split, self.pauses.split(period_ns)
        if _differ(before, self.split):
            self._alike_from = port.jobs_begun
            self._lengths.clear()
            self.usage = Usage()  # what it knew was of other jobs
        self.keep_ns = self.pauses.keep_ns(self.split, costs.preemption_ns, costs.loss_ns)
        self.tell_after = self._tell_after()
        port.set_jobs(0 if self.split is None else self.split.rest_ns, self.tell_after)

    def _tell_after(self) -> int:
        if self.split is None:
            return 0 if self.keep_ns else 1
        if len(self._lengths) == ALIKE and len(set(self._lengths)) == 1:
            return self._lengths[0]
        return 0

    def gives_up_ns(self, port: Port, now_ns: int) -> int:
        """When the program, which pauses, gives up its turn if it does not go on."""
        last_ns = min(port.last_ns, now_ns)
        if not port.jobs_begun:
            return last_ns
        job = port.job(port.jobs_begun - 1)
        over = job.closed or (self.tell_after and job.pauses >= self.tell_after)
        return last_ns if over else last_ns + self.keep_ns

    # -- programs whose jobs are frames ------------------------------------------------------

    def frames(self, port: Port, now_ns: int) -> list[tuple[int, JobReport]]:
        """The frames that were shown since the last look, as far as their records are still there.
        The program says itself when each was over."""
        begun = port.jobs_begun
        first = max(self._ended, begun - TOLD) if self._ended <= begun else max(0, begun - TOLD)
        self._ended = begun
        return [(number, port.job(number).bounded(now_ns)) for number in range(first, begun)]

    # -- programs that keep none -------------------------------------------------------------

    def asked(self, paused: int, now_ns: int) -> bool:
        """It asks for a turn when it has paused so often: whether a job begins."""
        if self._asked is not None and self._asked[0] == paused:
            return False
        self._asked = paused, now_ns
        self.arrivals.began(now_ns)
        return True

    def rested(self, now_ns: int) -> tuple[int, JobReport] | None:
        """It has nothing more to do for now: the job that is over."""
        asked, self._asked = self._asked, None
        if asked is None:
            return None
        self.arrivals.lasted(now_ns - asked[1])
        self._ended += 1
        return self._ended - 1, JobReport(begun_ns=asked[1], ended_ns=now_ns, closed=True)


def _differ(one: Split | None, other: Split | None) -> bool:
    """Whether jobs that are told apart by the one are others than those by the other."""
    if one is None or other is None:
        return one is not other
    return max(one.rest_ns, other.rest_ns) > 2 * min(one.rest_ns, other.rest_ns)
