"""What programs do costs the same beside dozens of others as beside thousands: counted, not timed.

Work is counted in bytecodes (tests/bench/work.py), so a loop over all programs shows wherever it
is, and the machine's load does not.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.engine.core import Engine
from headway.engine.model import Task
from headway.engine.policies.overlap import Overlap
from headway.engine.priorities import Fixed
from headway.engine.turns.arbiter import Arbiter, Bounds
from headway.engine.turns.awake import AWAKE_NS
from headway.engine.turns.client import Client
from headway.engine.turns.windows import DEFAULT_SPLIT_NS, DEFAULT_WINDOW_NS, Windows
from headway.sim.cuda.page import Page
from tests.bench.work import steps

MS = 1_000_000
FEW, MANY = 64, 4096
ASKING = 16
"""Programs that want the GPU, in either case."""
LOWEST = -5000
"""A level that none of them has."""
AS_MUCH = 1.1
"""Beside so many times as many others an operation may be so much more work."""


class Crowd:
    """Very many programs that take turns, of which some ask again and again."""

    def __init__(self, number: int, level: Callable[[int], int], asking: int) -> None:
        self.engine = Engine(named=[Overlap(0)], cost_model="recent")
        self.arbiter = Arbiter(self.engine, lambda client: None, Bounds(60 * MS))
        self.windows = Windows(DEFAULT_SPLIT_NS, DEFAULT_WINDOW_NS)
        self.engine.attach(self.windows)
        self.now_ns = 0
        self._level = level
        self.clients: list[Client] = []
        for _ in range(number):
            self.join()
        for client in self.clients[:: number // asking] if asking else ():
            self.ask(client)
        self.told()

    def join(self, level: int | None = None) -> Client:
        number = len(self.clients)
        client = Client(number, self.now_ns)
        rule = Fixed(self._level(number) if level is None else level)
        client.task, _ = self.engine.add_task(
            f"t{number}", self.now_ns, policy="overlap", priority=rule
        )
        self.engine.stand_together(client.task, (f"process {number}",), self.now_ns)
        clock = SimpleNamespace(now_ns=0, at=lambda *_: None)
        context = SimpleNamespace(open=False, set_open=lambda _: None)
        client.port = Page(cast(Any, clock), cast(Any, context), 0)
        self.clients.append(client)
        self.arbiter.add(client)
        self.windows.arrived(client)
        self.arbiter.takes_turns(client, self.now_ns)
        return client

    def told(self) -> None:
        """Windows are published to some pages in each turn of the daemon's loop."""
        while self.windows.is_stale:
            self.windows.tell()

    def leave(self, client: Client) -> None:
        self.arbiter.remove(client, self.now_ns)
        self.windows.gone(client)

    def ask(self, client: Client) -> None:
        mine = page(client)
        mine.asks += 1
        mine.busy = mine.gated = True
        mine.passed += 1
        mine.records.works(self.now_ns, mine.rest_ns, mine.passed)
        self.arbiter.asked(client, 0, 0, mine.asks, self.now_ns)

    def rest(self) -> Client:
        """Whoever has the GPU is done with a job."""
        client = next(iter(self.arbiter.online.clients))
        mine = page(client)
        mine.records.pause(self.now_ns, mine.passed)
        mine.busy = mine.gated = False
        mine.last_ns = self.now_ns
        self.arbiter.released(client, self.now_ns, rests=True)
        return client

    def cycles(self, number: int = 2 * ASKING) -> None:
        """Somebody's job is over, somebody else goes, and the first asks again."""
        for _ in range(number):
            self.now_ns += MS
            self.ask(self.rest())

    def pauses(self, number: int = 2 * ASKING) -> None:
        """In between the GPU has nothing to do."""
        for _ in range(number):
            self.now_ns += MS
            client = self.rest()
            self.now_ns += MS
            self.ask(client)

    def ticks(self, number: int = ASKING) -> None:
        for _ in range(number):
            self.now_ns += MS
            self.arbiter.tick(self.now_ns)
            self.arbiter.next_timer_ns()

    def polls(self, number: int = ASKING) -> None:
        for _ in range(number):
            self.now_ns += 1000
            self.arbiter.poll(self.now_ns)

    def visits(self, number: int = ASKING) -> None:
        """Newcomers ask, and leave again."""
        for _ in range(number):
            client = self.join(LOWEST)
            self.ask(client)
            self.leave(client)


def page(client: Client) -> Page:
    assert isinstance(client.port, Page)
    return client.port


def task_of(client: Client) -> Task:
    assert client.task is not None
    return client.task


def equal(number: int) -> int:
    return 0


def few(number: int) -> int:
    return number % 8


def own(number: int) -> int:
    return number


def crowd(number: int, level: Callable[[int], int], *, asking: int = ASKING) -> Crowd:
    made = Crowd(number, level, asking)
    made.cycles(10 * asking)  # so they are regular
    return made


def compare(beside_few: Crowd, beside_many: Crowd, work: Callable[[Crowd], None]) -> None:
    some = steps(lambda: work(beside_few))
    more = steps(lambda: work(beside_many))
    assert some > 1000, "there is work"
    assert more <= AS_MUCH * some, f"{more} bytecodes beside {MANY}, {some} beside {FEW}"


@pytest.mark.parametrize("level", [equal, few, own])
def test_turns_cost_the_same_beside_thousands(level: Callable[[int], int]) -> None:
    both = crowd(FEW, level), crowd(MANY, level)
    for work in (Crowd.cycles, Crowd.ticks, Crowd.visits):
        compare(*both, work)
    for one in both:
        one.arbiter.set_polling(True, one.now_ns)
    for work in (Crowd.polls, Crowd.cycles, Crowd.visits):
        compare(*both, work)
    compare(*both, lambda one: one.arbiter.set_polling(False, one.now_ns))


def test_a_gpu_that_falls_idle_is_no_news_for_thousands() -> None:
    compare(crowd(FEW, equal, asking=1), crowd(MANY, equal, asking=1), Crowd.pauses)


def going(crowd: Crowd) -> list[int]:
    """Who may begin with the asking, by number."""
    return [number for number, client in enumerate(crowd.clients) if page(client).at_once]


def test_the_most_important_and_of_equals_the_last_to_ask_may_begin_with_the_asking() -> None:
    crowd = Crowd(20, lambda number: 5 if number in (0, 1) else 0, 0)
    assert going(crowd) == [0, 1, *range(14, 20)]
    first = crowd.clients[2]
    crowd.ask(first)
    assert going(crowd) == [0, 1], "beside who is on the GPU only more important ones"
    crowd.leave(first)
    assert going(crowd) == [0, 1, *range(15, 20)]


def test_who_has_another_policy_by_now_asks_first() -> None:
    crowd = Crowd(1, equal, 0)
    assert going(crowd) == [0]
    crowd.engine.set_policy(task_of(crowd.clients[0]), "prt", 0)
    crowd.arbiter.decide(0)
    assert going(crowd) == []


# -- who is looked at ------------------------------------------------------------


def looked_at(crowd: Crowd) -> list[int]:
    return [number for number, client in enumerate(crowd.clients) if page(client).polled]


def see_all(crowd: Crowd) -> None:
    for _ in range(crowd.arbiter.rounds):
        crowd.arbiter.poll(crowd.now_ns)


def test_programs_that_are_silent_for_long_are_looked_at_again_when_they_say_something() -> None:
    crowd = Crowd(20, equal, 0)
    crowd.arbiter.set_polling(True, 0)
    assert looked_at(crowd) == [*range(20)]
    crowd.now_ns = AWAKE_NS
    crowd.ask(crowd.clients[3])
    crowd.now_ns += 1
    for _ in range(20):
        crowd.arbiter.poll(crowd.now_ns)
    assert looked_at(crowd) == [3]
    crowd.ask(crowd.clients[4])
    assert looked_at(crowd) == [3, 4]
    crowd.arbiter.set_polling(False, crowd.now_ns)
    assert looked_at(crowd) == []


def test_who_waits_or_works_for_long_is_not_silent() -> None:
    crowd = Crowd(2, equal, 2)
    crowd.arbiter.set_polling(True, 0)
    for _ in range(8):
        crowd.now_ns += AWAKE_NS
        crowd.arbiter.poll(crowd.now_ns)
    assert looked_at(crowd) == [0, 1]


def test_what_is_said_as_the_looking_ends_is_seen() -> None:
    """A program that was told too late says nothing in a message."""
    crowd = Crowd(1, equal, 0)
    crowd.arbiter.set_polling(True, 0)
    (client,) = crowd.clients
    set_polled = page(client).set_polled

    def asks_before_it_is_told(on: bool) -> None:
        page(client).asks, page(client).busy = 1, True
        set_polled(on)

    page(client).set_polled = asks_before_it_is_told  # type: ignore[method-assign]
    crowd.now_ns = AWAKE_NS + 1
    crowd.arbiter.poll(crowd.now_ns)
    assert client in crowd.arbiter.online.clients


@pytest.mark.parametrize("number", [1, 15, 16, 17, 100])
def test_everybody_who_is_looked_at_is_seen_in_turn(number: int) -> None:
    crowd = Crowd(number, equal, 0)
    crowd.arbiter.set_polling(True, 0)
    asked = crowd.clients[-64:]
    for client in asked:
        page(client).asks, page(client).busy = 1, True
    see_all(crowd)
    assert [client.request.asks for client in asked] == [1] * len(asked)
