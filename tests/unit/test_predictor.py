"""Cost prediction, affinity and budgets: what is learned, where jobs go, and what overruns cost."""

from __future__ import annotations

import random
from math import isqrt

import pytest

from headway.engine.locks.affinity import Affinity
from headway.engine.locks.budgets import (
    Activations,
    Budget,
    BudgetSettings,
    OverrunSignal,
    draining,
)
from headway.engine.locks.cluster_locks import make_allocator
from headway.engine.locks.jobs import Job
from headway.engine.locks.predictor import CostPredictor, Estimator
from headway.engine.locks.settings import AllocatorSettings
from headway.engine.locks.tokens import TokenAllocator
from headway.engine.locks.topology import Topology

# -- the predictor ---------------------------------------------------------------------------


def test_an_observation_beyond_two_deviations_is_dropped() -> None:
    estimator = Estimator()
    for observed in (100, 102, 98, 101, 99, 100, 103, 97, 100, 100):
        assert estimator.add(observed)
    assert (estimator.average_ns, estimator.deviation_ns) == (100, 1)
    assert not estimator.add(105)
    assert estimator.add(102)
    assert (estimator.average_ns, estimator.deviation_ns) == (100, 1)


def test_nothing_is_dropped_before_ten_were_seen() -> None:
    estimator = Estimator()
    for observed in (100, 100, 100, 5000, 1):
        assert estimator.add(observed)


def test_a_constant_cost_may_grow_by_a_hundredth_and_a_change_is_believed_in_the_end() -> None:
    estimator = Estimator()
    for _ in range(20):
        estimator.add(1000)
    assert estimator.add(1010)
    estimator = Estimator()
    for _ in range(20):
        estimator.add(1000)
    assert [estimator.add(2000) for _ in range(11)] == [False] * 10 + [True]
    assert estimator.average_ns == 2000


def test_what_took_longer_than_two_seconds_is_no_section() -> None:
    estimator = Estimator()
    assert not estimator.add(2_000_000_001)
    assert estimator.add(2_000_000_000)


def test_the_running_sums_say_what_the_definition_says() -> None:
    rng = random.Random(4)
    estimator = Estimator()
    window: list[int] = []
    for _ in range(3000):
        observed = rng.choice([rng.randint(900, 1100), rng.randint(1, 10**9), 1000])
        if estimator.add(observed):
            window = [*window[-19:], observed] if len(estimator) > 1 else [observed]
        average = sum(window) // len(window)
        assert estimator.average_ns == average
        assert estimator.deviation_ns == isqrt(
            sum((value - average) ** 2 for value in window) // len(window)
        )


def test_a_farther_move_never_looks_cheaper() -> None:
    predictor = CostPredictor()
    assert [predictor.estimate(1, distance) for distance in range(4)] == [1, 2, 3, 4]
    predictor.observe(1, 0, 500)
    assert [predictor.estimate(1, distance) for distance in range(4)] == [500] * 4
    predictor.observe(1, 1, 400)
    predictor.observe(1, 2, 900)
    assert [predictor.estimate(1, distance) for distance in range(4)] == [500, 500, 900, 900]


# -- topology --------------------------------------------------------------------------------


def test_without_a_table_devices_form_a_binary_tree() -> None:
    tree = Topology(8)
    assert [tree.distance(0, device) for device in range(8)] == [0, 1, 2, 2, 3, 3, 3, 3]
    assert tree.distance(None, 5) == 0
    assert tree.are_peers(4, 7)
    assert not tree.are_peers(3, 4)


@pytest.mark.parametrize("table", [[[0]], [[0, 1], [2, 0]], [[0, 0], [0, 0]], [[0, -1], [-1, 0]]])
def test_an_impossible_table_of_distances_is_refused(table: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="distances"):
        Topology(2, table)


# -- affinity --------------------------------------------------------------------------------


def affine(devices: int = 2, rho: int = 1, length: int = 3) -> tuple[TokenAllocator, Affinity]:
    tokens = devices * rho
    affinity = Affinity(CostPredictor(), Topology(devices), tokens, devices)
    settings = AllocatorSettings(tokens, devices, 8, length, tokens * length)
    return make_allocator(settings, affinity), affinity


def test_a_job_waits_at_home_while_moving_is_predicted_to_cost_more() -> None:
    locks, affinity = affine()
    a, b, c = Job("a", 1, 0), Job("b", 1, 1), Job("c", 1, 2)
    for task, near, far in ((0, 100, 150), (1, 100, 150), (2, 100, 250)):
        affinity.settle(task, 0)
        affinity.predictor.observe(task, 0, near)
        affinity.predictor.observe(task, 1, far)
    locks.request(a)
    assert a.token == 0
    locks.request(b)  # 100 + 100 at home, 150 away
    assert b.token == 1
    locks.request(c)  # 100 + 100 at home, 150 + 250 away
    assert c.token == 0
    assert locks.waits(c)


def test_a_task_without_a_home_goes_where_fewest_live() -> None:
    locks, affinity = affine(devices=3)
    for task, device in ((0, 0), (1, 0), (2, 1), (3, 2), (4, 2)):
        affinity.settle(task, device)
    job = Job("new", 1, 9)
    locks.request(job)
    assert job.token == 1


def test_what_enters_with_a_cost_leaves_with_the_same() -> None:
    locks, affinity = affine()
    a = Job("a", 1, 0)
    affinity.predictor.observe(0, 0, 100)
    locks.request(a)
    affinity.predictor.observe(0, 0, 900)
    locks.release(a)
    b = Job("b", 1, 1)
    affinity.predictor.observe(1, 0, 50)
    locks.request(b)
    assert (b.token, b.cost_ns) == (0, 50)


def test_an_idle_token_takes_the_waiter_that_gains_most() -> None:
    # B's home is device 1 and it waits on device 0; A ends on device 1.
    locks, affinity = affine()
    a, h, b, c = (Job(name, 1, order) for order, name in enumerate("ahbc"))
    for task, device in ((0, 1), (1, 0), (2, 0), (3, 0)):
        affinity.settle(task, device)
        affinity.predictor.observe(task, 0, 100)
    for job in (a, h, c, b):
        locks.request(job)
    affinity.settle(2, 1)
    assert [job.name for job in locks.queues[0]] == ["h", "c"]
    assert [job.name for job in locks.queues[1]] == ["a", "b"]
    locks.release(h)
    locks.release(c)  # device 0 is idle now: B moves although it is at home
    assert locks.holder(0) is b


# -- budgets ---------------------------------------------------------------------------------


def test_early_releasing_sacrifices_the_next_jobs_and_discards_what_is_left() -> None:
    # C = 4, T = 20, the job at 0 needs 10 and runs from 0 to 10.
    for catch_up, at_once in ((False, [False]), (True, [True, False])):
        jobs, budget = Activations(0, 20, 20, catch_up=catch_up), Budget(4)
        budget.start(0)
        assert budget.due_ns == 4
        for now, release, deadline in ((4, 20, 40), (8, 40, 60)):
            assert budget.left_ns(now) == 0
            jobs.postpone()
            budget.refill(now)
            assert (jobs.release_ns, jobs.deadline_ns) == (release, deadline)
        budget.stop(10)
        assert budget.left_ns(10) == 2
        assert jobs.advance() is at_once[0]
        assert (jobs.release_ns, jobs.deadline_ns) == (60, 80)
        if catch_up:
            assert jobs.advance() is at_once[1]
            assert jobs.release_ns == 80


def test_a_budget_counts_only_while_it_drains() -> None:
    budget = Budget(10)
    assert budget.due_ns is None
    budget.start(0)
    budget.start(2)  # CPU and GPU work overlap: once
    budget.stop(3)
    budget.stop(5)
    assert budget.left_ns(100) == 7
    budget.start(100)
    assert budget.due_ns == 107


def test_an_overrun_is_told_once_a_refill_and_not_inside_a_lock_call() -> None:
    signal = OverrunSignal()
    assert signal.post()
    assert not signal.post()
    signal.refilled()
    signal.hold()
    signal.hold()
    assert not signal.post()
    assert not signal.let_go()
    assert signal.let_go()
    signal.refilled()
    signal.hold()
    signal.post()
    signal.refilled()
    assert not signal.let_go()


def test_under_bandwidth_inheritance_the_strongest_pay_in_whatever_state() -> None:
    jobs = [
        Job(name, priority, n)
        for n, (name, priority) in enumerate(zip("abc", (1, 5, 5), strict=False))
    ]
    assert [job.name for job in draining(jobs, 2)] == ["b", "c"]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (BudgetSettings("strict"), "policy"),
        (BudgetSettings("early", "gpu"), "drain"),
        (BudgetSettings("bwi", "cpu"), "drain"),
        (BudgetSettings("signal", catch_up=True), "catch_up"),
    ],
)
def test_impossible_budget_settings_are_named(settings: BudgetSettings, key: str) -> None:
    assert [mistake[0] for mistake in settings.mistakes()] == [key]
