"""The ready queue: its short answers are those that going through all of it would give."""

from __future__ import annotations

import random

import pytest

from headway.engine.core import Engine
from headway.engine.holdoff import HoldOffs
from headway.engine.model import Gpu, Group, Task
from headway.engine.policies.ht import Ht
from headway.engine.policies.prt import Prt
from headway.engine.priorities import Fixed
from headway.engine.queue import ReadyQueue
from headway.engine.reserves import ReserveSpec

MS = 1_000_000


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("asked", ["always", "late"])
def test_ranks_and_ages_of_who_is_ready_are_right_whatever_happens(seed: int, asked: str) -> None:
    chance = random.Random(seed)
    engine = Engine(named=[Prt(2 * MS), Ht(MS)])
    pool = ReserveSpec("pe", 3 * MS, 10 * MS, shared="pool")
    tasks: list[Task] = []
    index = now_ns = 0
    for step in range(600):
        now_ns += chance.randrange(2 * MS)
        engine.advance(now_ns)
        task = chance.choice(tasks) if tasks else None
        what = chance.choice(["add", "submit", "submit", "submit", "go", "go", "change", "remove"])
        if what == "add" and len(tasks) < 12:
            reserve = chance.choice([None, None, pool])
            policy = chance.choice(["prt", "prt", "ht", "fifo"] if step > 200 else ["prt", "ht"])
            made, _ = engine.add_task(f"t{step}", now_ns, policy=policy, reserve=reserve)
            tasks.append(made)
        elif what == "submit" and task is not None and task.waiting is None:
            index += 1
            engine.submit(Group(task, index), now_ns)
        elif what == "change" and task is not None:
            engine.set_priority(task, Fixed(chance.randrange(3)), now_ns)
            if step > 300 and chance.random() < 0.3:
                engine.set_policy(task, chance.choice(["prt", "ht", "fifo"]), now_ns)
        elif what == "remove" and task is not None and chance.random() < 0.3:
            tasks.remove(task)
            engine.remove_task(task, now_ns)
        elif what == "go":
            online = engine.gpus[0].online
            if online:
                engine.complete(online[0], online[0].dispatched_ns, now_ns)
            engine.dispatch(now_ns)
        ready = engine.ready()
        if ready and (asked == "always" or step > 400):
            assert engine.best_ready_rank() == min(group.task.rank for group in ready)
            assert engine.queue.oldest_ns() == min(group.ready_ns for group in ready)


def test_a_gpu_that_is_kept_is_asked_about_for_the_first_who_waits_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of those who follow nobody is more important than who it is kept for."""
    asked = 0
    keep = HoldOffs.keep

    def counted(self: HoldOffs, gpu: Gpu, group: Group, queue: ReadyQueue, now_ns: int) -> bool:
        nonlocal asked
        asked += 1
        return keep(self, gpu, group, queue, now_ns)

    monkeypatch.setattr(HoldOffs, "keep", counted)
    engine = Engine(named=[Prt(2 * MS)])
    vip, _ = engine.add_task("vip", 0, priority=Fixed(9))
    engine.submit(Group(vip, 0), 0)
    group = engine.dispatch(0)
    assert group is not None
    for number in range(100):
        task, _ = engine.add_task(f"t{number}", 0)
        engine.submit(Group(task, 0), 0)
    engine.complete(group, 0, MS)
    asked = 0
    assert engine.dispatch(MS + 1000) is None
    assert asked == 1


def test_a_gpu_that_was_kept_while_another_was_free_is_no_timer_once_nobody_waits() -> None:
    engine = Engine(gpus=2, named=[Prt(2 * MS)])
    vip, _ = engine.add_task("vip", 0, priority=Fixed(9))
    other, _ = engine.add_task("other", 0)
    engine.submit(Group(vip, 0), 0)
    group = engine.dispatch(0)
    assert group is not None
    engine.complete(group, 0, MS)
    other.last_gpu = engine.gpus[0]
    engine.submit(Group(other, 0), MS)
    assert engine.dispatch(MS) is not None
    assert engine.next_timer_ns() is None
