"""The token allocator: who holds which token, who lends to whom, and what no event may break."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.engine.locks.affinity import Affinity
from headway.engine.locks.cluster_locks import make_allocator
from headway.engine.locks.clusters import Clusters
from headway.engine.locks.jobs import Job, LockError, Place
from headway.engine.locks.predictor import CostPredictor
from headway.engine.locks.settings import AllocatorSettings, preset
from headway.engine.locks.tokens import TokenAllocator
from headway.engine.locks.topology import Topology
from headway.sim.gpusync.lock_file import LockPlan, parse_lock_file
from headway.sim.gpusync.lock_run import LockRun, Step
from tests import token_reference
from tests.lock_files import random_lock_file

EXAMPLES = Path(__file__).parents[2] / "examples" / "locks"


def plan_of(name: str) -> LockPlan:
    return parse_lock_file((EXAMPLES / f"{name}.json").read_text())


def grants(plan: LockPlan) -> list[tuple[int, object, int]]:
    return [(grant.at, grant.name, grant.token) for grant in LockRun(plan).run().grants]


def told(name: str) -> dict[int, tuple[str, str, str, str]]:
    """After the last event of each instant: queues, overflow, donors and who runs as whom."""
    states = {}

    def names(jobs: Iterable[Job]) -> str:
        return " ".join(str(job.name) for job in jobs)

    def watch(step: Step) -> None:
        locks = step.allocator
        lent = [(h, locks.lender(h)) for queue in locks.queues for h in queue[:1]]
        states[step.at] = (
            " / ".join(names(queue) or "-" for queue in locks.queues),
            names(reversed(locks.overflow)),
            " ".join(sorted(f"{d.name}>{d.donee.name}" for d in locks.donors if d.donee)),
            " ".join(f"{holder.name}={by.name}" for holder, by in lent if by is not holder),
        )

    LockRun(plan_of(name), watch).run()
    return states


# -- worked examples -------------------------------------------------------------------------


def test_donation_and_the_places_it_leads_to() -> None:
    assert grants(plan_of("donation")) == [
        (0, "A", 0),
        (1, "B", 1),
        (10, "C", 0),
        (11, "D", 1),
        (20, "E", 0),
        (21, "G", 1),
        (30, "F", 0),
    ]
    states = told("donation")
    assert states[3] == ("A C / B D", "", "", "A=C B=D")
    assert states[4] == ("A C / B D", "", "E>A", "A=E B=D")
    assert states[6] == ("A C / B D", "F", "E>A G>B", "A=E B=G")
    assert states[10] == ("C E / B D", "F", "G>B", "C=E B=G")
    assert states[11] == ("C E / D G", "F", "", "C=E D=G")
    assert states[20] == ("E F / D G", "", "", "D=G")


def test_a_stronger_donor_displaces_a_weaker_and_the_overflow_may_go_first() -> None:
    assert grants(plan_of("displacement")) == [
        (0, "A", 0),
        (0, "B", 1),
        (8, "E", 1),
        (12, "D", 0),
        (13, "C", 1),
    ]
    states = told("displacement")
    assert states[1][3] == "A=C"
    assert states[2] == ("A / B", "C", "D>A", "A=D")
    assert states[3] == ("A / B", "E C", "D>A", "A=D")


def test_an_empty_queue_steals_the_strongest_waiter() -> None:
    assert grants(plan_of("stealing")) == [
        (0, "A", 0),
        (0, "B", 1),
        (4, "D", 1),
        (7, "F", 1),
        (12, "E", 1),
        (17, "C", 1),
    ]
    states = told("stealing")
    assert [states[at][3] for at in (1, 2, 3, 12, 17)] == ["A=C", "A=C B=D", "A=E B=D", "A=C", ""]


def test_by_priority_the_strongest_waiter_lends_to_the_weakest_holder() -> None:
    assert grants(plan_of("priority")) == [
        (0, "A", 0),
        (0, "B", 1),
        (6, "E", 1),
        (10, "C", 0),
        (11, "D", 1),
    ]
    states = told("priority")
    assert [states[at][3] for at in (1, 2, 3, 6)] == ["A=C", "A=C", "A=E B=C", "A=C"]


def test_cancellation_and_postponement() -> None:
    assert grants(plan_of("cancellation")) == [
        (0, "A", 0),
        (1, "B", 1),
        (9, "F", 0),
        (11, "D", 1),
        (19, "E", 0),
        (21, "G", 1),
    ]
    states = told("cancellation")
    assert states[6] == ("A C / B D", "F", "E>A G>B", "A=E B=G")
    assert states[7] == ("A G / B D", "F", "E>A", "A=G B=D")
    assert states[8] == ("A F / B D", "G", "E>A", "A=E B=D")
    assert states[9] == ("F E / B D", "G", "", "F=E B=D")


def test_a_strong_request_that_was_overtaken_lends_again() -> None:
    assert grants(plan_of("repair")) == [
        (0, "A", 0),
        (10, "B", 0),
        (20, "C", 0),
        (30, "E", 0),
        (40, "F", 0),
        (50, "D", 0),
    ]
    states = told("repair")
    assert states[4] == ("A B C", "D", "E>C", "A=E")
    assert states[5] == ("A B C", "D", "E>C F>B", "A=E")
    assert states[10] == ("B C E", "D", "F>B", "B=E")
    assert states[20] == ("C E F", "", "D>C", "C=E")


def test_priority_order_never_lets_a_weaker_request_overtake() -> None:
    # Donation with cap = k would let F, weaker than C, D and E, have B's token.
    requests = [("A", 1), ("B", 5), ("C", 10), ("D", 3), ("E", 4), ("F", 2)]
    file = {
        "k": 2, "g": 1, "m": 6, "f": 1, "cap": 2, "order": "priority",
        "requests": [
            {"id": name, "at": at, "hold": 20 + at, "priority": priority}
            for at, (name, priority) in enumerate(requests)
        ],
    }  # fmt: skip
    order = [name for _, name, _ in grants(parse_lock_file(json.dumps(file)))]
    assert order == ["A", "B", "C", "E", "D", "F"]


def test_a_virtually_unlocked_holder_makes_room_for_one_and_is_waited_for() -> None:
    # k = 1, f = 1: B waits in the overflow. Unlocked, A keeps its token and B comes in behind.
    # C finds the place taken; when A is done nobody fills a place, and B has the token.
    file = {
        "k": 1, "g": 1, "m": 1, "f": 1, "cap": 1, "order": "donation",
        "requests": [
            {"id": name, "at": at, "hold": 10, "priority": priority}
            for at, (name, priority) in enumerate([("A", 9), ("B", 5), ("C", 1)])
        ],
        "events": [{"at": 5, "do": "vunlock", "id": "A"}],
    }  # fmt: skip
    states: dict[int, list[str]] = {}

    def watch(step: Step) -> None:
        states[step.at] = [str(job.name) for job in step.allocator.queues[0]]

    LockRun(parse_lock_file(json.dumps(file)), watch).run()
    assert states[5] == ["A", "B"]
    assert states[10] == ["B"]
    assert states[20] == ["C"]


# -- against the reference -------------------------------------------------------------------


def test_random_scenarios_come_out_as_the_reference_says() -> None:
    for seed in range(1500):
        file = random_lock_file(seed)
        found = [
            {"at": at, "id": name, "token": token}
            for at, name, token in grants(parse_lock_file(json.dumps(file)))
        ]
        assert found == token_reference.run(file), f"seed {seed}: {json.dumps(file)}"


def test_random_scenarios_lend_as_the_reference_says() -> None:
    seen = 0
    for seed in range(150):
        file = random_lock_file(seed, events=False)
        steps: list[dict[Any, Any]] = []

        def watch(step: Step, steps: list[dict[Any, Any]] = steps) -> None:
            steps.append({j.name: step.allocator.lender(j).name for j in step.allocator.jobs()})

        LockRun(parse_lock_file(json.dumps(file)), watch).run()
        for ours, theirs in zip(steps, _reference_lenders(file), strict=True):
            assert ours == theirs, f"seed {seed}"
            seen += sum(name != lender for name, lender in ours.items())
    assert seen > 500


def _reference_lenders(file: dict[str, Any]) -> list[dict[Any, Any]]:
    steps = []

    class Watched(token_reference.Reference):
        def event(self, do: str, j: token_reference.Request, to: int | None, now: int) -> None:
            super().event(do, j, to, now)
            everyone = [x for queue in self.fq for x in queue] + self.pq + self.donors
            steps.append({x.id: self.effective(x).id for x in everyone})

    original, token_reference.Reference = token_reference.Reference, Watched  # type: ignore[misc]
    try:
        token_reference.run(file)
    finally:
        token_reference.Reference = original  # type: ignore[misc]
    return steps


# -- whatever happens ------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Any events in any order; the invariants are the protocols'."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.asked: list[Job] = []
        self.plain = True
        """No cancellation, change of priority or virtual unlock so far."""
        self.changed = False

    @initialize(
        devices=st.integers(1, 3),
        rho=st.integers(1, 2),
        length=st.sampled_from([None, 1, 2]),
        top=st.integers(1, 6),
        cap=st.integers(1, 12),
        order=st.sampled_from(["donation", "donation", "priority"]),
        homes=st.none() | st.lists(st.integers(0, 9), min_size=20, max_size=20),
    )
    def make(
        self,
        devices: int,
        rho: int,
        length: int | None,
        top: int,
        cap: int,
        order: str,
        homes: list[int] | None,
    ) -> None:
        tokens = devices * rho
        limit = None if length is None else min(cap, tokens * length)
        self.affinity = None
        if homes is not None:
            self.affinity = Affinity(CostPredictor(), Topology(devices), tokens, devices)
            for task, number in enumerate(homes):
                self.affinity.settle(task, number % devices)
                self.affinity.predictor.observe(task, 0, 100 + number)
                self.affinity.predictor.observe(task, 1, 120 + 30 * number)
        self.locks: TokenAllocator = make_allocator(
            AllocatorSettings(tokens, devices, top, length, limit, order), self.affinity
        )

    def some(self, number: int) -> Job | None:
        return self.asked[number % len(self.asked)] if self.asked else None

    @rule(priority=st.integers(0, 6))
    def request(self, priority: int) -> None:
        job = Job(self.count, priority, self.count, task=self.count % 25)
        self.count += 1
        self.asked.append(job)
        self.locks.request(job)

    @rule(number=st.integers(0, 99))
    def release(self, number: int) -> None:
        job = self.some(number)
        if job is not None and self.locks.holds(job):
            self.locks.release(job)
            self.asked.remove(job)

    @rule(number=st.integers(0, 99))
    def cancel(self, number: int) -> None:
        job = self.some(number)
        if job is not None:
            self.plain = False
            self.locks.cancel(job)
            self.asked.remove(job)

    @rule(number=st.integers(0, 99), priority=st.integers(0, 6))
    def change(self, number: int, priority: int) -> None:
        job = self.some(number)
        if job is not None:
            self.plain, self.changed = False, True
            self.locks.change(job, priority)

    @rule(number=st.integers(0, 99))
    def unlock(self, number: int) -> None:
        job = self.some(number)
        if job is not None and self.locks.holds(job) and not job.virtual:
            self.plain = False
            self.locks.unlock_virtually(job)

    @rule(number=st.integers(0, 99))
    def wrong_calls_change_nothing(self, number: int) -> None:
        job = self.some(number)
        stranger = Job("stranger", 3, 10_000)
        before = repr([self.locks.queues, self.locks.overflow, self.locks.donors])
        for call in (self.locks.release, self.locks.cancel, self.locks.unlock_virtually):
            with pytest.raises(LockError):
                call(stranger)
        if job is not None:
            with pytest.raises(LockError):
                self.locks.request(job)
            if not self.locks.holds(job):
                with pytest.raises(LockError):
                    self.locks.release(job)
        assert before == repr([self.locks.queues, self.locks.overflow, self.locks.donors])

    @invariant()
    def every_request_is_in_exactly_one_place(self) -> None:
        if hasattr(self, "locks"):
            assert sorted(job.base for job in self.locks.jobs()) == sorted(
                job.base for job in self.asked
            )
            assert len({id(job) for job in self.locks.jobs()}) == len(self.asked)

    @invariant()
    def a_token_has_one_holder_and_a_queue_its_head(self) -> None:
        if hasattr(self, "locks"):
            for token, queue in enumerate(self.locks.queues):
                assert self.locks.holder(token) is (queue[0] if queue else None)
                assert all(job.token == token and job.place is Place.QUEUE for job in queue)

    @invariant()
    def no_queue_is_too_long(self) -> None:
        if hasattr(self, "locks"):
            limit, cap = self.locks.settings.length, self.locks.settings.cap
            nominal = [self.locks.nominal(token) for token in range(len(self.locks.queues))]
            assert limit is None or max(nominal) <= limit
            assert self.locks.in_queues == sum(nominal)
            assert cap is None or sum(nominal) <= cap
            if self.locks.overflow or self.locks.donors:
                assert sum(nominal) == cap

    @invariant()
    def no_token_is_idle_beside_a_waiter(self) -> None:
        if hasattr(self, "locks") and self.affinity is None and not all(self.locks.queues):
            assert all(len(queue) <= 1 for queue in self.locks.queues)

    @invariant()
    def the_predicted_load_of_a_queue_is_that_of_its_jobs(self) -> None:
        if hasattr(self, "locks") and self.affinity is not None:
            loads = [sum(job.cost_ns for job in queue) for queue in self.locks.queues]
            assert self.affinity.loads_ns == loads

    @invariant()
    def donors_and_donees_are_one_to_one(self) -> None:
        if hasattr(self, "locks"):
            donees = [donor.donee for donor in self.locks.donors]
            assert len({id(donee) for donee in donees}) == len(donees)
            for donor in self.locks.donors:
                donee = donor.donee
                assert donee is not None
                assert donee.donor is donor
                assert donee.place is Place.QUEUE
                assert not donee.virtual
                assert self.changed or donor.base > donee.base

    @invariant()
    def nobody_strong_waits_without_lending(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is None or not self.plain or locks.settings.order == "priority":
            return
        cap = locks.settings.cap
        if locks.overflow and (cap is None or cap >= locks.settings.top):
            assert not locks.in_top(locks.overflow[-1])

    @invariant()
    def a_holder_is_no_weaker_than_those_behind_it(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is not None and locks.settings.order == "donation":
            for queue in locks.queues:
                for waiter in queue:
                    assert locks.lender(queue[0]).base >= locks.lender(waiter).base

    @precondition(lambda self: self.asked)
    @rule()
    def once_all_is_released_nobody_inherits(self) -> None:
        while self.asked:
            job = next(job for job in self.asked if self.locks.holds(job))
            self.locks.release(job)
            self.asked.remove(job)
            assert self.locks.lender(job) is job
        assert not list(self.locks.jobs())
        assert self.locks.in_queues == 0


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


# -- settings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cpus", "devices", "rho", "expected"),
    [
        ("r2dglp", 6, 4, 3, (12, 1, 6, "donation")),
        ("r2dglp-wc", 6, 4, 3, (12, 1, 12, "donation")),
        ("r2dglp", 6, 1, 2, (2, 3, 6, "donation")),
        ("r2dglp-wc", 6, 2, 2, (4, 2, 6, "donation")),
        ("kfmlp", 6, 2, 2, (4, None, None, "donation")),
        ("priority", 6, 2, 2, (4, 1, 4, "priority")),
    ],
)
def test_presets(
    name: str, cpus: int, devices: int, rho: int, expected: tuple[int, int, int, str]
) -> None:
    found = preset(name, cpus=cpus, devices=devices, rho=rho)
    assert (found.tokens, found.length, found.cap, found.order) == expected
    assert found.top == cpus


def test_a_preset_by_length_fills_every_queue() -> None:
    found = preset("length", cpus=6, devices=2, rho=2, length=3)
    assert (found.length, found.cap) == (3, 12)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (AllocatorSettings(2, 1, 2, 0, 2), "f"),
        (AllocatorSettings(2, 1, 2, 1, 3), "cap"),
        (AllocatorSettings(2, 1, 2, 1, None), "cap"),
        (AllocatorSettings(0, 1, 2, None, None), "k"),
        (AllocatorSettings(2, 1, 0, None, None), "m"),
        (AllocatorSettings(2, 0, 1, None, None), "g"),
        (AllocatorSettings(2, 2**64, 1, None, None), "g"),
    ],
)
def test_impossible_settings_are_refused_by_the_allocator(
    settings: AllocatorSettings, key: str
) -> None:
    with pytest.raises(LockError, match=f"^{key}: found"):
        make_allocator(settings)


def test_an_unknown_preset_or_a_length_too_many_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of r2dglp"):
        preset("fifo", cpus=1, devices=1, rho=1)
    with pytest.raises(ValueError, match="length: found 2"):
        preset("kfmlp", cpus=1, devices=1, rho=1, length=2)
    with pytest.raises(ValueError, match="rho: found 0"):
        preset("kfmlp", cpus=1, devices=1, rho=0)


def test_clusters_of_devices_belong_to_clusters_of_cpus() -> None:
    found = list(Clusters(cpus=12, cpus_each=6, devices=8, devices_each=2))
    assert [cluster.devices for cluster in found] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [cluster.cpus[0] for cluster in found] == [0, 0, 6, 6]


@pytest.mark.parametrize(
    ("clusters", "key"),
    [
        (Clusters(12, 5, 8, 2), "cpus_each"),
        (Clusters(12, 6, 8, 3), "devices_each"),
        (Clusters(12, 6, 8, 8), "devices_each"),
        (Clusters(0, 1, 1, 1), "cpus"),
    ],
)
def test_impossible_clusters_are_named(clusters: Clusters, key: str) -> None:
    assert [mistake[0] for mistake in clusters.mistakes()] == [key]
