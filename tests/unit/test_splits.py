"""How much work of whom goes to the GPU at once."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.turns.windows import A_TURN, CAPACITIES, PERIODS, WIDER, WIDEST, Windows
from headway.live.gate.channel import Channel, Peer
from tests.bench.gate import MS, GateBench
from tests.pages import page

SPLIT_NS, WINDOW_NS = 500_000, 200_000
"""In the page that a program reads."""


@pytest.fixture
def bench() -> Iterator[GateBench]:
    made = GateBench()
    yield made
    made.close()


Reserve = tuple[int, int]
"""Capacity and period, in ms."""


def program(bench: GateBench, pid: int, level: int = 0, reserve: Reserve | None = None) -> Channel:
    channel = bench.channel(f"program{len(bench.channels)}", level=level, peer=Peer(pid, 0, 0))
    assert channel.task is not None
    if reserve is not None:
        spec = ReserveSpec("pe", reserve[0] * MS, reserve[1] * MS)
        bench.engine.set_reserve(channel.task, spec, 0)
    return channel


def shown(channel: Channel) -> tuple[int, int]:
    """The split and the window that a program reads."""
    return page(channel, "split_ns"), page(channel, "window_ns")


def told(bench: GateBench) -> list[tuple[int, int]]:
    """What each program reads, if they all came one after the other."""
    windows = Windows(SPLIT_NS, WINDOW_NS)
    for channel in bench.channels:
        windows.arrived(channel)
    return [shown(channel) for channel in bench.channels]


def test_a_program_alone_is_left_as_it_is_however_many_channels_it_has(bench: GateBench) -> None:
    program(bench, 1)
    program(bench, 1, 5)
    assert told(bench) == [(0, 0), (0, 0)]


def test_the_window_is_for_the_less_important(bench: GateBench) -> None:
    program(bench, 1, 9)
    program(bench, 2, 5)
    assert told(bench) == [(SPLIT_NS, 0), (SPLIT_NS, WINDOW_NS)]


def test_equals_have_a_wider_one_unless_somebody_is_above_them(bench: GateBench) -> None:
    program(bench, 1, 5)
    program(bench, 2, 5)
    assert told(bench) == [(SPLIT_NS, WIDER * WINDOW_NS)] * 2
    program(bench, 3, 9)
    assert told(bench) == [(SPLIT_NS, WINDOW_NS)] * 2 + [(SPLIT_NS, 0)]


def test_a_budget_bounds_also_one_that_is_alone(bench: GateBench) -> None:
    program(bench, 1, reserve=(5, 20))
    assert told(bench) == [(SPLIT_NS, WIDER * WINDOW_NS)]


@pytest.mark.parametrize(
    ("reserves", "windows_ms"),
    [
        (((5, 20), (15, 20)), (2, 2)),
        (((30, 100), (70, 100)), (5, 5)),
        (((10, 100), (90, 100)), (2.5, 5)),
        (((300, 1000), (70, 100)), (5, 5)),
        (((300, 1000), (700, 1000)), (5, 5)),
        (((24, 80), (40, 80)), (4, 4)),
        (((30, 100), None), (2, 2)),
        (((30, 100),), (5,)),
    ],
)
def test_the_longer_periods_and_budgets_are_the_wider_are_windows_of_equals(
    bench: GateBench, reserves: tuple[Reserve | None, ...], windows_ms: tuple[float, ...]
) -> None:
    """A twentieth of the shortest period and a quarter of the own budget, from ten to 25 times."""
    for pid, reserve in enumerate(reserves):
        program(bench, pid, 5, reserve)
    assert [window_ns / MS for _, window_ns in told(bench)] == list(windows_ms)
    program(bench, 99, 9)
    assert [window_ns for _, window_ns in told(bench)[:-1]] == [WINDOW_NS] * len(reserves)


def test_what_is_no_longer_needed_is_taken_back(bench: GateBench) -> None:
    staying, leaving = program(bench, 1, 5), program(bench, 2, 5)
    windows = Windows(SPLIT_NS, WINDOW_NS)
    windows.arrived(staying)
    windows.arrived(leaving)
    assert shown(staying) == (SPLIT_NS, WIDER * WINDOW_NS)
    windows.gone(leaving)
    assert shown(staying) == (0, 0)


def expected(channel: Channel, others: list[Channel]) -> tuple[int, int]:
    """The rules once more, for one program among all that are there."""
    task = channel.task
    assert task is not None
    tasks = [other.task for other in others if other.task is not None]
    crowded = len({other.peer.pid for other in others}) > 1
    if not crowded and task.reserve is None:
        return 0, 0
    if any(other.priority > task.priority for other in tasks):
        return SPLIT_NS, WINDOW_NS
    equals = [other for other in tasks if other.priority == task.priority]
    if task.reserve is None:
        return SPLIT_NS, WIDER * WINDOW_NS if len(equals) > 1 else 0
    periods = [0 if other.reserve is None else other.reserve.period_ns for other in equals]
    bound = min(min(periods) // PERIODS, task.reserve.capacity_ns // CAPACITIES)
    return SPLIT_NS, min(max(bound, WIDER * WINDOW_NS), WIDEST * WINDOW_NS)


@pytest.mark.parametrize("seed", range(8))
def test_whoever_comes_goes_or_changes_all_programs_read_what_counts_now(
    bench: GateBench, seed: int
) -> None:
    chance = random.Random(seed)
    windows = Windows(SPLIT_NS, WINDOW_NS)
    bench.engine.attach(windows)
    there: list[Channel] = []
    for _ in range(150):
        what = chance.choice(["come", "come", "go", "rank", "reserve", "pool"])
        one = chance.choice(there) if there else None
        if what == "come" or one is None or one.task is None:
            there.append(program(bench, chance.randrange(3), chance.randrange(3)))
            windows.arrived(there[-1])
        elif what == "go":
            there.remove(one)
            bench.arbiter.remove(one, 0)
        elif what == "rank":
            bench.engine.set_priority(one.task, Fixed(chance.randrange(3)), 0)
        elif what == "reserve":
            numbers = chance.randrange(1, 100) * MS, chance.randrange(100, 1000) * MS
            reserve = chance.choice([None, ReserveSpec("pe", *numbers)])
            if one.task.reserve is None or one.task.reserve.spec.shared is None:
                bench.engine.set_reserve(one.task, reserve, 0)
        else:
            numbers = chance.randrange(1, 100) * MS, chance.randrange(100, 1000) * MS
            spec = ReserveSpec("pe", *numbers, shared="pool")
            if "pool" in bench.engine.ledger.pools:
                bench.engine.change_pool("pool", spec, 0)
            bench.engine.set_reserve(one.task, spec, 0)
        assert not windows.is_stale
        assert [shown(c) for c in there] == [expected(c, there) for c in there]


def test_no_arrival_writes_more_than_a_few_pages_however_many_are_concerned(
    bench: GateBench,
) -> None:
    windows = Windows(SPLIT_NS, WINDOW_NS)
    crowd = [program(bench, 1, 5) for _ in range(3 * A_TURN)]
    for channel in crowd:
        windows.arrived(channel)
    assert {shown(channel) for channel in crowd} == {(0, 0)}
    vip = program(bench, 2, 9)
    windows.arrived(vip)
    turns = 0
    while windows.is_stale:
        late = sum(shown(channel) != (SPLIT_NS, WINDOW_NS) for channel in crowd)
        assert late == len(crowd) - (turns + 1) * A_TURN
        windows.tell()
        turns += 1
    assert {shown(channel) for channel in crowd} == {(SPLIT_NS, WINDOW_NS)}
    windows.gone(vip)
    while windows.is_stale:
        windows.tell()
    assert {shown(channel) for channel in crowd} == {(0, 0)}
