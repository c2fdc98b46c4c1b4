"""Bounds: worked examples, published ones, and simulations that must stay below them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headway.engine.analysis import groups
from headway.engine.analysis.gpusync import TOKENS, UNITS, analyse
from headway.engine.analysis.multiprocessor import (
    Demand,
    _response,
    carried_work,
    dense,
    earliest_deadline,
    fixed_priority,
    tardiness,
)
from headway.engine.analysis.omlp import Sharer, kx_omlp
from headway.engine.analysis.requests import Rival, donation_bound, longest, priority_bound
from headway.engine.analysis.verdicts import HARD, NO, SOFT, Verdict, overall
from headway.engine.locks.clusters import Clusters
from headway.engine.locks.copies import CopySettings
from headway.engine.locks.settings import AllocatorSettings, preset
from headway.engine.locks.system import Bus, DeviceWork, LockSystem, LockTask
from headway.sim.analysing import Analysis, analyse_machine, analyse_scenario
from headway.sim.gpusync.plan import GpuSyncPlan, TaskPlan
from headway.sim.gpusync.run import run_plan
from headway.sim.gpusync.scenario import read_gpusync
from headway.sim.scenario import read_scenario
from headway.sim.study.bound_check import Seen, check_locks, check_machine, draw_locks, run_locks
from headway.sim.study.group_check import check_groups

MS = 1_000_000


# -- simulations stay below ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "sets"),
    [
        (check_locks, 600),
        (check_machine, 200),
        (check_groups, 250),
        (lambda seed: check_groups(seed, served=True), 150),
    ],
    ids=["tokens", "machines", "groups", "servers"],
)
def test_no_wait_is_longer_than_its_bound(check: Callable[[int], list[Seen]], sets: int) -> None:
    seen = [found for seed in range(sets) for found in check(seed)]
    assert len(seen) > sets / 4
    broken = [found for found in seen if not found.holds]
    assert not broken, broken[0]
    assert max(found.tightness for found in seen) > 0.9  # the bounds are nearly reached


def test_the_check_would_notice_a_bound_that_is_one_section_too_short() -> None:
    exceeded = 0
    for seed in range(0, 600, 5):  # r2dglp
        rng = random.Random(seed)
        plan = draw_locks(rng, "r2dglp")
        length = plan.settings.length or 1
        shorter = (2 * length - 2) * max(plan.holds)
        exceeded += max(run_locks(plan, rng).in_top) > shorter
    assert exceeded > 10


# -- requests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "tasks", "expected"),
    [
        (preset("r2dglp", cpus=6, devices=1, rho=1), 9, 11),  # the global OMLP's 2m - 1
        (preset("r2dglp", cpus=6, devices=1, rho=2), 9, 5),  # 2 ceil(m/k) - 1
        (preset("r2dglp-wc", cpus=6, devices=4, rho=3), 40, 1),
        (preset("kfmlp", cpus=6, devices=2, rho=2), 13, 3),  # ceil(n/k) - 1
        (preset("kfmlp", cpus=6, devices=2, rho=2), 12, 2),
        (preset("r2dglp-wc", cpus=6, devices=4, rho=3), 12, 0),  # a token for everybody
        (AllocatorSettings(2, 1, 6, 1, 2), 9, None),  # fewer places than CPUs
    ],
)
def test_how_many_sections_are_ahead(
    settings: AllocatorSettings, tasks: int, expected: int | None
) -> None:
    rivals = [Rival(str(n), 10, 1000, 10) for n in range(tasks - 1)]
    bound = donation_bound(settings, rivals, 1990)  # time for two requests of each
    assert bound == (None if expected is None else 10 * expected)


def test_with_affinity_an_unlimited_queue_may_hold_everybody() -> None:
    settings = preset("kfmlp", cpus=2, devices=2, rho=1)
    rivals = [Rival(str(n), 10, 1000, 10) for n in range(3)]
    assert donation_bound(settings, rivals, 100) == 10
    assert donation_bound(settings, rivals, 100, affinity=True) == 30


def test_few_requests_of_each_rival_count_the_longest_first() -> None:
    settings = AllocatorSettings(1, 1, 2, 2, 2)  # 3 sections ahead
    rivals = [Rival("long", 50, 1000, 50), Rival("short", 10, 1000, 10), Rival("c", 20, 10, 20)]
    # The long one can have two requests in a window of 960 ms, one in one of 900.
    assert donation_bound(settings, rivals, 960) == 50 + 50 + 20
    assert donation_bound(settings, rivals, 900) == 50 + 20 + 20
    assert longest([(5, 2), (9, 1)], 10) == 19


def test_by_priority_the_strongest_waits_for_one_weaker_section() -> None:
    assert priority_bound(1, 30, [], 10_000) == 30
    # W = 30 + ceil((W + 12)/100) * 12: one job of the stronger in 42, then two in (42 + 12 > ...).
    assert priority_bound(1, 30, [Rival("h", 12, 100, 12)], 10_000) == 42
    assert priority_bound(2, 30, [Rival("h", 12, 100, 12)], 10_000) == 36
    assert priority_bound(1, 30, [Rival("h", 60, 50, 60)], 10_000) is None


# -- another protocol, as published ----------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "costs"),
    [((2, 4), [4, 4, 4, 4]), ((4, 4), [2, 2, 3, 3]), ((1, 1), [11, 11, 9, 9])],
)
def test_the_k_exclusion_omlp_of_four_tasks(replicas: tuple[int, int], costs: list[int]) -> None:
    tasks = [(1, 4), (1, 5), (3, 9), (3, 18)]
    sharers = [Sharer(n % 2, t, t, {0: (1, 1), 1: (1, 1)}) for n, (_, t) in enumerate(tasks)]
    waits = kx_omlp(sharers, [2, 2], dict(enumerate(replicas)))
    assert [cost + wait.total_ns for (cost, _), wait in zip(tasks, waits, strict=True)] == costs


@pytest.mark.parametrize(
    ("replicas", "last", "first", "arrival"),
    [(1, 25, 63, 32), (2, 17, 39, 20), (4, 7, 15, 8), (8, 0, 1, 1)],
)
def test_the_k_exclusion_omlp_of_sixteen_tasks(
    replicas: int, last: int, first: int, arrival: int
) -> None:
    sharers = [Sharer(n // 4, 100, 100, {0: (1, 1 + 2 * (n // 4))}) for n in range(16)]
    waits = kx_omlp(sharers, [2] * 4, {0: replicas})
    assert (waits[15].total_ns, waits[15].arrival_ns) == (last, 0)
    assert (waits[0].total_ns, waits[0].arrival_ns) == (first, arrival)


# -- CPUs ------------------------------------------------------------------------------------


def test_response_times_on_one_cpu_are_the_textbooks() -> None:
    tasks = [Demand("a", 1, 4, 4), Demand("b", 2, 6, 6), Demand("c", 3, 13, 13)]
    # With a carried-in job of each stronger task the bounds are no less than 1, 3 and 10.
    found = fixed_priority(tasks, 1)
    assert found[0] == 1
    assert found[1] is not None
    assert found[1] >= 3
    assert found[2] is None or found[2] >= 10


def _by_small_steps(task: Demand, others: list[Demand], cpus: int) -> int | None:
    """Bertogna and Cirinei's iteration as printed, of others that end within their deadlines."""
    response = task.cost_ns
    while response <= task.deadline_ns:
        most = response - task.cost_ns + 1
        work = sum(min(carried_work(other, response, other.deadline_ns), most) for other in others)
        if task.cost_ns + work // cpus == response:
            return response
        response = task.cost_ns + work // cpus
    return None


def test_the_search_for_a_response_skips_none() -> None:
    rng = random.Random(3)
    found = []
    for _ in range(300):
        cpus, scale = rng.randint(1, 3), rng.choice([1, 1, 50])
        tasks = []
        for number in range(rng.randint(2, 7)):
            period = rng.randint(12 * scale, 60 * scale)
            tasks.append(Demand(str(number), rng.randint(1, 9 * scale), period, period))
        *others, last = tasks
        workers = [partial(carried_work, other, response_ns=other.deadline_ns) for other in others]
        found.append(_response(last, workers, cpus, lambda window: 0))
        assert found[-1] == _by_small_steps(last, others, cpus)
    assert 100 < sum(response is not None for response in found) < 300


@pytest.mark.parametrize("scheduler", ["rm", "edf"])
def test_tasks_of_milliseconds_are_analysed_to_the_end(scheduler: str) -> None:
    rows = [
        {"name": "a", "period": "20ms", "cpu": "7ms"},
        {"name": "b", "period": "30ms", "cpu": "3ms"},
    ]
    plan = read_gpusync({"gpusync": {"scheduler": scheduler}, "task": rows}, "f")
    verdicts = analyse_machine(plan).verdicts
    assert [verdict.bound_ns for verdict in verdicts] == [7 * MS, 10 * MS]


def test_on_one_cpu_edf_meets_all_deadlines_up_to_a_full_load() -> None:
    tasks = [Demand("a", 7, 20, 20), Demand("b", 9, 30, 30), Demand("c", 17, 50, 50)]
    assert dense(tasks, 1)
    assert not dense([*tasks, Demand("d", 1, 60, 60)], 1)
    rows = [{"name": t.name, "period": f"{t.period_ns}ms", "cpu": f"{t.cost_ns}ms"} for t in tasks]
    plan = read_gpusync({"gpusync": {"scheduler": "edf"}, "task": rows}, "f")
    assert [verdict.schedulable for verdict in analyse_machine(plan).verdicts] == ["yes"] * 3


def test_two_cpus_serve_two_tasks_at_once() -> None:
    tasks = [Demand("a", 5, 10, 10), Demand("b", 5, 10, 10), Demand("c", 2, 10, 10)]
    first, second, third = fixed_priority(tasks, 2)
    assert (first, second) == (5, 5 + 0)
    assert third is not None
    assert 5 < third <= 10
    assert earliest_deadline(tasks[:2], 2) == [5, 5]


def test_carried_work_counts_the_job_that_began_before() -> None:
    task = Demand("a", 3, 10, 10)
    assert carried_work(task, 3, 3) == 3
    assert carried_work(task, 5, 10) == 5  # the end of one job and the beginning of the next
    assert carried_work(task, 20, 10) == 9
    assert carried_work(task, 1, 1) == 0


def test_tardiness_is_bounded_up_to_a_full_load_and_no_further() -> None:
    # Two CPUs, three tasks of 2/3 each: x = (2 - 2) / (2 - 0) ... Lambda = 1, so x = 0.
    tasks = [Demand(str(n), 2, 3, 3) for n in range(3)]
    assert earliest_deadline(tasks, 2) is None
    assert tardiness(tasks, 2) == [5, 5, 5]
    assert tardiness([*tasks, Demand("d", 1, 100, 100)], 2) is None
    # Three CPUs: Lambda = 2, x = (4 + 3 - 1) / (3 - 0.8).
    mixed = [Demand("a", 4, 5, 5), Demand("b", 3, 4, 4), Demand("c", 1, 2, 2), Demand("d", 1, 2, 2)]
    assert tardiness(mixed, 3) == [5 + 3 + 4, 4 + 3 + 3, 2 + 3 + 1, 2 + 3 + 1]


# -- machines --------------------------------------------------------------------------------


def machine(scheduler: str = "rm", rho: int = 1, **more: Any) -> LockSystem:
    settings: dict[str, Any] = {
        "affinity": False, "interrupt_ns": 0, "worker_ns": 0, "bus": Bus(10**9, 10**9), **more
    }  # fmt: skip
    return LockSystem(Clusters(2, 2, 1, 1), scheduler, rho, **settings)


def user(name: str, period: int, kernel: int, cpu: int = 1) -> LockTask:
    work = DeviceWork((kernel * MS,))
    return LockTask(name, period * MS, period * MS, cpu * MS, work)


def parts(verdict: Verdict, name: str) -> float:
    return verdict.parts[name] / MS


def test_a_job_waits_for_the_sections_that_its_rivals_have_time_for() -> None:
    # One token, two CPUs: f = 2, three sections ahead, but one rival with a request every 100 ms.
    a, b = analyse(machine(), [user("a", 100, 5), user("b", 200, 7)])
    assert parts(a, TOKENS) == 7
    assert parts(a, UNITS) == 0
    assert a.bound_ns == (5 + 1 + 7) * MS
    assert a.schedulable == HARD
    assert a.dominates == TOKENS
    assert parts(b, TOKENS) == 5
    # In 28 ms a rival with a period of 20 has two.
    (_, b) = analyse(machine(), [user("a", 20, 5), user("b", 200, 7)])
    assert parts(b, TOKENS) == 10


def test_with_a_token_each_they_wait_for_the_engine() -> None:
    a, b = analyse(machine(rho=2), [user("a", 100, 5), user("b", 200, 7)])
    assert parts(a, TOKENS) == 0
    assert parts(a, UNITS) == 7
    assert parts(b, UNITS) == 5
    assert a.dominates == UNITS


def test_under_edf_deadlines_may_be_missed_by_a_bounded_time() -> None:
    system = machine("edf")
    tasks = [LockTask(str(n), 3 * MS, 3 * MS, 2 * MS) for n in range(3)]
    verdicts = analyse(system, tasks)
    assert [verdict.bound_ns for verdict in verdicts] == [5 * MS] * 3
    assert overall(verdicts) == SOFT
    over = analyse(system, [*tasks, LockTask("x", 3 * MS, 3 * MS, MS)])
    assert overall(over) == NO
    assert "load 2 CPUs by 2.33" in over[0].why


def test_too_few_places_in_the_queues_give_no_bound() -> None:
    system = machine(allocator="length", length=1)
    rivals = [user(str(n), 100, 5) for n in range(3)]
    (first, *_) = analyse(system, rivals)
    assert first.schedulable == NO
    assert first.why == "fewer places in the queues (1) than CPUs (2)"


def test_peer_to_peer_copies_may_wait_for_every_token_of_the_cluster() -> None:
    # Two devices, one token each: without state nobody shares a copy engine, with it all do.
    def waits(state: int) -> float:
        settings: dict[str, Any] = {
            "affinity": False, "interrupt_ns": 0, "worker_ns": 0, "bus": Bus(10**9, 2 * 10**9)
        }  # fmt: skip
        system = LockSystem(
            Clusters(4, 4, 2, 2), "rm", 1, copies=CopySettings(chunk=10**6), **settings
        )
        work = DeviceWork((MS,), 10**6, 10**6, state)
        tasks = [LockTask(str(n), 100 * MS, 100 * MS, MS, work) for n in range(2)]
        return parts(analyse(system, tasks)[0], UNITS)

    assert waits(0) == 0
    assert waits(10**6) == 3  # in, out and state, each behind one chunk of 1 ms


def gpu_only(name: str, period: int, *kernels: int) -> LockTask:
    work = DeviceWork(tuple(kernel * MS for kernel in kernels))
    return LockTask(name, period * MS, period * MS, 2_000, work)


def test_weaker_holders_may_stand_still_until_somebody_lends_to_them() -> None:
    """Two tokens by priority. `middle` lends to the weaker of two holders, and hogs keep the other
    from its CPU. `first` comes, lends to the weaker one and so takes its token; only from then on
    does the other holder progress, on behalf of `middle`, which waits for both sections."""
    system = LockSystem(
        Clusters(2, 2, 2, 2), "rm", 1, "priority", affinity=False,
        interrupt_ns=0, worker_ns=0, launch_ns=10_000,
    )  # fmt: skip
    hogs = [LockTask(f"hog{n}", 40_000 * MS, 40_000 * MS, 600 * MS) for n in range(2)]
    rows = [
        (gpu_only("first", 20_000, 30), 33 * MS),
        (gpu_only("middle", 30_000, 1), 1 * MS),
        (hogs[0], 1 * MS),
        (hogs[1], 1 * MS),
        (gpu_only("a", 100_000, *[1] * 33), 1),
        (gpu_only("b", 100_100, *[1] * 33), 0),
    ]
    tasks = [task for task, _ in rows]
    plan = GpuSyncPlan(system, tuple(TaskPlan(*row) for row in rows), 2_000 * MS)
    worst_ns = run_plan(plan).tasks["middle"].worst_ns
    verdict = analyse(system, tasks)[1]
    assert worst_ns > 33 * MS + 30 * MS // 2  # one weaker section, and the stronger on two places
    assert verdict.bound_ns is not None
    assert worst_ns <= verdict.bound_ns


def test_weaker_holders_to_whom_stronger_waiters_lend_go_first_at_the_units() -> None:
    """Two weak tasks hold tokens for which two strong ones wait, and their kernels take turns on
    the execution engine before the one of `middle`, which has a token too."""
    system = LockSystem(
        Clusters(8, 8, 1, 1), "rm", 3, "kfmlp", unit_order="priority", affinity=False,
        interrupt_ns=0, worker_ns=0, launch_ns=10_000,
    )  # fmt: skip
    rows = [
        (gpu_only("strong0", 13_000, 1), 5 * MS + 1),
        (gpu_only("strong1", 13_010, 1), 5 * MS + 2),
        (gpu_only("middle", 14_000, 5, 1), 2),
        (gpu_only("weak0", 20_000, *[1] * 60), 0),
        (gpu_only("weak1", 20_010, *[1] * 60), 1),
    ]
    plan = GpuSyncPlan(system, tuple(TaskPlan(*row) for row in rows), 2_000 * MS)
    result = run_plan(plan).tasks["middle"]
    verdict = analyse(system, [task for task, _ in rows])[2]
    for_units_ns = result.worst_ns - result.worst_wait_ns - verdict.parts["own"]
    assert for_units_ns > 100 * MS
    assert for_units_ns <= verdict.parts[UNITS]


def test_a_job_as_long_as_noise_and_aberrance_make_it_is_counted() -> None:
    row: dict[str, Any] = {"name": "a", "period": "100ms", "cpu": "1ms", "noise": 0.1}
    (plain,) = analyse_machine(read_gpusync({"gpusync": {}, "task": [row]}, "f")).verdicts
    assert plain.bound_ns == 1_300_000
    row["aberrant"] = {"every": "1s", "factor": 4}
    found = analyse_machine(read_gpusync({"gpusync": {}, "task": [row]}, "f"))
    assert found.verdicts[0].bound_ns == 5_200_000
    assert found.remarks


def test_copies_of_aberrant_jobs_are_as_much_longer_as_noise_makes_them() -> None:
    row: dict[str, Any] = {"name": "a", "period": "100ms", "kernels": ["10us"], "input": "2MiB"}
    row |= {"noise": 0.3, "aberrant": {"every": "100ms", "factor": 4}}
    file = {"run": {"duration": "60s"}, "gpusync": {}, "task": [row]}
    plan = read_gpusync(file, "f")
    (verdict,) = analyse_machine(plan).verdicts
    assert verdict.bound_ns is not None
    worst_ns = run_plan(plan).tasks["a"].worst_ns
    assert verdict.bound_ns / 2 < worst_ns <= verdict.bound_ns


def test_a_job_that_may_begin_late_is_counted_from_its_release() -> None:
    rows: list[dict[str, Any]] = [
        {"name": "a", "period": "20ms", "cpu": "2ms", "jitter": "5ms"},
        {"name": "b", "period": "30ms", "cpu": "3ms"},
    ]
    plan = read_gpusync(
        {"run": {"duration": "3s"}, "gpusync": {"scheduler": "rm"}, "task": rows}, "f"
    )
    first, second = analyse_machine(plan).verdicts
    assert first.bound_ns == 7 * MS
    assert first.parts["jitter"] == 5 * MS
    assert second.bound_ns is not None
    seen = run_plan(plan).tasks
    assert 6.5 * MS < seen["a"].worst_ns <= first.bound_ns
    assert seen["b"].worst_ns <= second.bound_ns


# -- one GPU ---------------------------------------------------------------------------------


def bounds(*tasks: dict[str, Any], **top: Any) -> dict[str, Verdict]:
    found: Analysis = analyse_scenario(read_scenario({"task": list(tasks), **top}, "scenario"))
    return {verdict.task: verdict for verdict in found.verdicts}


def periodic(
    name: str, period: float, cost: float, priority: Any = 0, **more: Any
) -> dict[str, Any]:
    row = {"period": f"{period}ms", "cost": f"{cost}ms"}
    return {"name": name, "priority": priority, "periodic": row, **more}


def bound(verdict: Verdict) -> float | None:
    return None if verdict.bound_ns is None else verdict.bound_ns / MS


def test_a_group_waits_for_one_weaker_group_and_the_stronger_ones() -> None:
    found = bounds(periodic("a", 10, 2, 3), periodic("b", 20, 4, 2), periodic("c", 50, 5, 1))
    assert bound(found["a"]) == 5 + 2
    assert found["a"].dominates == "weaker"
    # b: c's 5, then a at 0 and, carried in, 7 before: ceil((w + 7)/10) jobs, w = 5 + 4 = 9.
    assert bound(found["b"]) == 5 + 4 + 4
    assert bound(found["c"]) is not None
    assert overall(list(found.values())) == HARD


def test_a_long_busy_period_is_walked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    usage = groups.usage

    def counted(task: groups.GroupTask, window_ns: int, response_ns: int | None) -> int | None:
        nonlocal looks
        looks += 1
        return usage(task, window_ns, response_ns)

    monkeypatch.setattr(groups, "usage", counted)
    # A load a little below 1: the weaker task's jobs wait for each other hundreds of times.
    found = bounds(periodic("a", 7.001, 3.5, 2), periodic("b", 11.003, 5.501, 1))
    assert bound(found["b"]) is None
    assert groups.BACKLOG < looks < 8 * groups.BACKLOG


def test_equal_priorities_wait_for_one_group_of_each_other() -> None:
    found = bounds(*(periodic(name, 100, 3) for name in "abc"))
    assert [bound(found[name]) for name in "abc"] == [3 + 6 + 3] * 3


def test_a_greedy_program_below_delays_by_a_group_and_above_by_its_reserve() -> None:
    greedy = {"name": "g", "greedy": {"cost": "2ms"}}
    below = bounds(periodic("a", 20, 3, 1), {**greedy, "priority": 0})
    assert bound(below["a"]) == 5
    above = bounds(periodic("a", 20, 3, 1), {**greedy, "priority": 2})
    assert bound(above["a"]) is None
    reserve = {"policy": "pe", "capacity": "2ms", "period": "20ms"}
    limited = bounds(periodic("a", 20, 3, 1), {**greedy, "priority": 2, "reserve": reserve})
    # What it has, one replenishment, and an overrun.
    assert bound(limited["a"]) == 2 + 2 + 2 + 3
    exact = {**reserve, "policy": "ae"}
    limited = bounds(periodic("a", 20, 3, 1), {**greedy, "priority": 2, "reserve": exact})
    assert bound(limited["a"]) == 2 + 2 + 3


def test_under_ht_a_weaker_backlog_goes_first() -> None:
    greedy = {"name": "g", "priority": 0, "policy": "ht", "greedy": {"cost": "2ms", "depth": 3}}
    assert bound(bounds(periodic("a", 20, 3, 1), greedy)["a"]) == 9


def test_a_reserve_as_large_as_the_job_may_delay_it_once() -> None:
    reserve = {"policy": "pe", "capacity": "2ms", "period": "10ms"}
    found = bounds(periodic("a", 10, 2, reserve=reserve))
    assert bound(found["a"]) == 2 + 2
    assert found["a"].dominates == "reserve"
    longer = {"policy": "pe", "capacity": "2ms", "period": "8ms"}
    assert bound(bounds(periodic("a", 10, 2, reserve=longer))["a"]) == 2
    small = {"policy": "pe", "capacity": "1ms", "period": "10ms"}
    assert bound(bounds(periodic("a", 10, 2, reserve=small))["a"]) is None


def test_earliest_deadline_first_meets_all_deadlines_up_to_a_full_load() -> None:
    tasks = [periodic("a", 4, 1, "edf"), periodic("b", 6, 2, "edf"), periodic("c", 12, 5, "edf")]
    rows = [bounds(*tasks[:2])[name] for name in "ab"]
    assert [row.schedulable for row in rows] == [HARD, HARD]
    # With c's 5 ms in the way a cannot meet its 4.
    assert bounds(*tasks)["a"].schedulable != HARD


def test_a_server_that_inherits_delays_by_requests_and_not_by_everybody_between() -> None:
    server = {"name": "x", "priority": 0, "serves": {"blit": "1ms", "pix": True}}
    client = {"priority": 3, "server": "x", "widget": {"fps": 10, "cost": "2ms", "cpu": "1ms"}}
    between = {"name": "m", "priority": 1, "greedy": {"cost": "3ms"}}
    found = bounds(server, {**client, "name": "c"}, between)
    # CPU 1, a weaker group 3, its own 2; the blit waits for a weaker group again.
    assert bound(found["c"]) == 1 + 3 + 2 + 3 + 1
    server["serves"] = {"blit": "1ms", "pix": False}
    assert bound(bounds(server, {**client, "name": "c"}, between)["c"]) is None


@pytest.mark.parametrize(
    ("task", "top", "why"),
    [
        ({"policy": "fifo"}, {}, "the policy fifo is not analysed, prt and ht are"),
        ({}, {"device": {"count": 2}}, "2 GPUs without tokens; the analysis knows one"),
        (
            {"reserve": {"policy": "pe", "capacity": "1ms", "period": "5ms", "shared": "p"}},
            {},
            "it shares its reserve (p) with tasks that may use all of it",
        ),
        ({}, {"policy": {"prt": {"holdoff": "1ms"}}}, "a hold-off keeps the GPU"),
    ],
)
def test_what_the_analysis_does_not_know_it_says(
    task: dict[str, Any], top: dict[str, Any], why: str
) -> None:
    (found,) = bounds(periodic("a", 10, 1, **task), **top).values()
    assert found.schedulable == NO
    assert found.why.startswith(why)
