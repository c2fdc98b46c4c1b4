"""A cluster in virtual time, and the line in which its claims wait."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headway.fleet.books import Gpu, Place
from headway.fleet.claims import Claim, read_claim
from headway.fleet.placement import Placement
from headway.fleet.virtual import LABELS, MS, Cluster, Misses, S, VirtualCluster, misses
from headway.fleet.waiting import Waiting, WaitingClaims

KINDS = [
    read_claim(given)
    for given in (
        {"name": "control", "priority": 9, "reserve": "1ms/5ms", "deadline": "4ms"},
        {"name": "speech", "priority": 6, "reserve": "6ms/20ms", "deadline": "20ms"},
        {"name": "batch", "priority": 2, "reserve": "20ms/100ms", "preemptible": True},
        {"name": "training", "priority": 1, "preemptible": True},
    )
]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30), st.integers())
def test_who_waits_is_tried_by_importance_and_age_and_like_ones_only_after_a_success(
    coming: list[tuple[int, bool]], seed: int
) -> None:
    rng, waiting = random.Random(seed), WaitingClaims()
    for number, (kind, goes) in enumerate(coming):
        waiting[f"{number}"] = Waiting(KINDS[kind], number)
        if goes:
            gone = rng.choice(list(waiting))
            assert waiting.take(gone)
            assert not waiting.take(gone)
    order = sorted(waiting, key=lambda t: (-waiting[t].claim.effective_level, waiting[t].number))
    fits = [rng.randrange(4) for _ in KINDS]  # how many of each kind find a place
    expected, left = [], dict(zip(KINDS, fits, strict=True))
    for ticket in order:
        claim = waiting[ticket].claim
        if left[claim] >= 0:
            expected.append((ticket, left[claim] > 0))
            left[claim] -= 1
    left, found = dict(zip(KINDS, fits, strict=True)), []
    for ticket in waiting.candidates():
        claim = waiting[ticket].claim
        left[claim] -= 1
        found.append((ticket, left[claim] >= 0))
        if left[claim] >= 0:
            del waiting[ticket]
    assert found == expected


def played(load: float, **ways: bool) -> VirtualCluster:
    cluster = Cluster(10, 2, KINDS, load=load, stay_ns=60 * S, life_ns=200 * S, down_ns=20 * S)
    made = VirtualCluster(cluster, Placement(**ways), seed=1)
    made.run(300 * S, 10 * S)
    return made


def all_misses(cluster: VirtualCluster) -> Misses:
    gpus = cluster.placement.books.gpus.values()
    return sum((misses(gpu, 500 * MS, 1) for gpu in gpus), Misses())


def test_what_is_proven_is_kept_and_what_is_only_counted_is_not() -> None:
    proven, counted = played(0.9), played(0.9, proves=False, preempts=False)
    assert all_misses(proven).jobs > 500
    assert all_misses(proven).missed == 0
    assert all_misses(counted).missed > 0
    assert counted.outcome.placed > proven.outcome.placed  # and that is what proof costs


def test_claims_are_where_the_outcome_says_whatever_dies() -> None:
    made = played(0.3)
    outcome, books = made.outcome, made.placement.books
    assert outcome.lost > 0
    assert outcome.placed == len(outcome.waits_ns)
    assert outcome.at_once == sum(wait_ns == 0 for wait_ns in outcome.waits_ns)
    assert outcome.pending == len(made.placement.waiting)
    assert set(books.where).isdisjoint(made.placement.waiting)
    assert all(gpu.units <= 10_000 for gpu in books.gpus.values())
    assert 0 < outcome.used[-1] < 1


def test_a_gpu_that_promises_too_much_misses_deadlines() -> None:
    def gpu(*claims: Claim) -> Gpu:
        made = Gpu(Place("n", 0), LABELS)
        for number, claim in enumerate(claims):
            made.put(f"{number}", claim)
        return made

    control, _, batch, training = KINDS
    assert misses(gpu(training), S, 1) == Misses()
    alone = misses(gpu(control, training), S, 1)
    assert (alone.missed, alone.gpus) == (0, 0)
    assert alone.jobs in (199, 200)
    blocked = misses(gpu(control, batch), S, 1)  # 20 ms that nobody interrupts, every 100 ms
    assert blocked.gpus == 1
    assert blocked.missed >= 10
