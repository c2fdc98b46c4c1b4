"""Statistics: exact where they can be, bounded where they must be."""

import random
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import Event, Recorder
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario
from headway.trace.analysis import read_history, summarise
from headway.trace.checker import check
from headway.trace.statistics import BINS, EXACT, Quantiles, Series, Statistics

MS = 1_000_000
S = 1_000 * MS


def nearest_rank(samples: list[int], percent: int) -> int:
    ordered = sorted(samples)
    return ordered[max(0, ceil(Fraction(percent, 100) * len(ordered)) - 1)]


def quantiles(samples: list[int]) -> Quantiles:
    """Fed one by one, with a fold now and then, as a run does it."""
    result = Quantiles()
    for number, sample in enumerate(samples, 1):
        result.pending.append(sample)
        if number % EXACT == 0:
            result.fold()
    return result


@settings(database=None, deadline=None)
@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=300))
def test_percentiles_of_few_samples_are_exact(samples: list[int]) -> None:
    found = quantiles(samples)
    assert found.at(0.50, 0.99) == [nearest_rank(samples, 50), nearest_rank(samples, 99)]
    assert (found.count, found.total, found.max) == (len(samples), sum(samples), max(samples))


@pytest.mark.parametrize("count", [100, 200, 1000, EXACT])
def test_percentiles_are_exact_up_to_the_bound(count: int) -> None:
    samples = [value * 1_000_003 for value in range(count)]
    random.Random(1).shuffle(samples)
    expected = [nearest_rank(samples, 50), nearest_rank(samples, 99)]
    assert quantiles(samples).at(0.50, 0.99) == expected


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("span", [300, 10**5, 10**9, 10**13])
def test_percentiles_of_many_samples_are_off_by_less_than_a_128th(seed: int, span: int) -> None:
    source = random.Random(seed)
    samples = [int(span ** source.random()) for _ in range(5 * EXACT + 17)]
    found = quantiles(samples)
    for percent in (1, 25, 50, 90, 99, 100):
        true = nearest_rank(samples, percent)
        (value,) = found.at(percent / 100)
        assert abs(value - true) * 128 <= true
    assert (found.count, found.total, found.max) == (len(samples), sum(samples), max(samples))


def test_zeros_are_counted_as_zeros() -> None:
    found = quantiles([0] * (3 * EXACT) + [10**9])
    assert found.at(0.5, 0.99) == [0, 0]
    assert found.max == 10**9


def test_percentiles_of_nothing_are_zero() -> None:
    assert Quantiles().at(0.5, 0.99) == [0, 0]


def test_the_memory_of_percentiles_does_not_grow_with_the_samples() -> None:
    source = random.Random(5)
    found = Quantiles()
    for _ in range(50):
        found.pending.extend(source.randrange(10**12) for _ in range(EXACT + 1))
        found.fold()
    assert len(found.pending) <= EXACT
    assert len(vars(found)["_buckets"]) <= 64 * 128, "128 buckets per doubling"


@settings(database=None, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200), st.integers(1, 1000))
def test_merging_bins_keeps_the_total_and_the_place(times: list[int], bin_ns: int) -> None:
    series = Series(bin_ns)
    for now in sorted(times):
        series.add(now)
    assert len(series.counts) <= BINS
    assert sum(series.counts) == len(times)
    assert series.bin_ns % bin_ns == 0
    expected = [0] * len(series.counts)
    for now in times:
        expected[now // series.bin_ns] += 1
    assert series.counts == expected


def test_a_series_over_a_very_long_time_stays_small() -> None:
    series = Series(100 * MS)
    for hour in range(0, 24 * 365, 7):
        series.add(hour * 3600 * S)
    assert len(series.counts) <= BINS
    assert sum(series.counts) == len(range(0, 24 * 365, 7))


def test_rates_are_per_second_and_leave_a_last_part_bin_out() -> None:
    series = Series(100 * MS)
    for at_ms in (10, 20, 30, 110, 210, 220):
        series.add(at_ms * MS)
    assert series.rates(250 * MS) == [(50 * MS, 30.0), (150 * MS, 10.0)]
    assert series.rates(50 * MS) == [(50 * MS, 60.0)]


# -- a run worked out by hand ----------------------------------------------------------------


def run(*tasks: dict[str, Any], duration: str | None = None, **top: Any) -> Statistics:
    if duration is not None:
        top["run"] = {"duration": duration}
    return simulate(read_scenario({"task": list(tasks), **top}, "scenario")).statistics


def test_the_tables_of_a_small_run() -> None:
    # a: every 10 ms 4 ms, due after 5 ms; b: 3 ms frames, one after the other, no CPU time, at a
    # higher priority but capped at 3 of 10 (e is 0 after each, 3 at each boundary).
    # 0-3 b, 3-7 a (response 7, missed), 10-13 b, 13-17 a (7, missed), ... four times in 40 ms.
    a = {
        "name": "a",
        "periodic": {"period": "10ms", "cost": "4ms", "deadline": "5ms"},
    }
    b = {
        "name": "b",
        "priority": 1,
        "reserve": {"policy": "pe", "capacity": "3ms", "period": "10ms"},
        "widget": {"cost": "3ms", "cpu": "0ms"},
    }
    result = run(a, b, duration="39ms")
    table = result.as_dict()
    assert table["tasks"]["a"] == table["tasks"]["a"] | {
        "groups": 4,
        "response_ns": {"p50": 7 * MS, "p99": 7 * MS, "max": 7 * MS},
        "gpu_ns": 16 * MS,
        "gpu_share": 16 / 39,
        "deadlines": 4,
        "missed": 4,
        "frames": 0,
        "fps": 0.0,
    }
    # b's first waits for nobody; each other one is submitted when its predecessor is done, at 3,
    # 13, 23, and goes at the next boundary: responses 3, 10, 10, 10.
    assert table["tasks"]["b"] == table["tasks"]["b"] | {
        "groups": 4,
        "response_ns": {"p50": 10 * MS, "p99": 10 * MS, "max": 10 * MS},
        "gpu_ns": 12 * MS,
        "deadlines": 0,
        "missed": 0,
        "frames": 4,
        "fps": 4 / 0.039,
    }
    assert table["reserves"]["b"] == table["reserves"]["b"] | {
        "policy": "pe",
        "capacity_ns": 3 * MS,
        "period_ns": 10 * MS,
        "charged_ns": 12 * MS,
        "overruns": 0,
        "worst_debt_ns": 0,
    }
    assert table["reserves"]["b"]["used"] == pytest.approx(12 / (39 * 3 / 10))
    assert table["device"] == table["device"] | {
        "end_ns": 39 * MS,
        "busy_ns": 28 * MS,
        "idle_ns": 11 * MS,
        "switches": 7,
    }
    assert table["complete"] is True
    assert result.fps("b") == 4 / 0.039


def test_a_deadline_that_is_just_met_is_not_missed() -> None:
    # Done at 4 with a deadline of 4; the second waits for z until 12 and is done at 16 > 14.
    a = {"name": "a", "periodic": {"period": "10ms", "cost": "4ms", "deadline": "4ms", "count": 2}}
    z = {"name": "z", "priority": 1, "groups": [{"at": "9ms", "cost": "3ms"}]}
    entry = run(a, z, duration="20ms").by_name()["a"]
    assert (entry.deadlines, entry.missed) == (2, 1)


def test_the_response_of_a_periodic_job_counts_from_its_release() -> None:
    # Nobody goes before 45. One thread: each job is submitted when the one before goes, but is late
    # since its release: done at 47, 49, 51, 53, 55, 57, released at 0, 10, 20, 30, 40, 50.
    blocker = {"name": "z", "priority": 1, "groups": [{"at": "0ms", "cost": "45ms"}]}
    a = {"name": "a", "periodic": {"period": "10ms", "cost": "2ms"}}
    events: list[Event] = []
    scenario = {"task": [blocker, a], "run": {"duration": "59ms"}}
    outcome = simulate(read_scenario(scenario, "test"), observers=[Recorder(events.append)])
    responses = [47 * MS, 39 * MS, 31 * MS, 23 * MS, 15 * MS, 7 * MS]
    entry = outcome.statistics.by_name()["a"]
    assert entry.responses.pending == responses
    (found,) = (task for task in summarise(read_history(events)).tasks if task.name == "a")
    assert found.responses_ns == sorted(responses)


STARVED = [
    ({"period": "10ms"}, 10),
    ({"period": "10ms", "deadline": "25ms"}, 8),
    ({"period": "10ms", "deadline": "1ms", "offset": "5ms"}, 10),
    ({"period": "10ms", "count": 3}, 3),
    ({"period": "1s"}, 0),
]


@pytest.mark.parametrize(("work", "missed"), STARVED)
def test_jobs_that_never_ran_have_missed_their_deadlines(work: dict[str, Any], missed: int) -> None:
    greedy = {"name": "z", "priority": 1, "greedy": {"cost": "3ms"}}
    a = {"name": "a", "periodic": {"cost": "2ms", **work}}
    events: list[Event] = []
    scenario = {"task": [greedy, a], "run": {"duration": "100ms"}}
    outcome = simulate(read_scenario(scenario, "test"), observers=[Recorder(events.append)])
    entry = outcome.statistics.by_name()["a"]
    assert (entry.groups, entry.deadlines, entry.missed) == (0, missed, missed)
    (found,) = (task for task in summarise(read_history(events)).tasks if task.name == "a")
    assert (found.deadlines, found.missed) == (missed, missed)
    assert check(events).violations == []


def test_a_job_that_is_executing_past_its_deadline_has_missed_it() -> None:
    # Two of three: done at 30 (due at 10), and the one that runs until 60. The third is due at 50.
    a = {"name": "a", "periodic": {"period": "20ms", "cost": "30ms", "deadline": "10ms"}}
    entry = run(a, duration="45ms").by_name()["a"]
    assert (entry.groups, entry.deadlines, entry.missed) == (1, 2, 2)


def test_what_a_task_missed_after_its_death_does_not_count() -> None:
    a = {"name": "a", "periodic": {"period": "10ms", "cost": "2ms"}}
    entry = run(a, duration="100ms", event=[{"at": "15ms", "kill": "a"}]).by_name()["a"]
    assert (entry.groups, entry.deadlines, entry.missed) == (2, 2, 0)


def test_overruns_and_the_deepest_debt_of_a_reserve() -> None:
    # e: 2 - 5 = -3 at 5 (overrun), -1 at 10, 1 at 20; then 1 - 2 = -1 at 22 (overrun), 1 at 30;
    # 1 - 1 = 0 at 31, which is no debt.
    groups = [{"at": "0ms", "cost": f"{c}ms"} for c in (5, 2, 1)]
    reserve = {"policy": "pe", "capacity": "2ms", "period": "10ms"}
    result = run({"name": "a", "groups": groups, "reserve": reserve}, duration="40ms")
    table = result.as_dict()["reserves"]["a"]
    assert (table["charged_ns"], table["overruns"], table["worst_debt_ns"]) == (8 * MS, 2, 3 * MS)
    assert table["used"] == 1.0  # 8 of 4 * 2


def test_a_shared_reserve_has_one_entry_for_all_its_members() -> None:
    pool = {"policy": "pe", "capacity": "4ms", "period": "10ms", "shared": "pool"}
    tasks = [
        {"name": name, "reserve": pool, "groups": [{"at": "0ms", "cost": "2ms"}]} for name in "ab"
    ]
    reserves = run(*tasks, duration="10ms").as_dict()["reserves"]
    assert [entry["charged_ns"] for entry in reserves.values()] == [4 * MS]


def test_a_pool_that_is_called_like_a_task_keeps_its_own_entry() -> None:
    tasks = [
        {
            "name": "a",
            "reserve": {"policy": "pe", "capacity": "4ms", "period": "10ms"},
            "groups": [{"at": "0ms", "cost": "1ms"}],
        },
        {
            "name": "b",
            "reserve": {"policy": "pe", "capacity": "4ms", "period": "10ms", "shared": "a"},
            "groups": [{"at": "0ms", "cost": "2ms"}],
        },
    ]
    reserves = run(*tasks, duration="10ms").as_dict()["reserves"]
    assert sorted(entry["charged_ns"] for entry in reserves.values()) == [1 * MS, 2 * MS]


def test_a_run_without_a_duration_ends_with_its_last_group() -> None:
    # At 5 everything is done. That the reserve is in debt until 20 concerns nobody any more.
    reserve = {"policy": "pe", "capacity": "2ms", "period": "10ms"}
    a = {"name": "a", "reserve": reserve, "groups": [{"at": "0ms", "cost": "5ms"}]}
    result = run(a)
    assert result.end_ns == 5 * MS
    assert result.as_dict()["tasks"]["a"]["gpu_share"] == 1.0


def test_idle_time_counts_every_gpu() -> None:
    a = {"name": "a", "groups": [{"at": "0ms", "cost": "4ms"}]}
    device = run(a, duration="10ms", device={"count": 3}).as_dict()["device"]
    assert (device["busy_ns"], device["idle_ns"]) == (4 * MS, 26 * MS)


def test_a_run_that_is_stopped_says_so() -> None:
    bomb = {"name": "b", "bomb": {"cost": "1us"}}
    scenario = read_scenario({"task": [bomb], "run": {"duration": "1s"}}, "scenario")
    outcome = simulate(scenario, progress=lambda _: False)
    assert not outcome.complete
    assert outcome.statistics.as_dict()["complete"] is False
    assert 0 < outcome.statistics.by_name()["b"].groups < 1_000_000


def test_statistics_of_a_long_run_stay_exact_in_count_and_sum() -> None:
    # 20000 groups of 1 us, each submitted when the one before is done.
    greedy = {"name": "g", "greedy": {"cost": "1us", "depth": 1}}
    entry = run(greedy, duration="20ms").by_name()["g"]
    assert entry.groups == 20_000
    assert entry.responses.total == 20_000 * 1_000
    assert entry.gpu_ns == 20 * MS
