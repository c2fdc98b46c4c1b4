"""Equals take turns by process and by user, however many connections or processes somebody has."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from headway.engine.core import Engine
from headway.engine.events import Dispatched, Event, Recorder, StandsWith, TaskAdded
from headway.engine.model import Group, Task
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.snapshot import retell
from headway.trace.checker import Checker

MS = 1_000_000


class Crowd:
    """Tasks that always want the GPU, each for a millisecond at a time."""

    def __init__(self, *, watched: bool = True) -> None:
        self.checker = Checker()
        self.events: list[Event] = []
        self.engine = Engine(observers=[Recorder(self._hear)] if watched else [])
        self.now_ns = 0
        self._asked: Counter[Task] = Counter()

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self.checker.feed(event)

    def join(self, name: str, *parties: str, level: int = 0) -> Task:
        task, _ = self.engine.add_task(name, self.now_ns, priority=Fixed(level))
        self.engine.stand_together(task, parties, self.now_ns)
        return task

    def ask(self, *tasks: Task) -> None:
        for task in tasks:
            if task.waiting is None:
                self.engine.submit(Group(task, self._asked[task]), self.now_ns)
                self._asked[task] += 1

    def turn(self) -> str:
        """Whoever is on the GPU is done and asks again, and somebody goes."""
        (gpu,) = self.engine.gpus
        if gpu.online:
            group = gpu.online[0]
            self.engine.complete(group, group.dispatched_ns, self.now_ns)
            self.ask(group.task)
        went = self.engine.dispatch(self.now_ns)
        assert went is not None
        self.now_ns += MS
        return went.task.name

    def turns(self, number: int) -> Counter[str]:
        """How often each went."""
        return Counter(self.turn() for _ in range(number))


def test_a_process_with_many_connections_gets_no_more_than_one_with_one() -> None:
    crowd = Crowd()
    many = [crowd.join(f"many{i}", "process 1") for i in range(9)]
    one, two = crowd.join("one", "process 2"), crowd.join("two", "process 3")
    crowd.ask(*many, one, two)
    went = crowd.turns(270)
    assert went["one"] == went["two"] == 90
    assert [went[task.name] for task in many] == [10] * 9, "and its own share it evenly"
    assert crowd.checker.violations == []


def test_a_user_with_many_processes_gets_no_more_than_one_with_one() -> None:
    crowd = Crowd()
    anns = [crowd.join(f"ann{i}", "user 1", f"process {i}") for i in range(5)]
    anns += [crowd.join(f"anns{i}", "user 1", "process 9") for i in range(5)]
    bob = crowd.join("bob", "user 2", "process 7")
    crowd.ask(*anns, bob)
    went = crowd.turns(240)
    assert went["bob"] == 120
    assert [went[f"ann{i}"] for i in range(5)] == [20] * 5
    assert [went[f"anns{i}"] for i in range(5)] == [4] * 5
    assert crowd.checker.violations == []


def test_importance_comes_before_all_that() -> None:
    crowd = Crowd()
    high = [crowd.join(f"high{i}", "process 1", level=1) for i in range(3)]
    low = crowd.join("low", "process 2")
    crowd.ask(*high, low)
    assert crowd.turns(60)["low"] == 0


def test_a_task_stands_with_its_parties_from_the_beginning_on() -> None:
    crowd = Crowd()
    task = crowd.join("t", "process 1")
    with pytest.raises(ValueError, match="t cannot stand with process 2 as well"):
        crowd.engine.stand_together(task, ("process 2",), 0)


def test_parties_of_one_go_in_the_order_of_submission() -> None:
    """As without any: the two engines are asked the same at random, and take the same decisions."""
    for seed in range(20):
        rng = random.Random(seed)
        alone, parties = Crowd(), Crowd()
        pairs = [
            (alone.join(f"t{i}", level=i % 2), parties.join(f"t{i}", f"p{i}", level=i % 2))
            for i in range(6)
        ]
        for _ in range(200):
            now_ns = alone.now_ns = parties.now_ns = alone.now_ns + rng.randrange(3)
            pair = rng.choice(pairs)
            what = rng.random()
            for crowd, task in zip((alone, parties), pair, strict=True):
                (gpu,) = crowd.engine.gpus
                if what < 0.5 and not any(group.task is task for group in gpu.online):
                    crowd.ask(task)
                elif what < 0.6:
                    crowd.engine.withdraw(task, now_ns)
                elif gpu.online:
                    crowd.engine.complete(gpu.online[0], now_ns, now_ns)
                crowd.engine.dispatch(now_ns)
        went = [[e for e in c.events if isinstance(e, Dispatched)] for c in (alone, parties)]
        assert went[0] == went[1]
        assert went[0]
        assert alone.checker.violations == parties.checker.violations == []


@pytest.mark.parametrize("seed", range(10))
def test_anything_at_all_keeps_the_rules(seed: int) -> None:
    """Tasks that come, go, change and stand with each other at random, also in a stream that takes
    up the run in the middle."""
    rng = random.Random(seed)
    crowd, late = Crowd(), Checker()
    recorder = Recorder(late.feed)
    tasks: list[Task] = []
    for step in range(600):
        crowd.now_ns += rng.randrange(2) * MS
        engine, now_ns = crowd.engine, crowd.now_ns
        engine.advance(now_ns)
        if len(tasks) < 6:
            users = rng.sample(["u1", "u2", "u3"], rng.randrange(2))
            process, level = f"p{rng.randrange(3)}", rng.randrange(2)
            tasks.append(crowd.join(f"t{step}", *users, process, level=level))
            if rng.random() < 0.3:
                spec = ReserveSpec("pe", 2 * MS, 8 * MS)
                engine.set_reserve(tasks[-1], spec, now_ns)
        (gpu,) = engine.gpus
        what, task = rng.random(), rng.choice(tasks)
        if gpu.online and what < 0.4:
            group = gpu.online[0]
            engine.complete(group, group.dispatched_ns, now_ns)
        elif what < 0.8:
            crowd.ask(task)
        elif what < 0.85:
            engine.withdraw(task, now_ns)
        elif what < 0.9:
            engine.set_priority(task, Fixed(rng.randrange(2)), now_ns)
        elif what < 0.93:
            engine.remove_task(task, now_ns)
            tasks.remove(task)
        engine.dispatch(now_ns)
        if step == 300:
            recorder.began(1, now_ns)
            retell([engine], recorder)
            engine.attach(recorder)
    assert crowd.checker.violations == late.violations == []
    ready = [party.ready for task in tasks for party in task.parties]
    expected = [
        sum(other.in_ready_queue and party in other.parties for other in tasks)
        for task in tasks
        for party in task.parties
    ]
    assert ready == expected


def test_the_checker_sees_who_goes_out_of_turn() -> None:
    crowd = Crowd()
    crowd.ask(*(crowd.join(f"t{i}") for i in range(3)))
    for _ in range(6):
        crowd.turn()
    checker = Checker()
    for event in crowd.events:
        checker.feed(event)
        if isinstance(event, TaskAdded) and event.task in ("t0", "t1"):
            checker.feed(StandsWith(0, event.task, "process 1", 0))
    assert checker.violations
    assert {violation.rule for violation in checker.violations} == {"priority"}
    assert "its process or its user has waited for longer" in checker.violations[0].message


def test_a_decision_among_very_many_connections_of_one_process_is_quick() -> None:
    """As many as a user may have: some decisions in a turn of the loop at most."""
    crowd = Crowd(watched=False)
    crowd.ask(*(crowd.join(f"many{i}", "process 1") for i in range(2000)))
    crowd.turn()
    since = time.perf_counter()
    crowd.turns(50)
    assert (time.perf_counter() - since) / 50 < 0.02, "ten times what it takes on a slow machine"
