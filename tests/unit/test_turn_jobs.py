"""Turns of programs with several synchronisations in a job, whether others stay beside them, and
programs that come at any time: without processes, with our clock."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from headway.engine.controllers.slowdown import Slowdown
from headway.engine.events import Observer
from headway.engine.jobs import Job
from headway.engine.turns.pauses import bin_of
from headway.engine.turns.port import JobReport
from headway.live.gate.channel import Channel
from headway.live.wire.layout import CLIENT_PAGE, JOBS
from headway.live.wire.protocol import (
    RELEASE,
    Message,
    build_job,
)
from tests.bench.gate import MS
from tests.bench.pieces import PieceBench, is_open
from tests.bench.turns import is_leased
from tests.pages import page

US = 1000


class Ended(Observer):
    """Keeps the jobs that have ended."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def job_ended(self, job: Job, now_ns: int) -> None:
        self.jobs.append(job)


class Records(PieceBench):
    """Programs that keep records of their jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = Ended()
        self.engine.attach(self.ended)
        self.now_ns = 0
        self._last: dict[Channel, JobReport] = {}
        self._counts: dict[Channel, int] = {}
        self._paused: dict[Channel, int] = {}

    def go(self, to_ns: int) -> None:
        self.run_until(to_ns)
        self.now_ns = to_ns

    def record(self, channel: Channel, report: JobReport) -> None:
        assert channel.pages is not None
        self._last[channel] = report
        number = self._counts[channel] - 1
        os.pwrite(channel.pages.client_fd, build_job(report), CLIENT_PAGE.at("job", number % JOBS))
        self.write(channel, "jobs", number + 1)

    def begin_work(self, channel: Channel) -> None:
        """It wants the GPU now: it has its lease, or asks."""
        last, now_ns = self._last.get(channel), self.now_ns
        pause_ns = now_ns - self._paused.get(channel, now_ns)
        if last is not None:
            assert channel.pages is not None
            place = bin_of(pause_ns)
            self.write(channel, "pauses", channel.pages.pauses[place] + 1, place)
        if last is None or pause_ns >= page(channel, "rest_ns"):
            self._counts[channel] = self._counts.get(channel, 0) + 1
            self.record(channel, JobReport(now_ns, now_ns))
        self.write(channel, "busy", 1)
        if not is_leased(channel):
            self.announce(channel, now_ns)

    def pause(self, channel: Channel, waited_ns: int = 0) -> None:
        """All of its work is done, and it has seen that."""
        assert channel.pages is not None
        last = self._last[channel]
        pauses, waited_ns = last.pauses + 1, last.waited_ns + waited_ns
        report = JobReport(
            last.begun_ns, self.now_ns, 0, waited_ns, groups=last.groups + 1, pauses=pauses
        )
        self.record(channel, report)
        self._paused[channel] = self.now_ns
        self.write(channel, "paused", channel.pages.paused + 1)
        self.write(channel, "last_ns", self.now_ns)
        self.write(channel, "busy", 0)
        after = page(channel, "tell_after")
        wanted = channel.pages.wanted and 0 < after <= pauses
        if wanted or not is_leased(channel):
            self.arbiter.heard(
                channel, Message(RELEASE, channel.request.seq, frame=True), self.now_ns
            )

    def request(
        self, channel: Channel, waits: int = 4, *, gap_us: int = 200, work_us: int = 500
    ) -> list[bool]:
        """A request that waits for the GPU so often: whether it found a lease each time."""
        found = []
        for number in range(waits):
            found.append(is_leased(channel))
            self.begin_work(channel)
            self.go(self.now_ns + work_us * US)
            self.pause(channel, work_us * US)
            if number + 1 < waits:
                self.go(self.now_ns + gap_us * US)
        return found


@pytest.fixture
def bench() -> Iterator[Records]:
    bench = Records()
    yield bench
    assert bench.checker.violations == []
    bench.close()


def greedy(bench: Records) -> Channel:
    """Work of it always waits at its gate."""
    low = bench.turner("low", 1, policy="overlap", at_ns=bench.now_ns)
    bench.announce(low, bench.now_ns)
    bench.pieces(low, given=9, ended=9, opened=1, closed=1)
    return low


def learned(bench: Records, waits: int = 4) -> Channel:
    """An important program whose requests are known."""
    high = bench.turner("high", 9, policy="overlap")
    numbers = random.Random(1)
    for _ in range(30):
        bench.request(high, waits + numbers.randrange(3) if waits > 1 else 1)
        bench.go(bench.now_ns + numbers.randrange(10, 30) * MS)
    return high


def test_no_synchronisation_inside_a_job_costs_it_its_turn(bench: Records) -> None:
    high = learned(bench)
    low = greedy(bench)
    for waits in (4, 7, 20):
        assert bench.request(high, waits) == [False] + [True] * (waits - 1)
        assert is_leased(high)
        assert not is_open(low)
        bench.go(bench.now_ns + 2 * MS)
        assert is_open(low), "and when it rests others go"
        bench.go(bench.now_ns + 20 * MS)


def test_which_pause_is_the_last_is_learned_where_all_jobs_are_alike(bench: Records) -> None:
    """Then the others need not wait until it is clear that it was."""
    high = bench.turner("high", 9, policy="overlap")
    low = greedy(bench)
    for _ in range(40):
        bench.request(high, 4)
        bench.go(bench.now_ns + 20 * MS)
    bench.request(high, 4)
    assert is_open(low)


def test_the_first_jobs_of_a_program_that_nobody_knows_lose_little(bench: Records) -> None:
    high = bench.turner("high", 9, policy="overlap")
    greedy(bench)
    lost = 0
    for _ in range(12):
        lost += bench.request(high, 20).count(False)
        bench.go(bench.now_ns + 20 * MS)
    assert lost <= 12 + 2 * 20, "two jobs, and the begin of each"


def test_a_pause_that_is_worth_two_switches_is_filled(bench: Records) -> None:
    high = learned(bench)
    low = greedy(bench)
    bench.request(high, 3)
    bench.go(bench.now_ns + 10 * MS)  # it thinks
    assert is_open(low)
    jobs = len(bench.ended.jobs)
    assert bench.request(high, 3)[1:] == [True, True]
    assert len(bench.ended.jobs) <= jobs + 1


def test_a_program_that_goes_on_while_its_turn_is_taken_keeps_it(
    bench: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw its lease a moment before that was taken back: all it has sent is on the GPU, and
    nobody would ask for it again."""
    high = learned(bench, waits=1)
    low = greedy(bench)
    bench.begin_work(high)
    assert high.pages is not None
    set_lease = high.pages.set_lease

    def and_begin(on: bool) -> None:
        if not on and not high.pages.busy:  # type: ignore[union-attr]
            bench.write(high, "busy", 1)  # just before
        set_lease(on)

    monkeypatch.setattr(high.pages, "set_lease", and_begin)
    bench.go(bench.now_ns + 500 * US)
    bench.pause(high, 500 * US)
    assert is_leased(high)
    assert not is_open(low)


def test_what_is_said_late_of_the_job_before_does_not_end_the_next(bench: Records) -> None:
    """Requests that come at any time come back to back at times."""
    high = learned(bench, waits=1)
    low = greedy(bench)
    bench.begin_work(high)
    bench.go(bench.now_ns + 500 * US)
    bench.write(high, "busy", 0)
    bench.write(high, "busy", 1)  # and again, under its lease, before that was heard
    bench.arbiter.heard(high, Message(RELEASE, high.request.seq, frame=True), bench.now_ns)
    assert is_leased(high)
    assert not is_open(low)


def test_each_job_is_told_once_with_its_own_times(bench: Records) -> None:
    high = learned(bench)
    greedy(bench)
    bench.arbiter.look_at_jobs(high, bench.now_ns)
    bench.ended.jobs.clear()
    begun = []
    for _ in range(5):
        begun.append(bench.now_ns)
        bench.request(high, 5)
        bench.go(bench.now_ns + 20 * MS)
        bench.arbiter.look_at_jobs(high, bench.now_ns)
    mine = [job for job in bench.ended.jobs if job.task is high.task]
    assert [job.begun_ns for job in mine] == begun
    assert {job.response_ns for job in mine} == {5 * 500 * US + 4 * 200 * US}
    assert {job.waited_ns for job in mine} == {5 * 500 * US}


# -- beside ----------------------------------------------------------------------------------------


def eager(bench: Records) -> Channel:
    """An important program that is bound by its CPU, under MPS."""
    high = bench.turner("high", 9, policy="overlap")
    high.company.side_by_side, high.company.controller = True, Slowdown()
    for _ in range(10):
        request(bench, high, waited_us=20)
        bench.go(bench.now_ns + 20 * MS)
    return high


def request(bench: Records, high: Channel, *, waited_us: int) -> None:
    bench.begin_work(high)
    bench.go(bench.now_ns + 5 * MS)
    bench.pause(high, waited_us * US)
    bench.arbiter.look_at_jobs(high, bench.now_ns)


@pytest.mark.parametrize("first", ["low", "high"])
def test_others_stay_beside_a_job_that_stands_them(bench: Records, first: str) -> None:
    high = eager(bench)
    if first == "high":
        bench.begin_work(high)
    low = greedy(bench)
    if first == "low":
        bench.begin_work(high)
    for _ in range(3):
        assert is_leased(high)
        assert is_open(low)
        bench.go(bench.now_ns + 5 * MS)
        bench.pause(high, 20 * US)
        bench.go(bench.now_ns + 20 * MS)
        assert is_open(low)
        bench.begin_work(high)


def test_they_stop_for_it_when_they_cost_it_too_much(bench: Records) -> None:
    high = eager(bench)
    low = greedy(bench)
    for _ in range(8):
        request(bench, high, waited_us=4000 if is_open(low) else 20)
        bench.go(bench.now_ns + 20 * MS)
    bench.begin_work(high)
    assert is_leased(high)
    assert not is_open(low)
    bench.go(bench.now_ns + 5 * MS)
    bench.pause(high, 20 * US)
    bench.go(bench.now_ns + 20 * MS)
    assert is_open(low)


def test_a_part_of_a_jobs_time_is_shared_where_all_of_it_is_too_much(bench: Records) -> None:
    high = eager(bench)
    low = greedy(bench)
    request(bench, high, waited_us=4000)
    assert high.task is not None
    assert high.task.corun == 0.5
    bench.go(bench.now_ns + 20 * MS)
    bench.begin_work(high)
    opened = 0
    for _ in range(400):
        bench.go(bench.now_ns + 100 * US)
        opened += is_open(low)
    assert 150 < opened < 250
    bench.pause(high, 20 * US)
    bench.go(bench.now_ns + 20 * MS)
    assert is_open(low)


def test_who_stands_others_itself_still_has_its_turn_after_one_that_stands_nobody(
    bench: Records,
) -> None:
    """It is the more important one that stands the other, or does not."""
    high = bench.turner("high", 9, policy="overlap")
    for _ in range(10):
        request(bench, high, waited_us=4000)
        bench.go(bench.now_ns + 20 * MS)
    low = greedy(bench)
    assert high.task is not None
    assert low.task is not None
    low.task.corun = 1.0
    bench.begin_work(high)
    assert not is_open(low)
    bench.go(bench.now_ns + 5 * MS)
    assert not is_open(low)
    bench.pause(high, 20 * US)
    bench.go(bench.now_ns + 200 * MS)
    assert is_open(low)


def test_who_is_bound_by_the_gpu_has_it_for_itself(bench: Records) -> None:
    high = eager(bench)
    low = greedy(bench)
    bench.begin_work(high)
    assert is_open(low)
    bench.go(bench.now_ns + 5 * MS)
    bench.pause(high, 20 * US)
    high.jobs.usage = type(high.jobs.usage)()
    for _ in range(5):
        high.jobs.usage.alone(5 * MS, 4 * MS, 1)
    bench.go(bench.now_ns + 20 * MS)
    request(bench, high, waited_us=4000)
    bench.go(bench.now_ns + 20 * MS)
    bench.begin_work(high)
    assert is_leased(high)
    assert not is_open(low)


def test_who_has_to_stop_in_the_middle_of_a_job_goes_on_after_it(bench: Records) -> None:
    """What became of jobs is seen by a look at the page, and nothing else happens then."""
    high = eager(bench)
    low = greedy(bench)
    for _ in range(12):
        bench.begin_work(high)
        bench.go(bench.now_ns + 5 * MS)
        if is_open(low):
            bench.pause(high, 4 * MS)
        else:
            bench.pause(high, 20 * US)
        bench.begin_work(high)  # the next one, when the last is looked at
        bench.arbiter.look_at_jobs(high, bench.now_ns)
        bench.go(bench.now_ns + 5 * MS)
        assert is_leased(high)
        bench.pause(high, 20 * US)
        bench.go(bench.now_ns + 20 * MS)
        assert is_open(low)
    assert high.task is not None
    assert high.task.corun < 1
