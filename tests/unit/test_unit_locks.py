"""Units: who owns which, groups that take all or nothing, and priorities handed on through them."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.engine.locks.cluster_locks import ClusterLocks
from headway.engine.locks.clusters import Cluster
from headway.engine.locks.copies import CopySettings, Move
from headway.engine.locks.helpers import Thread, cpu_key, interrupt_lender, worker_lender
from headway.engine.locks.jobs import Job, LockError
from headway.engine.locks.settings import AllocatorSettings
from headway.engine.locks.unit_locks import Unit, UnitLocks

Ask = tuple[str, int, int, int, tuple[int, ...]]
"""Name, priority, when it asks, for how long, and the devices whose second copy engine it takes."""


def schedule(order: str, asks: list[Ask]) -> tuple[dict[str, tuple[int, int]], dict[int, str]]:
    """When each job has its units, and who runs as whom after each instant."""
    locks = UnitLocks([0, 1], order)
    jobs = {name: Job(name, priority, place) for place, (name, priority, *_) in enumerate(asks)}
    plan = {name: (hold, devices) for name, _, _, hold, devices in asks}
    due = [(at, 1, name) for name, _, at, _, _ in asks]
    heapify(due)
    spans: dict[str, tuple[int, int]] = {}
    lent = {}
    while due:
        at, asks_now, name = heappop(due)
        job = jobs[name]
        if asks_now:
            started = locks.request(job, [locks.unit(d, "ce1") for d in plan[name][1]])
        else:
            started = locks.release(job)
        for other in started:
            spans[str(other.name)] = (at, at + plan[str(other.name)][0])
            heappush(due, (spans[str(other.name)][1], 0, str(other.name)))
        lent[at] = " ".join(
            f"{n}={locks.effective(j).name}" for n, j in jobs.items() if locks.effective(j) is not j
        )
    return spans, lent


EXAMPLE: list[Ask] = [
    ("X", 1, 0, 4, (0,)),
    ("Y", 5, 1, 3, (0, 1)),
    ("Z", 9, 2, 3, (1,)),
    ("W", 2, 3, 2, (1,)),
]


def test_under_fifo_a_group_keeps_what_it_has_and_hands_priority_on() -> None:
    spans, lent = schedule("fifo", EXAMPLE)
    assert spans == {"X": (0, 4), "Y": (4, 7), "Z": (7, 10), "W": (10, 12)}
    assert lent[1] == "X=Y"
    assert lent[2] == "X=Z Y=Z"


def test_by_priority_a_group_takes_all_or_nothing() -> None:
    spans, lent = schedule("priority", EXAMPLE)
    assert spans == {"X": (0, 4), "Z": (2, 5), "Y": (5, 8), "W": (8, 10)}
    assert [lent[at] for at in (1, 2, 3)] == ["X=Y"] * 3
    assert lent[4] == ""


def test_a_unit_kept_free_for_a_group_goes_to_a_stronger_request_only() -> None:
    # At 4 GPU 0's is free and the group Y cannot start. W, weaker, waits; V, stronger, has it.
    asks = [*EXAMPLE[:3], ("W", 2, 4, 2, (0,)), ("V", 7, 4, 1, (0,))]
    spans, _ = schedule("priority", asks)
    assert spans["V"] == (4, 5)
    assert spans["Y"] == (5, 8)
    assert spans["W"] == (8, 10)


def test_inheritance_reaches_the_owner_of_a_unit_through_tokens() -> None:
    # A and B hold the tokens of one device; C waits behind A. A waits for B's unit: B runs as C.
    locks = cluster(tokens=2, length=2)
    a, b, c = (
        Job(name, priority, n)
        for n, (name, priority) in enumerate(zip("abc", (2, 1, 9), strict=False))
    )
    for job in (a, b, c):
        locks.request(job)
    locks.take(b, [(0, "ee")])
    assert locks.effective(b) is b
    locks.take(a, [(0, "ee")])
    assert locks.effective(a) is c
    assert locks.effective(b) is c
    locks.change(c, 0)  # asks anew, behind A again
    assert locks.effective(b) is a
    assert locks.give_back(b).started == [a]
    assert locks.effective(b) is b


def test_a_waiter_whose_priority_rises_through_tokens_goes_first() -> None:
    # By priority: B heads the queue of the unit before A, until C, which waits for A's token, is
    # stronger than both.
    locks = cluster(tokens=3, length=2, order="priority")
    a, b, c, o = (
        Job(name, p, n) for n, (name, p) in enumerate([("a", 1), ("b", 2), ("c", 9), ("o", 0)])
    )
    for job in (o, a, b):
        locks.request(job)
        locks.take(job, [(0, "ee")])
    assert [claim.job for claim in locks.units.unit(0, "ee").queue] == [b, a]
    locks.request(c)  # to the first of the shortest queues, which is O's
    assert locks.effective(o) is c
    weak = Job("d", 8, 4)
    locks.request(weak)  # behind A
    assert locks.tokens.lender(a) is weak
    assert [claim.job for claim in locks.units.unit(0, "ee").queue] == [a, b]
    assert locks.give_back(o).started == [a]


def test_a_lone_waiter_that_became_stronger_stays_ahead_of_who_comes_later() -> None:
    locks = cluster(tokens=2, length=2, order="priority")
    owner, first, later = Job("owner", 0, 0), Job("first", 1, 1), Job("later", 4, 2)
    for job in (owner, first):
        locks.request(job)
        locks.take(job, [(0, "ee")])
    locks.request(Job("behind the owner", 2, 3))
    locks.request(Job("behind the first", 9, 4))
    assert locks.units.effective(first).priority == 9
    assert not locks.units.may_keep(owner)
    unit = locks.units.unit(0, "ee")
    locks.units.request(later, [unit])
    assert [claim.job for claim in unit.queue] == [first, later]


def cluster(
    tokens: int = 2,
    length: int = 1,
    order: str = "fifo",
    devices: int = 1,
    copies: CopySettings | None = None,
) -> ClusterLocks:
    settings = AllocatorSettings(tokens, devices, 4, length, tokens * length)
    place = Cluster(0, (0, 1), tuple(range(devices)))
    return ClusterLocks(place, settings, unit_order=order, copies=copies)


# -- errors ----------------------------------------------------------------------------------


def test_calls_out_of_order_are_refused_and_change_nothing() -> None:
    locks = cluster(tokens=2, devices=2)
    a, b = Job("a", 1, 0), Job("b", 2, 1)
    with pytest.raises(LockError, match="a uses a device, but holds no token"):
        locks.take(a, [(0, "ee")])
    locks.request(a)
    locks.request(b)
    for units, wrong in [
        ([(1, "ee")], "uses device 1, but holds a token of device 0"),
        ([(0, "ce0"), (0, "ce1")], "asks for 2 units, expected one at a time"),
        ([(0, "ce2")], "found ce2 of device 0"),
        ([], "expected different units"),
    ]:
        with pytest.raises(LockError, match=wrong):
            locks.take(a, units)
    with pytest.raises(LockError, match="expected different units"):
        locks.take(a, [(0, "ce0"), (0, "ce0")], home=1)
    with pytest.raises(LockError, match="releases units, but owns none"):
        locks.give_back(a)
    locks.take(a, [(0, "ee")])
    with pytest.raises(LockError, match="owns ee of device 0"):
        locks.take(a, [(0, "ce0")])
    with pytest.raises(LockError, match="releases its token, but has or waits for units"):
        locks.release(a)
    locks.give_back(a)
    locks.release(a)
    with pytest.raises(LockError, match="releases a token, but holds none"):
        locks.release(a)
    assert locks.tokens.holds(b)
    assert all(unit.owner is None for unit in locks.units.units.values())


def test_who_is_withdrawn_gives_back_all_it_had_and_leaves_all_queues() -> None:
    locks = cluster(tokens=4, devices=2)
    a, b, c = (Job(n, p, p) for p, n in enumerate("abc"))
    for job in (a, b, c):
        locks.request(job)  # a and c on device 0, b on device 1
    locks.take(a, [(0, "ce0")])
    locks.take(b, [(1, "ce0"), (0, "ce0")], home=0)
    locks.take(c, [(0, "ce0")])
    effects = locks.withdraw(b)  # it had device 1's and waited for device 0's
    assert effects.started == []
    assert locks.units.unit(1, "ce0").owner is None
    assert locks.withdraw(a).started == [c]
    locks.withdraw(c)
    assert not list(locks.tokens.jobs())
    assert locks.units.claims == 0


# -- copies ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("copies", "move", "expected"),
    [
        (CopySettings(1), Move.IN, [(1, "ce0")]),
        (CopySettings(1), Move.STATE_OUT, [(0, "ce0")]),
        (CopySettings(1), Move.PEER, [(0, "ce0"), (1, "ce0")]),
        (CopySettings(2), Move.IN, [(1, "ce0")]),
        (CopySettings(2), Move.OUT, [(0, "ce1")]),
        (CopySettings(2), Move.STATE_IN, [(1, "ce0")]),
        (CopySettings(2), Move.PEER, [(0, "ce1"), (1, "ce0")]),
        (CopySettings(2, outbound_pair=True), Move.PEER, [(0, "ce1"), (1, "ce1")]),
        (CopySettings(2, reserved=True), Move.OUT, [(0, "ce0")]),
        (CopySettings(2, reserved=True), Move.STATE_IN, [(1, "ce1")]),
        (CopySettings(2, reserved=True), Move.PEER, [(0, "ce1"), (1, "ce1")]),
    ],
)
def test_which_copy_engine_an_operation_takes(
    copies: CopySettings, move: Move, expected: list[tuple[int, str]]
) -> None:
    assert list(copies.needs(move, 0, 1)) == expected


def test_a_long_copy_asks_for_each_chunk() -> None:
    assert CopySettings(chunk=4).chunks(10) == [4, 4, 2]
    assert CopySettings(chunk=4).chunks(4) == [4]
    assert CopySettings(chunk=4).chunks(0) == []


def test_units_are_kept_between_chunks_while_nobody_is_entitled_to_them() -> None:
    for order, kept in (("fifo", False), ("priority", True)):
        locks = UnitLocks([0], order)
        owner, weaker, stronger = Job("o", 5, 0), Job("w", 1, 1), Job("s", 9, 2)
        unit = locks.unit(0, "ce0")
        locks.request(owner, [unit])
        assert locks.may_keep(owner)
        locks.request(weaker, [unit])
        assert locks.may_keep(owner) is kept
        locks.request(stronger, [unit])
        assert not locks.may_keep(owner)


@pytest.mark.parametrize(
    ("copies", "key"),
    [
        (CopySettings(3), "units"),
        (CopySettings(1, reserved=True), "reserved"),
        (CopySettings(chunk=0), "chunk"),
    ],
)
def test_impossible_copy_settings_are_named(copies: CopySettings, key: str) -> None:
    assert [mistake[0] for mistake in copies.mistakes()] == [key]


# -- helpers ---------------------------------------------------------------------------------


def test_helpers_inherit_from_jobs_suspended_for_operations_and_only_from_them() -> None:
    locks = cluster(tokens=3, length=2)
    a, b, c = (Job(n, p, p) for p, n in enumerate("abc"))
    for job in (a, b, c):
        locks.request(job)
    units = list(locks.units.units.values())
    assert interrupt_lender(units, locks.effective) is None
    locks.take(a, [(0, "ee")])
    assert interrupt_lender(units, locks.effective) is None  # not suspended yet
    a.in_operation = True
    assert interrupt_lender(units, locks.effective) is a
    locks.take(c, [(0, "ee")])  # suspended for a lock: lends through A only
    assert interrupt_lender(units, locks.effective) is c
    assert worker_lender([a], locks.effective) is c
    assert worker_lender([c], locks.effective) is None
    locks.take(b, [(0, "ce0")])
    b.in_operation = True
    assert worker_lender([b], locks.effective) is b
    a.in_operation = False
    assert worker_lender([a], locks.effective) is None
    assert interrupt_lender(units, locks.effective) is b


def test_the_order_on_cpus() -> None:
    strong, weak = Job("s", 9, 0), Job("w", 1, 1)
    order = [
        cpu_key(strong, Thread.JOB, 0),
        cpu_key(strong, Thread.INTERRUPT, 0),
        cpu_key(strong, Thread.WORKER, 3),
        cpu_key(strong, Thread.WORKER, 4),
        cpu_key(weak, Thread.JOB, 0),
        cpu_key(None, Thread.INTERRUPT, 0),
        cpu_key(None, Thread.WORKER, 0),
    ]
    assert order == sorted(order, reverse=True)


# -- whatever happens ------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Single requests and groups of two in any order, with cancellations and changed priorities."""

    @initialize(order=st.sampled_from(["fifo", "priority"]))
    def make(self, order: str) -> None:
        self.priorities: dict[int, int] = {}
        self.locks = UnitLocks([0, 1, 2], order, lender=self.lender)
        self.jobs: list[Job] = []
        self.groups: dict[int, list[Unit]] = {}
        self.count = 0

    def lender(self, job: Job) -> Job:
        """A job that is lent another's priority, as the token allocator lends."""
        lent = self.priorities.get(id(job))
        return job if lent is None else Job("lender", lent, 1000 + job.task)

    @rule(priority=st.integers(0, 5), device=st.integers(0, 2), peer=st.integers(0, 2))
    def request(self, priority: int, device: int, peer: int) -> None:
        job = Job(self.count, priority, self.count)
        self.count += 1
        kinds = CopySettings(2, outbound_pair=self.count % 2 == 0)
        if device != peer:
            needed = kinds.needs(Move.PEER, device, peer)
        else:
            needed = kinds.needs(Move.IN if priority % 2 else Move.OUT, device, device)
        units = [self.locks.unit(*unit) for unit in needed]
        self.groups[id(job)] = units
        self.jobs.append(job)
        self.locks.request(job, units)

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 99))
    def release(self, number: int) -> None:
        job = self.jobs[number % len(self.jobs)]
        if job.claim is None:
            self.locks.release(job)
            self.jobs.remove(job)
        else:
            with pytest.raises(LockError):
                self.locks.release(job)

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 99))
    def cancel(self, number: int) -> None:
        job = self.jobs.pop(number % len(self.jobs))
        self.locks.cancel(job)
        assert not job.owned

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 99), priority=st.integers(0, 9))
    def lend(self, number: int, priority: int) -> None:
        self.priorities[id(self.jobs[number % len(self.jobs)])] = priority
        self.locks.refresh()

    @invariant()
    def a_unit_has_one_owner_and_knows_it(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is None:
            return
        for unit in locks.units.values():
            owners = [job for job in self.jobs if unit in job.owned]
            assert owners == ([] if unit.owner is None else [unit.owner])

    @invariant()
    def who_runs_has_all_and_by_priority_nobody_has_a_half(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is None:
            return
        for job in self.jobs:
            wanted = self.groups[id(job)]
            if job.claim is None:
                assert set(job.owned) == set(wanted)
            elif locks.by_priority:
                assert not job.owned
            else:
                assert set(job.owned) < set(wanted)

    @invariant()
    def no_unit_is_idle_while_its_first_could_run(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is None:
            return
        for unit in locks.units.values():
            if unit.owner is None and unit.queue:
                assert locks.by_priority
                claim = unit.queue[0]
                assert any(u.owner is not None or u.queue[0] is not claim for u in claim.units)

    @invariant()
    def queues_by_priority_are_in_the_order_of_effective_priorities(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is None or not locks.by_priority:
            return
        for unit in locks.units.values():
            waiting = [locks.effective(claim.job).base for claim in unit.queue]
            assert waiting == sorted(waiting, reverse=True)

    @invariant()
    def an_owner_is_no_weaker_than_those_it_blocks(self) -> None:
        locks = getattr(self, "locks", None)
        if locks is None:
            return
        for unit in locks.units.values():
            if unit.owner is not None:
                for claim in unit.queue:
                    ours, theirs = locks.effective(unit.owner), locks.effective(claim.job)
                    assert ours.base >= theirs.base

    @precondition(lambda self: self.jobs)
    @rule()
    def all_are_served_in_the_end(self) -> None:
        while self.jobs:
            job = next(job for job in self.jobs if job.claim is None)
            self.locks.release(job)
            self.jobs.remove(job)
        assert self.locks.claims == 0


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
