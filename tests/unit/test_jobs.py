"""The job detector, how busy the GPU is in jobs, and what others cost them: with our clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from headway.engine.controllers import controllers
from headway.engine.controllers.slowdown import FIRST, LEAST, STEP, Slowdown
from headway.engine.core import Engine
from headway.engine.jobs import Job
from headway.engine.priorities import Fixed
from headway.engine.turns import corunning
from headway.engine.turns.client import Client
from headway.engine.turns.jobs import ALIKE, TOLD, Costs, Jobs
from headway.engine.turns.pauses import BINS, bin_of
from headway.engine.turns.port import JobReport
from headway.engine.turns.usage import KNOWN, Usage

US, MS = 1000, 1_000_000
COSTS = Costs(MS // 2, 5 * MS)


@dataclass
class Program:
    """Keeps records as the interposer does; the part of a port that a job detector looks at."""

    busy: bool = False
    last_ns: int = 0
    jobs_begun: int = 0
    pauses: list[int] = field(default_factory=lambda: [0] * BINS)
    rest_ns: int = 0
    tell_after: int = 1
    records: list[JobReport] = field(default_factory=list)

    def job(self, number: int) -> JobReport:
        assert number > self.jobs_begun - 1 - TOLD
        return self.records[number]

    def set_jobs(self, rest_ns: int, tell_after: int) -> None:
        self.rest_ns, self.tell_after = rest_ns, tell_after

    def work(self, at_ns: int) -> None:
        pause_ns = at_ns - self.last_ns
        if self.records:
            self.pauses[bin_of(pause_ns)] += 1
        if not self.records or pause_ns >= self.rest_ns or self.records[-1].closed:
            self.records.append(JobReport(begun_ns=at_ns, ended_ns=at_ns))
            self.jobs_begun += 1
        self.busy = True

    def pause(self, at_ns: int, waited_ns: int = 0) -> None:
        last = self.records[-1]
        waited_ns += last.waited_ns
        self.records[-1] = replace(
            last,
            ended_ns=at_ns,
            pauses=last.pauses + 1,
            groups=last.groups + 1,
            waited_ns=waited_ns,
        )
        self.busy, self.last_ns = False, at_ns


class Bench:
    """A program and what is known of its jobs."""

    def __init__(self) -> None:
        self.program, self.jobs = Program(), Jobs()
        self.now_ns = 0
        self.told: list[tuple[int, JobReport]] = []

    def look(self) -> None:
        self.told += self.jobs.look(self.program, self.now_ns)  # type: ignore[arg-type]
        self.jobs.learn(self.program, COSTS, None)  # type: ignore[arg-type]

    def request(self, waits: int, rest_ns: int = 20 * MS) -> None:
        """A request that waits so often for the GPU, 0.5 ms each time, 0.2 ms apart."""
        for number in range(waits):
            self.program.work(self.now_ns)
            self.now_ns += 500 * US
            self.program.pause(self.now_ns, waited_ns=450 * US)
            self.now_ns += 200 * US if number + 1 < waits else rest_ns
        self.look()


def test_a_synchronisation_does_not_end_a_job() -> None:
    bench = Bench()
    for number in range(40):
        bench.request(3 + number % 4)
    lengths = [report.ended_ns - report.begun_ns for _, report in bench.told[-8:]]
    assert lengths == [(3 + n % 4) * 700 * US - 200 * US for n in range(32, 40)]
    numbers = [number for number, _ in bench.told]
    assert numbers == sorted(set(numbers))


def test_which_pause_ends_a_job_is_known_where_all_have_as_many() -> None:
    bench = Bench()
    for _ in range(20 + ALIKE):
        bench.request(4)
    assert bench.jobs.tell_after == bench.program.tell_after == 4
    program, now_ns = bench.program, bench.now_ns
    for number in range(4):
        program.work(now_ns)
        program.pause(now_ns + 100 * US)
        over_ns = bench.jobs.gives_up_ns(program, now_ns + 100 * US)  # type: ignore[arg-type]
        assert (over_ns == program.last_ns) == (number == 3)
        now_ns += 200 * US
    for number in range(ALIKE):
        bench.request(3 + number % 2)
    assert bench.jobs.tell_after == 0


def test_where_each_job_waits_once_its_end_is_known_at_once() -> None:
    bench = Bench()
    for _ in range(40):
        bench.request(1)
    assert (bench.program.rest_ns, bench.program.tell_after) == (0, 1)
    program = bench.program
    assert bench.jobs.gives_up_ns(program, bench.now_ns) == program.last_ns  # type: ignore[arg-type]
    assert len(bench.told) == 40


def test_what_a_program_says_itself_to_be_a_job_is_one() -> None:
    bench = Bench()
    for _ in range(30):
        bench.request(5)
    program = bench.program
    program.work(bench.now_ns)
    program.pause(bench.now_ns + 100 * US)
    program.records[-1] = replace(program.records[-1], closed=True)
    bench.now_ns += 101 * US
    bench.look()
    assert bench.told[-1][1].closed


def test_records_that_were_not_looked_at_in_time_are_left_out() -> None:
    bench = Bench()
    for _ in range(3 * TOLD):
        bench.program.work(bench.now_ns)
        bench.now_ns += MS
        bench.program.pause(bench.now_ns)
        bench.now_ns += MS
    bench.look()
    assert [number for number, _ in bench.told] == list(range(2 * TOLD, 3 * TOLD))


def test_whatever_a_program_says_its_jobs_are_possible() -> None:
    bench = Bench()
    bench.now_ns = 10 * MS
    bench.program.records = [JobReport(1 << 60, 1 << 61, 0, 1 << 31, 1 << 31, closed=True)]
    bench.program.jobs_begun = 1
    bench.look()
    ((_, report),) = bench.told
    assert report.begun_ns <= report.ended_ns <= 10 * MS
    assert report.waited_ns + report.held_ns <= report.ended_ns - report.begun_ns
    for begun in (5, (1 << 32) - 1, 0, 3):
        bench.program.jobs_begun = begun
        bench.program.records = [JobReport()] * 8
        bench.program.job = lambda number: JobReport()  # type: ignore[method-assign]
        bench.look()


# -- how busy the GPU is, and what others cost ---------------------------------------------------


def test_who_waits_for_the_gpu_is_told_from_who_is_waited_for() -> None:
    busy, eager = Usage(), Usage()
    for _ in range(KNOWN):
        busy.alone(2 * MS, 1_800 * US, 20)
        eager.alone(14 * MS, 700 * US, 400)
    assert busy.gpu_share == pytest.approx(0.9)
    assert eager.gpu_share == pytest.approx(0.05)
    assert Usage().gpu_share is None


def test_what_others_cost_is_what_is_waited_longer() -> None:
    """However long the program's own CPU takes."""
    usage = Usage()
    for number in range(16):
        usage.alone((10 + number) * MS, 500 * US, 100)
    assert usage.slowdown(30 * MS, 500 * US, 100) == 0
    assert usage.slowdown(12 * MS, 2_500 * US, 100) == pytest.approx(0.2)
    assert usage.slowdown(24 * MS, 5_000 * US, 200) == pytest.approx(0.2), "a job twice as long"


def client(gpu_share: float, *, side_by_side: bool = True, policy: str = "overlap") -> Client:
    made = Client(1, 0, Slowdown())
    made.task, _ = Engine().add_task("detector", 0, policy=policy)
    made.company.side_by_side = side_by_side
    for _ in range(KNOWN):
        made.jobs.usage.alone(10 * MS, int(gpu_share * 10 * MS), 10)
    return made


@pytest.mark.parametrize(
    ("made", "level"),
    [
        (client(0.1), 1.0),
        (client(0.9), 0.0),
        (client(0.1, side_by_side=False), 0.0),
        (client(0.1, policy="prt"), 0.0),
    ],
)
def test_others_stay_beside_who_is_bound_by_its_cpu_where_both_run_side_by_side(
    made: Client, level: float
) -> None:
    assert corunning.level_of(made) == level


def judged(made: Client, waited_ns: int, deadline_ns: int = 0) -> Job:
    report = JobReport(0, 10 * MS + waited_ns, deadline_ns, waited_ns, groups=10)
    return corunning.judge(made, 0, report, 0.1)


def test_jobs_that_others_slow_down_too_much_take_most_from_them_at_once() -> None:
    made = client(0.0)
    made.company.until_ns = None  # somebody is there
    for missed in range(1, 4):
        job = judged(made, 12 * MS)
        assert job.missed
        assert job.slowdown == pytest.approx(1.2)
        assert corunning.level_of(made) == 0.5**missed
    judged(made, 12 * MS)
    assert corunning.level_of(made) == 0


def test_who_may_be_slowed_down_more_lets_others_stay() -> None:
    """The same jobs, 20 % longer than alone, with each of two goals."""
    for goal, level in ((0.1, 0.0), (0.3, 1.0)):
        made = client(0.0)
        made.company.until_ns = None
        for number in range(100):
            report = JobReport(0, 12 * MS, 0, 2 * MS, groups=10)
            corunning.judge(made, number, report, goal)
        assert corunning.level_of(made) == level


def test_what_others_cost_is_seen_in_the_mean_of_some_jobs() -> None:
    made = client(0.0)
    made.company.until_ns = None
    for number in range(100):
        judged(made, (number % 8 == 0) * 5 * MS)
    assert corunning.level_of(made) == 1
    for _ in range(4):
        judged(made, 2 * MS)
    assert corunning.level_of(made) == 0.5


def test_what_was_taken_is_given_back_slowly_and_later_after_each_miss() -> None:
    made = client(0.0)
    made.company.until_ns = None
    for missed in range(4):
        judged(made, 12 * MS)
        level = corunning.level_of(made)
        waited = 0
        while corunning.level_of(made) == level:
            assert not judged(made, MS // 2).missed
            waited += 1
        assert waited == FIRST * 2**missed + 1
        assert level < corunning.level_of(made) <= level + (2 * STEP + LEAST) / 1000
    levels = []
    for _ in range(60):
        judged(made, 0)
        levels.append(corunning.level_of(made))
    assert levels == sorted(levels)
    assert levels[-1] == 1


def test_so_little_of_a_jobs_time_that_it_is_of_no_use_is_none() -> None:
    """Whatever the controller's floor is: in space 1 % is something, in time it is not."""
    made = client(0.1)
    assert made.task is not None
    made.company.controller = controllers()["bisection"]()
    other, _ = Engine().add_task("training", 0, priority=Fixed(-1))
    for task in (made.task, other):
        made.company.controller.joins(task)
    made.company.until_ns, made.deadline_ns = None, 1
    levels = []
    for number in range(8):
        report = JobReport(20 * number * MS, (20 * number + 9) * MS, groups=10)
        corunning.judge(made, number, report, 0.1)
        levels.append(corunning.level_of(made))
    assert levels == [0.5, 0.25, 0.125, 0.0, 0.0, 0.0, 0.0, 0.0]
    made.company.in_space = True
    assert corunning.level_of(made) == 1.0


def test_a_deadline_is_what_counts_where_there_is_one() -> None:
    made = client(0.0)
    made.company.until_ns = None
    made.deadline_ns = 20 * MS
    assert not judged(made, 5 * MS).missed
    assert judged(made, 11 * MS).missed
    assert judged(made, 0, deadline_ns=5 * MS).missed, "the program's own goes first"


@pytest.mark.parametrize(("deadline_ns", "level"), [(16 * MS, 500), (20 * MS, 1000), (None, 1000)])
def test_a_frame_that_breaks_its_rate_takes_from_the_others(
    deadline_ns: int | None, level: int
) -> None:
    """A frame rate is a stated period or deadline; without one nobody knows what a miss is."""
    made = client(0.0)
    assert made.task is not None
    made.deadline_ns = deadline_ns
    report = JobReport(begun_ns=0, ended_ns=18 * MS, held_ns=MS, closed=True)
    job = corunning.judge_frame(made, 0, report, 0.1)
    assert job.missed is (level < 1000)
    assert made.company.controller.level(made.task) == level


def test_jobs_that_began_before_a_change_say_nothing_of_it() -> None:
    """Several may have ended since the last look: all of them beside what others had before."""
    made = client(0.0)
    assert made.task is not None
    made.company.until_ns, made.deadline_ns = None, 4 * MS

    def look(number: int, begun_ms: int, now_ms: int) -> int:
        report = JobReport(begun_ns=begun_ms * MS, ended_ns=(begun_ms + 5) * MS, closed=True)
        assert corunning.judge(made, number, report, 0.1, now_ms * MS).missed
        assert made.task is not None
        return made.company.controller.level(made.task)

    assert [look(number, 10 * number, 100) for number in range(10)] == 10 * [500]
    assert look(10, 100, 110) == 250


def test_a_job_without_others_is_never_slowed_down_by_them_and_says_what_is_usual() -> None:
    made = client(0.0)
    for _ in range(16):
        assert not judged(made, 4 * MS).missed
    made.company.until_ns = None
    assert not judged(made, 4 * MS).missed


def test_controllers_are_found_by_their_names() -> None:
    assert {"alone", "slowdown", "aimd", "bisection"} <= controllers().keys()
    assert controllers()["slowdown"] is Slowdown
    alone, task = controllers()["alone"](), client(0.1).task
    assert task is not None
    assert alone.level(task) == 0 < LEAST
