"""CUDA programs in scenarios: they take turns by the engine's own arbiter, in virtual time."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from typing import Any

import pytest

from headway.engine.events import Recorder
from headway.engine.reading import BadInput
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import parse_scenario, read_scenario
from headway.trace.checker import Checker

US, MS = 1000, 1_000_000
WAYS: dict[str, dict[str, Any]] = {
    "time-sliced": {"manager": {"kind": "none"}},
    "MPS": {"manager": {"kind": "none"}, "device": {"kind": "side-by-side"}},
    "Headway": {},
    "Headway + MPS": {"device": {"kind": "side-by-side"}},
    "Headway, one group": {"device": {"kind": "one-group"}},
}


def cuda(name: str, work: str, **more: Any) -> dict[str, Any]:
    """A task; keys of its `cuda` table are those that are not a task's own."""
    own: dict[str, Any] = {k: more.pop(k) for k in ("policy", "priority", "reserve") if k in more}
    steps = tomllib.loads(f"work = [{work}]")["work"]
    return {"name": name, **own, "cuda": {"work": steps, **more}}


def run(*tasks: dict[str, Any], until: str = "300ms", **top: Any) -> Outcome:
    """The checker has nothing to say against any of these runs."""
    checker = Checker()
    scenario = read_scenario({"task": list(tasks), "run": {"duration": until}, **top}, "test")
    outcome = simulate(scenario, observers=[Recorder(checker.feed)])
    assert checker.violations == []
    return outcome


def worst_ms(outcome: Outcome, task: str) -> float:
    return outcome.statistics.by_name()[task].responses.max / MS


def share(outcome: Outcome, task: str) -> float:
    return outcome.statistics.by_name()[task].gpu_ns / outcome.statistics.end_ns


HIGH = cuda("high", '{ kernel = "100us", count = 20 }', priority=9, period="10ms", offset="3ms")
LOW = cuda("low", '{ kernel = "100us", count = 64 }', priority=1)


@pytest.mark.parametrize("way", WAYS)
def test_a_program_alone_takes_what_its_work_takes(way: str) -> None:
    """20 kernels of 100 us, 2.1 us apart, and some 10 us of launching and seeing."""
    outcome = run(HIGH, **WAYS[way])
    assert 2.04 < worst_ms(outcome, "high") < 2.06
    assert share(outcome, "high") == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("way", ["Headway", "Headway + MPS", "Headway, one group"])
def test_an_important_program_waits_for_a_window_and_a_kernel_at_most(way: str) -> None:
    """And for the hardware's switch, where there is one."""
    outcome = run(HIGH, LOW, **WAYS[way])
    assert worst_ms(outcome, "high") < 2.06 + 0.2 * 9 / 8 + 0.1 + 0.14
    assert share(outcome, "low") > 0.7


def test_the_hardware_alone_makes_it_wait_for_a_slice_or_shares_kernel_by_kernel() -> None:
    assert 4.0 < worst_ms(run(HIGH, LOW, **WAYS["time-sliced"]), "high") < 4.4
    assert 3.8 < worst_ms(run(HIGH, LOW, **WAYS["MPS"]), "high") < 4.1


def test_programs_are_as_different_as_their_seeds() -> None:
    def job_times(seed: int) -> list[int]:
        task = cuda("a", '{ kernel = "100us" }', poisson="3ms", seed=seed)
        return [job.begun_ns for job in run(task).jobs["a"]]

    assert job_times(1) == job_times(1)
    assert job_times(1) != job_times(2)


def test_poisson_arrivals_have_the_mean_that_was_asked_for() -> None:
    task = cuda("a", '{ kernel = "10us" }', poisson="2ms", seed=5)
    assert len(run(task, until="4s").jobs["a"]) == pytest.approx(2000, rel=0.1)


def test_jobs_of_a_burst_come_at_once_and_then_none_for_as_long() -> None:
    task = cuda("a", '{ kernel = "100us" }', period="4ms", burst=3)
    begun = [job.begun_ns for job in run(task, until="100ms").jobs["a"]]
    gaps = [after - before for before, after in pairwise(begun)]
    assert len(begun) == 27
    assert [gap > 10 * MS for gap in gaps[:6]] == [False, False, True] * 2
    assert max(gap for gap in gaps if gap < 10 * MS) < 0.2 * MS


def test_a_program_that_rests_after_each_job_is_never_late() -> None:
    task = cuda("a", '{ kernel = "100us" }', rest="2ms", seed=5)
    jobs = run(task, until="4s").jobs["a"]
    rests = [after.begun_ns - before.ended_ns for before, after in pairwise(jobs)]
    assert sum(rests) / len(rests) == pytest.approx(2 * MS, rel=0.1)
    assert min(rests) >= 0


def test_a_program_ends_after_its_jobs_and_nobody_waits_for_it_then() -> None:
    few = cuda("few", '{ kernel = "1ms" }', priority=9, jobs=3)
    many = cuda("many", '{ kernel = "1ms" }', priority=1, jobs=20)
    outcome = simulate(read_scenario({"task": [few, many]}, "test"))
    assert {name: len(jobs) for name, jobs in outcome.jobs.items()} == {"few": 3, "many": 20}
    assert outcome.complete
    assert outcome.statistics.end_ns < 30 * MS


def test_a_job_with_synchronisations_inside_keeps_its_turn() -> None:
    """Eight times two kernels and 20 us of CPU time: others get nothing in between."""
    part = '{ kernel = "200us", count = 2 }, { sync = "all" }, { cpu = "20us" }'
    work = f"{{ repeat = 8, work = [{part}] }}"
    alone = run(cuda("high", work, priority=9, period="20ms"), until="1s")
    both = run(cuda("high", work, priority=9, period="20ms"), LOW, until="1s")
    learned = both.jobs["high"][20:]
    assert max(job.response_ns for job in learned) < worst_ms(alone, "high") * MS + 0.6 * MS


def test_between_the_first_jobs_that_anybody_sees_the_gpu_is_for_others_too() -> None:
    """A short job that waits twice for the GPU, every 2.4 ms. What its pauses mean is learned while
    it has its turn and asks for nothing: it takes a handful of jobs."""
    part = '{ kernel = "100us" }, { sync = "all" }'
    high = cuda("high", f"{part}, {part}", priority=9, period="2400us")
    assert share(run(high, LOW, until="60ms"), "low") > 0.5


def test_a_copy_leaves_the_multiprocessors_to_others() -> None:
    copies = cuda("copies", '{ copy = "16MiB", to = "host" }', priority=1)
    kernels = cuda("kernels", '{ kernel = "1ms" }', priority=1)
    outcome = run(copies, kernels, **WAYS["MPS"])
    assert share(outcome, "kernels") > 0.97
    assert share(outcome, "copies") == 0


def test_a_large_copy_goes_in_parts_where_somebody_is_more_important() -> None:
    """16 MiB take 0.3 ms: an important copy of 1 MiB waits for a part of 0.2 ms at most."""
    low = cuda("low", '{ copy = "64MiB", to = "device" }', priority=1)
    high = cuda("high", '{ copy = "1MiB", to = "device" }', priority=9, period="7ms")
    parts = worst_ms(run(low, high, **WAYS["Headway + MPS"]), "high")
    whole = worst_ms(run(low, high, **WAYS["MPS"]), "high")
    assert parts < 0.3
    assert whole > 1


def test_reserves_are_charged_for_turns_and_bound_them() -> None:
    reserves = [{"policy": "pe", "capacity": f"{ms}ms", "period": "100ms"} for ms in (30, 60)]
    a, b = (
        cuda(name, '{ kernel = "1ms", count = 10 }', reserve=reserve, priority=1)
        for name, reserve in zip("ab", reserves, strict=True)
    )
    outcome = run(a, b, until="3s")
    assert share(outcome, "a") == pytest.approx(0.30, abs=0.02)
    assert share(outcome, "b") == pytest.approx(0.60, abs=0.02)


CPU_BOUND = '{ repeat = 8, work = [{ kernel = "50us" }, { sync = "all" }, { cpu = "450us" }] }'


def test_a_scenario_chooses_the_controller_and_a_task_its_goal() -> None:
    """A CPU-bound job that takes 4 ms of 9, beside kernels of 100 us: an aimless controller and a
    tight goal leave others the pauses, a loose one all but what the job itself takes."""

    def others(**more: Any) -> float:
        manager = {"controller": more.pop("controller", "slowdown")}
        high = cuda("high", CPU_BOUND, priority=9, period="9ms") | more
        return share(run(high, LOW, until="2s", manager=manager, **WAYS["Headway + MPS"]), "low")

    assert others(controller="alone") < 0.7
    assert others(slowdown="1%") < 0.7
    assert others(slowdown="300%") > 0.9


COPIES = '{ copy = "64MiB", to = "device" }, { copy = "64MiB", to = "host" }'


GPU_BOUND = '{ kernel = "100us", count = 20 }'


@pytest.mark.parametrize(
    ("work", "period", "mix"),
    [(CPU_BOUND, "20ms", True), (GPU_BOUND, "20ms", False), (GPU_BOUND, "1500ms", True)],
    ids=["bound by its CPU", "bound by the GPU", "silent for long"],
)
def test_equals_take_turns_only_below_a_job_that_has_the_gpu_for_itself(
    work: str, period: str, mix: bool
) -> None:
    """Under MPS one that copies all the time leaves the multiprocessors to its equal."""
    high = cuda("high", work, priority=9, period=period)
    copies, kernels = cuda("copies", COPIES, priority=1), LOW | {"name": "kernels"}
    outcome = run(high, copies, kernels, until="1400ms", **WAYS["Headway + MPS"])
    peer = run(high, copies, kernels, until="1400ms", **WAYS["MPS"])
    late, there = (
        sum(job.ended_ns > 1050 * MS for job in one.jobs["kernels"]) for one in (outcome, peer)
    )
    kept = late / there
    assert (kept > 0.85) == mix
    assert kept > 0.4


def test_a_job_waits_for_an_equal_no_longer_than_for_the_gpus_own_slices() -> None:
    """The equal has long jobs and is bound by its CPU: it keeps the GPU for 9 ms."""
    work = '{ repeat = 20, work = [{ kernel = "50us" }, { sync = "all" }, { cpu = "400us" }] }'
    long = cuda("long", work, priority=9, period="23ms")
    short = cuda("short", GPU_BOUND, priority=9, period="11ms")
    sliced = worst_ms(run(long, short, **WAYS["time-sliced"]), "short")
    assert worst_ms(run(long, short), "short") < 1.1 * sliced < 3


def test_greedy_equals_keep_the_gpu_for_longer_than_its_slices() -> None:
    """Each turn that ends in the middle of a job costs a switch."""
    one, other = (cuda(name, '{ kernel = "500us", count = 200 }', priority=1) for name in "ab")
    switches = run(one, other).statistics.switches
    assert switches < run(one, other, **WAYS["time-sliced"]).statistics.switches / 2


def test_equals_with_budgets_take_turns_under_mps_too() -> None:
    reserve = {"policy": "pe", "capacity": "40ms", "period": "100ms"}
    copies = cuda("copies", COPIES, priority=1, reserve=reserve)
    kernels = cuda("kernels", '{ kernel = "1ms" }', priority=1, reserve=reserve)
    outcome = run(copies, kernels, until="1s", **WAYS["Headway + MPS"])
    assert share(outcome, "kernels") == pytest.approx(0.4, abs=0.03)


def test_a_period_is_known_to_headway_if_it_was_stated() -> None:
    stated = cuda("a", '{ kernel = "1ms" }', poisson="20ms") | {"period": "10ms"}
    (plan,) = read_scenario({"task": [stated]}, "test").tasks
    assert plan.program.period_ns == 10 * MS
    (plan,) = read_scenario({"task": [HIGH]}, "test").tasks
    assert plan.program.period_ns is None


def test_an_event_changes_who_is_important() -> None:
    a = cuda("a", '{ kernel = "500us" }', priority=1)
    b = cuda("b", '{ kernel = "500us" }', priority=9)
    event = [{"at": "150ms", "task": "a", "priority": 10}]
    outcome = run(a, b, event=event)
    assert share(outcome, "a") == pytest.approx(0.5, abs=0.05)
    assert share(outcome, "b") == pytest.approx(0.5, abs=0.05)


def test_who_dies_leaves_the_device_to_the_others() -> None:
    outcome = run(HIGH, LOW, event=[{"at": "100ms", "kill": "low"}])
    late = [job for job in outcome.jobs["high"] if job.begun_ns > 110 * MS]
    assert max(job.response_ns for job in late) < 2.06 * MS


# -- shares without a gate ---------------------------------------------------------------------

FILLS = '{ kernel = "1ms", blocks = 100 }'


def shared(until: str = "1s", **manager: Any) -> Outcome:
    """Two programs of 100 blocks each on 132 multiprocessors: the less important one may have 32,
    or the other one waits for its blocks."""
    high = cuda("high", FILLS, priority=9, deadline="1.2ms")
    low = cuda("low", FILLS, priority=1)
    return run(high, low, until=until, device={"kind": "side-by-side"}, manager=manager)


def test_a_controller_moves_shares_by_misses_without_a_gate() -> None:
    alone = shared(kind="none").jobs["high"]
    managed = shared(kind="shares", controller="bisection").jobs["high"]
    assert sum(job.missed for job in alone) > 0.4 * len(alone)
    assert sum(job.missed for job in managed) < 0.02 * len(managed)
    assert not any(job.missed for job in managed[-100:])


def test_a_restart_takes_a_program_away_and_counts_no_jobs_meanwhile() -> None:
    """Its jobs stop for as long as a restart takes, at each change of its share."""
    outcome = shared(kind="shares", controller="aimd", restart="50ms", restarts="every")
    begun = [job.begun_ns for job in outcome.jobs["low"]]
    away = [after - before for before, after in pairwise(begun) if after - before > 50 * MS]
    assert len(away) > 10
    assert all(ns < 60 * MS for ns in away)
    few = shared(kind="shares", controller="aimd", restart="50ms")
    assert len(few.jobs["low"]) > 2 * len(outcome.jobs["low"])


def test_a_program_that_dies_takes_its_share_with_it() -> None:
    high, low = cuda("high", FILLS, priority=9, deadline="1.2ms"), cuda("low", FILLS, priority=1)
    manager = {"kind": "shares", "controller": "bisection"}
    outcome = run(
        high,
        low,
        until="100ms",
        manager=manager,
        device={"kind": "side-by-side"},
        event=[{"at": "50ms", "kill": "low"}],
    )
    assert not any(job.missed for job in outcome.jobs["high"] if job.begun_ns > 60 * MS)


# -- what is refused ---------------------------------------------------------------------------

GOOD = """
[device]
kind = "time-sliced"
[manager]
kind = "headway"
[[task]]
name = "a"
[task.cuda]
period = "10ms"
work = [
  { kernel = "1ms" },
]
"""


@pytest.mark.parametrize(
    ("before", "after", "line", "words"),
    [
        (
            'kind = "time-sliced"',
            'kind = "mps"',
            3,
            "interleaved, one-group, side-by-side or time-sliced",
        ),
        ('kind = "time-sliced"', "speed = 3", 3, "the unknown key 'speed'"),
        ('kind = "time-sliced"', 'profile = "h100"', 3, "h200 or the path of a profile"),
        ('kind = "headway"', 'kind = "xsched"', 5, "headway, none or shares"),
        ('kind = "headway"', 'window = "0ms"', 5, "more than zero"),
        ('kind = "headway"', 'controller = "pid"', 5, "aimd, alone, bisection or slowdown"),
        ('name = "a"', 'name = "a"\nslowdown = 0.1', 8, 'a slowdown such as "10%"'),
        ('period = "10ms"', 'perod = "10ms"', 9, "the unknown key 'perod'"),
        (
            'period = "10ms"',
            'period = "1ms"\npoisson = "1ms"',
            10,
            "one of period, poisson and rest",
        ),
        ('{ kernel = "1ms" }', '{ kernel = "1ms", blocks = 0 }', 11, "a whole number from 1"),
        ('{ kernel = "1ms" }', '{ kernel = "1ms", cpu = "1ms", sync = 1 }', 11, "one of kernel"),
        ('{ kernel = "1ms" }', '{ cpu = "1ms" }', 10, "a kernel, graph or copy"),
        ('{ kernel = "1ms" }', '{ copy = "1MB" }', 11, '"64MiB"'),
        (
            '{ kernel = "1ms" }',
            '{ repeat = 99999, work = [{ sync = "all" }, { kernel = "1ms" }] }',
            11,
            "at most 100000",
        ),
        ('name = "a"', 'name = "a"\npolicy = "nix"', 8, "policy"),
    ],
)
def test_a_mistake_is_told_with_its_place(before: str, after: str, line: int, words: str) -> None:
    parse_scenario(GOOD)
    with pytest.raises(BadInput) as refused:
        parse_scenario(GOOD.replace(before, after, 1), "f.toml")
    problem = refused.value.problems[0]
    assert words in problem.describe("f.toml")
    assert problem.line in (line, line - 1)


def test_cuda_programs_share_a_device_with_their_like_only() -> None:
    text = GOOD + '[[task]]\nname = "b"\nperiodic = { period = "5ms", cost = "1ms" }\n'
    with pytest.raises(BadInput, match="periodic beside tasks with cuda"):
        parse_scenario(text)


def test_a_device_without_cuda_programs_has_no_kind() -> None:
    text = '[device]\nkind = "time-sliced"\n[[task]]\nname = "b"\ngreedy = { cost = "1ms" }\n'
    with pytest.raises(BadInput, match="unknown key 'kind'"):
        parse_scenario(text)
