"""How much work of whom goes to the GPU at once."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from headway.engine.reserves import ReserveSpec
from headway.live.channel import Channel, Peer
from headway.live.splits import WIDER, Splits
from tests.unit.test_arbiter import MS, Bench

SPLIT_NS, WINDOW_NS = 500_000, 200_000
SPLIT_AT, WINDOW_AT = 24, 32
"""In the page that a program reads."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def program(bench: Bench, pid: int, level: int = 0, *, reserved: bool = False) -> Channel:
    channel = bench.channel(f"program{len(bench.channels)}", level=level, peer=Peer(pid, 0, 0))
    assert channel.task is not None
    if reserved:
        bench.engine.set_reserve(channel.task, ReserveSpec("pe", 5 * MS, 20 * MS), 0)
    return channel


def told(bench: Bench) -> list[tuple[int, int]]:
    """The split and the window that each program reads."""
    Splits(SPLIT_NS, WINDOW_NS).set(bench.channels)
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
    program(bench, 1, reserved=True)
    assert told(bench) == [(SPLIT_NS, WIDER * WINDOW_NS)]


def test_what_is_no_longer_needed_is_taken_back(bench: Bench) -> None:
    program(bench, 1, 5)
    leaving = program(bench, 2, 5)
    told(bench)
    leaving.task = None
    assert told(bench)[0] == (0, 0)
