"""How much work of whom goes to the GPU at once."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from headway.engine.reserves import ReserveSpec
from headway.engine.turns.windows import WIDER, Windows
from headway.live.gate.channel import Channel, Peer
from tests.unit.test_arbiter import MS, Bench

SPLIT_NS, WINDOW_NS = 500_000, 200_000
SPLIT_AT, WINDOW_AT = 24, 32
"""In the page that a program reads."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


Reserve = tuple[int, int]
"""Capacity and period, in ms."""


def program(bench: Bench, pid: int, level: int = 0, reserve: Reserve | None = None) -> Channel:
    channel = bench.channel(f"program{len(bench.channels)}", level=level, peer=Peer(pid, 0, 0))
    assert channel.task is not None
    if reserve is not None:
        spec = ReserveSpec("pe", reserve[0] * MS, reserve[1] * MS)
        bench.engine.set_reserve(channel.task, spec, 0)
    return channel


def told(bench: Bench) -> list[tuple[int, int]]:
    """The split and the window that each program reads."""
    Windows(SPLIT_NS, WINDOW_NS).set(bench.channels)
    pages = [channel.pages for channel in bench.channels if channel.pages is not None]
    return [
        (
            struct.unpack("<Q", os.pread(page.daemon_fd, 8, SPLIT_AT))[0],
            struct.unpack("<Q", os.pread(page.daemon_fd, 8, WINDOW_AT))[0],
        )
        for page in pages
    ]


def test_a_program_alone_is_left_as_it_is_however_many_channels_it_has(bench: Bench) -> None:
    program(bench, 1)
    program(bench, 1, 5)
    assert told(bench) == [(0, 0), (0, 0)]


def test_the_window_is_for_the_less_important(bench: Bench) -> None:
    program(bench, 1, 9)
    program(bench, 2, 5)
    assert told(bench) == [(SPLIT_NS, 0), (SPLIT_NS, WINDOW_NS)]


def test_equals_have_a_wider_one_unless_somebody_is_above_them(bench: Bench) -> None:
    program(bench, 1, 5)
    program(bench, 2, 5)
    assert told(bench) == [(SPLIT_NS, WIDER * WINDOW_NS)] * 2
    program(bench, 3, 9)
    assert told(bench) == [(SPLIT_NS, WINDOW_NS)] * 2 + [(SPLIT_NS, 0)]


def test_a_budget_bounds_also_one_that_is_alone(bench: Bench) -> None:
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
    bench: Bench, reserves: tuple[Reserve | None, ...], windows_ms: tuple[float, ...]
) -> None:
    """A twentieth of the shortest period and a quarter of the own budget, from ten to 25 times."""
    for pid, reserve in enumerate(reserves):
        program(bench, pid, 5, reserve)
    assert [window_ns / MS for _, window_ns in told(bench)] == list(windows_ms)
    program(bench, 99, 9)
    assert [window_ns for _, window_ns in told(bench)[:-1]] == [WINDOW_NS] * len(reserves)


def test_what_is_no_longer_needed_is_taken_back(bench: Bench) -> None:
    program(bench, 1, 5)
    leaving = program(bench, 2, 5)
    told(bench)
    leaving.task = None
    assert told(bench)[0] == (0, 0)
