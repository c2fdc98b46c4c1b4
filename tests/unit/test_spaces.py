"""Shares of programs at the gate: who is told what, and when that spares a program its stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from headway.engine.controllers.bisection import Bisection
from headway.engine.core import Engine
from headway.engine.jobs import Job
from headway.engine.priorities import Fixed
from headway.engine.shares import ANY, Range
from headway.engine.turns.client import Client
from headway.engine.turns.spaces import Spaces


@dataclass
class Port:
    """A program's end of the gate, as far as shares go."""

    share: int = 0
    whole: int = 0
    told: int = 1000

    def set_share(self, permille: int) -> None:
        self.told = permille


class Bench:
    """Programs under one controller; the first is the most important."""

    def __init__(self, *ranges: Range) -> None:
        engine, self.jobs = Engine(), 0
        self.spaces = Spaces(lambda *words, at_ns: None)
        self.spaces.choose(Bisection())
        self.clients = []
        for number, shares in enumerate(ranges):
            client = Client(number, 0)
            rule = Fixed(9 - number)
            client.task, _ = engine.add_task(f"task{number}", 0, priority=rule)
            client.task.shares = shares
            client.port = cast(Any, Port())
            client.company.side_by_side = True
            self.spaces.arrived(client)
            self.clients.append(client)

    def port(self, number: int) -> Port:
        return cast(Port, self.clients[number].port)

    def miss(self, number: int = 0) -> None:
        task = self.clients[number].task
        assert task is not None
        self.jobs += 1
        begun_ns = self.jobs * 10_000_000
        job = Job(task, self.jobs, begun_ns, begun_ns + 5_000_000, 4_000_000, missed=True)
        self.spaces.controller.job_ended(job, 0.1)
        self.spaces.job_ended(job, job.ended_ns)

    def in_space(self, number: int = 0) -> bool:
        self.spaces.publish(0)
        return self.clients[number].company.in_space


@pytest.fixture
def bench() -> Bench:
    return Bench(ANY, ANY, ANY)


def test_a_miss_is_told_to_the_less_important_at_once(bench: Bench) -> None:
    bench.miss()
    assert [bench.port(number).told for number in range(3)] == [1000, 500, 500]
    bench.miss(1)
    assert [bench.port(number).told for number in range(3)] == [1000, 500, 500]
    bench.miss(1)
    assert [bench.port(number).told for number in range(3)] == [1000, 500, 250]


def test_who_keeps_to_its_share_need_not_stop_as_well(bench: Bench) -> None:
    bench.miss()
    assert not bench.in_space()
    for number in (1, 2):
        bench.port(number).share = 484
    assert bench.in_space()
    bench.port(2).whole += 1
    assert not bench.in_space(), "some of its work had all multiprocessors"
    assert bench.in_space(), "and has not since"


def test_work_that_was_left_whole_counts_for_everybody_above(bench: Bench) -> None:
    for _ in range(2):
        bench.miss()
        bench.miss(1)
    for number in (1, 2):
        bench.port(number).share = bench.port(number).told
    bench.spaces.publish(0)
    assert [client.company.in_space for client in bench.clients] == [True, True, False]
    bench.port(2).whole += 1
    bench.spaces.publish(0)
    assert [client.company.in_space for client in bench.clients] == [False, False, False]


def test_who_may_not_be_given_less_is_gated_in_time() -> None:
    """`--share 100%`, or a least share above what the important task stands."""
    for shares in (Range(1000, 1000), Range(600, 1000)):
        bench = Bench(ANY, shares)
        for _ in range(3):
            bench.miss()
        bench.port(1).share = 242  # of a time when it might
        assert bench.port(1).told >= 600
        level = bench.spaces.controller.level(cast(Any, bench.clients[0].task))
        assert bench.in_space() is (bench.port(1).told <= level)


def test_in_time_slices_nobody_gets_less(bench: Bench) -> None:
    for client in bench.clients:
        client.company.side_by_side = False
    bench.miss()
    assert [bench.port(number).told for number in range(3)] == [1000, 1000, 1000]


def test_who_is_gone_is_asked_nothing(bench: Bench) -> None:
    bench.miss()
    bench.port(1).share = bench.port(2).share = 484
    bench.spaces.gone(bench.clients[2])
    assert bench.spaces.told(bench.clients[2]) == 1000
    bench.port(2).whole += 1
    assert bench.in_space()
