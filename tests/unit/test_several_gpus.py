"""An engine for each GPU, and one stream of records of all of them."""

from __future__ import annotations

from fractions import Fraction

from headway.engine.core import Engine
from headway.engine.events import Completed, Event, Recorder, TaskAdded
from headway.engine.model import Group, Task
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.snapshot import retell
from headway.trace.checker import check

MS = 1_000_000
SIXTY = ReserveSpec("pe", 6 * MS, 10 * MS, shared="pool")


def run(task: Task, engine: Engine, begin_ns: int, end_ns: int) -> None:
    """A group of the task, alone."""
    group = Group(task, 0)
    engine.submit(group, begin_ns)
    assert engine.dispatch(begin_ns) is group
    engine.complete(group, begin_ns, end_ns)


def test_each_gpu_promises_all_of_itself_and_none_is_another_s_rival() -> None:
    events: list[Event] = []
    first, second = (
        Engine(device=number, limit=Fraction(1), observers=[Recorder(events.append)])
        for number in (0, 1)
    )
    vip, there = first.add_task("vip", 0, priority=Fixed(9), reserve=SIXTY)
    low, here = second.add_task("low", 0, reserve=SIXTY)
    assert (there.accepted, here.accepted) == (True, True)
    assert {task.reserve and task.reserve.name for task in (vip, low)} == {
        "@pool",
        "@pool (GPU 1)",
    }
    blocker, _ = first.add_task("blocker", 0, priority=Fixed(10))
    running, waiting = Group(blocker, 0), Group(vip, 0)
    first.submit(running, 0)
    assert first.dispatch(0) is running
    first.submit(waiting, 0)
    run(low, second, 0, 2 * MS)  # though vip waits, for the other GPU
    first.complete(running, 0, 3 * MS)
    assert first.dispatch(3 * MS) is waiting
    first.complete(waiting, 3 * MS, 4 * MS)
    first.tell("ended", True)
    assert check(events).violations == []
    assert [e.gpu for e in events if isinstance(e, TaskAdded)] == [0, 1, 0]
    assert [(e.task, e.gpu) for e in events if isinstance(e, Completed)] == [
        ("low", 1),
        ("blocker", 0),
        ("vip", 0),
    ]


def test_work_on_another_tasks_gpu_is_found() -> None:
    """The same stream with a group where it has nothing to do."""
    events: list[Event] = []
    engine = Engine(device=1, observers=[Recorder(events.append)])
    task, _ = engine.add_task("a", 0)
    engine.gpus[0].index = 0
    run(task, engine, 0, MS)
    assert [violation.rule for violation in check(events).violations] == ["sequence"]


def test_a_stream_that_begins_in_the_middle_knows_the_tasks_of_all_gpus() -> None:
    events: list[Event] = []
    engines = [Engine(device=number) for number in (0, 1)]
    tasks = [engine.add_task(f"on {n}", 0)[0] for n, engine in enumerate(engines)]
    recorder = Recorder(events.append)
    recorder.began(2, 0)
    retell(engines, recorder)
    for engine in engines:
        engine.attach(recorder)
    for number, (task, engine) in enumerate(zip(tasks, engines, strict=True)):
        run(task, engine, number * MS, (number + 1) * MS)
    engines[1].tell("ended", True)
    assert check(events).violations == []
    assert [e.gpu for e in events if isinstance(e, TaskAdded)] == [0, 1]
