"""PIX and RIX: what a server inherits from the clients it works for, and what it gives back.

Numbers are plain units. In the worked cases the server's own capacity is 2 and e means budget;
equation (1) is C'_i = max(min(C_sum, C_x), 0) * C_i / C_sum.
"""

from collections.abc import Iterable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import Observer
from headway.engine.inheritance import Request, returned_ns
from headway.engine.model import Group, Task
from headway.engine.priorities import Fixed
from headway.engine.reserves import Reserve, ReserveSpec

NEVER = 1_000_000
"""A period that does not end within a test."""


def submit(engine: Engine, who: Task, cost: int, now: int) -> Group:
    group = Group(who, 0, cost)
    engine.submit(group, now)
    return group


def execute(engine: Engine, who: Task, cost: int, now: int) -> None:
    group = submit(engine, who, cost, now)
    assert engine.dispatch(now) is group
    engine.complete(group, now, now + cost)


def add(
    engine: Engine,
    name: str,
    level: int = 0,
    reserve: tuple[int, int] | None = None,
    *,
    pix: bool = False,
    rix: bool = False,
    kind: str = "pe",
) -> Task:
    spec = None if reserve is None else ReserveSpec(kind, *reserve)
    return engine.add_task(name, 0, priority=Fixed(level), reserve=spec, pix=pix, rix=rix)[0]


def reserve_of(who: Task) -> Reserve:
    assert who.reserve is not None
    return who.reserve


def budgets(*tasks: Task) -> tuple[int, ...]:
    return tuple(reserve_of(who).budget_ns for who in tasks)


def levels(tasks: Iterable[Task]) -> list[int]:
    return [who.priority for who in tasks]


# -- PIX -------------------------------------------------------------------------------------


def test_pix_rule_1_a_request_raises_the_server() -> None:
    engine = Engine()
    server, client = add(engine, "server", 1, pix=True), add(engine, "client", 5)
    engine.enter(client, server, 0)
    assert server.priority == 5
    assert server.rank == client.rank


def test_pix_rule_1_a_request_never_lowers_the_server() -> None:
    engine = Engine()
    server, client = add(engine, "server", 7, pix=True), add(engine, "client", 5)
    engine.enter(client, server, 0)
    assert server.priority == 7


@pytest.mark.parametrize("asked", [*permutations((2, 4, 6))])
@pytest.mark.parametrize("answered", [*permutations((2, 4, 6))])
def test_pix_rule_2_an_answer_leaves_the_highest_of_the_pending_requests(
    asked: tuple[int, ...], answered: tuple[int, ...]
) -> None:
    engine = Engine()
    server = add(engine, "server", 1, pix=True)
    requests = {}
    for now, level in enumerate(asked):
        requests[level] = engine.enter(add(engine, f"client{level}", level), server, now)
        assert server.priority == max(requests)
    for now, level in enumerate(answered, start=3):
        engine.leave(requests.pop(level), now)
        assert server.priority == max([1, *requests])


def test_every_pending_request_counts_also_two_of_one_client() -> None:
    engine = Engine()
    server, client = add(engine, "server", 1, pix=True), add(engine, "client", 5)
    first, second = (engine.enter(client, server, now) for now in (0, 1))
    engine.leave(first, 2)
    assert server.priority == 5
    engine.leave(second, 3)
    assert server.priority == 1


def test_the_rank_is_restored_exactly_when_the_last_request_leaves() -> None:
    engine = Engine()
    server, client = add(engine, "server", 1, pix=True), add(engine, "client", 5)
    rank = server.rank
    engine.leave(engine.enter(client, server, 0), 1)
    assert server.rank == rank == server.base_rank


def inversion(*, pix: bool) -> list[str]:
    """Figures 7 and 8: the server works for `high` while `mid` wants the GPU too."""
    engine = Engine()
    server = add(engine, "server", 0, pix=pix)
    high, mid = add(engine, "high", 3), add(engine, "mid", 2)
    execute(engine, high, 2, 0)
    submit(engine, mid, 5, 2)
    submit(engine, server, 1, 2)
    engine.enter(high, server, 2)
    order = []
    for now in (3, 9):
        group = engine.dispatch(now)
        assert group is not None
        engine.complete(group, now, now + 1)
        order.append(group.task.name)
    return order


def test_a_server_that_waits_already_moves_ahead_with_its_client() -> None:
    assert inversion(pix=True) == ["server", "mid"]


def test_without_pix_a_medium_task_comes_between() -> None:
    assert inversion(pix=False) == ["mid", "server"]


def test_a_clients_new_priority_reaches_its_server() -> None:
    engine = Engine()
    server, client = add(engine, "server", 1, pix=True), add(engine, "client", 5)
    engine.enter(client, server, 0)
    engine.set_priority(client, Fixed(9), 1)
    assert server.priority == 9
    engine.set_priority(client, Fixed(-3), 2)
    assert server.priority == 1


def test_a_servers_own_new_priority_shows_when_it_is_higher_or_left_alone() -> None:
    engine = Engine()
    server, client = add(engine, "server", 1, pix=True), add(engine, "client", 5)
    request = engine.enter(client, server, 0)
    engine.set_priority(server, Fixed(3), 1)
    assert server.priority == 5
    engine.leave(request, 2)
    assert server.priority == 3


def test_rank_goes_on_through_a_server_that_is_itself_a_client() -> None:
    engine = Engine()
    client = add(engine, "client", 5)
    chain = [add(engine, f"server{i}", 1, pix=True) for i in range(3)]
    inner = [engine.enter(chain[0], chain[1], 0), engine.enter(chain[1], chain[2], 1)]
    assert levels(chain) == [1, 1, 1]
    request = engine.enter(client, chain[0], 2)
    assert levels(chain) == [5, 5, 5]
    engine.leave(inner[1], 3)
    assert levels(chain) == [5, 5, 1]
    engine.leave(request, 4)
    assert levels(chain) == [1, 1, 1]


def test_servers_that_would_wait_for_each_other_are_refused_and_nothing_changes() -> None:
    engine = Engine()
    a, b, c = (add(engine, name, i, (5, 10), pix=True, rix=True) for i, name in enumerate("abc"))
    engine.enter(a, b, 0)
    engine.enter(b, c, 0)
    before = ([t.rank for t in (a, b, c)], budgets(a, b, c))
    for client, server in ((c, a), (b, a), (c, b), (a, a)):
        with pytest.raises(ValueError, match="wait for itself"):
            engine.enter(client, server, 1)
    assert ([t.rank for t in (a, b, c)], budgets(a, b, c)) == before


@settings(database=None, deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=5, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(("in", "in", "out", "set")), st.integers(0, 99)), max_size=30
    ),
)
def test_a_rank_is_the_best_of_its_own_and_of_all_who_wait_directly_or_not(
    made: list[tuple[int, bool]], steps: list[tuple[str, int]]
) -> None:
    engine = Engine()
    tasks = [add(engine, f"t{i}", level, pix=pix) for i, (level, pix) in enumerate(made)]
    own = [level for level, _ in made]
    pending: list[tuple[int, int, Request]] = []

    def expected(place: int) -> int:
        clients = [c for c, s, _ in pending if s == place]
        return max([own[place], *(expected(c) for c in clients if made[place][1])])

    for now, (what, number) in enumerate(steps):
        client, server = sorted((number % 5, number // 5 % 5))  # so no cycle is possible
        if what == "in" and client != server:
            request = engine.enter(tasks[client], tasks[server], now)
            pending.append((client, server, request))
        elif what == "out" and pending:
            engine.leave(pending.pop(number % len(pending))[2], now)
        elif what == "set":
            own[client] = number // 5 % 7 - 3
            engine.set_priority(tasks[client], Fixed(own[client]), now)
        assert levels(tasks) == [expected(place) for place in range(5)]


# -- RIX: equation (1) -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lent", "total", "left", "returned"),
    [
        (4, 4, 9, 4),  # the server needed only its own
        (4, 4, 4, 4),
        (4, 4, 3, 3),
        (4, 6, 3, 2),  # two clients share what is left in proportion
        (2, 6, 3, 1),
        (4, 4, 0, 0),
        (4, 4, -5, 0),  # the overrun is the server's own
        (0, 4, 9, 0),  # who lent nothing gets nothing
        (0, 0, 9, 0),
    ],
)
def test_equation_1(lent: int, total: int, left: int, returned: int) -> None:
    assert returned_ns(lent, total, left) == returned


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), st.integers(-(10**12), 10**13))
def test_what_equation_1_returns_is_neither_more_than_was_lent_nor_than_is_left(
    lent: list[int], left: int
) -> None:
    parts = [returned_ns(amount, sum(lent), left) for amount in lent]
    assert all(0 <= part <= amount for part, amount in zip(parts, lent, strict=True))
    assert sum(parts) <= max(left, 0)
    assert left < sum(lent) or parts == lent


def pair(
    server: tuple[int, int] = (2, NEVER), client: tuple[int, int] = (4, NEVER)
) -> tuple[Engine, Task, Task]:
    engine = Engine()
    return engine, add(engine, "server", 9, server, rix=True), add(engine, "client", 1, client)


def test_rix_rule_1_the_server_gets_the_clients_budget_whatever_their_priorities() -> None:
    engine, server, client = pair()
    engine.enter(client, server, 0)
    assert budgets(server, client) == (6, 0)


@pytest.mark.parametrize(
    ("executed", "server_keeps", "client_gets"),
    [
        (0, 2, 4),  # 6 left >= 4: all of it
        (1, 1, 4),  # 5 >= 4
        (2, 0, 4),  # 4 >= 4
        (3, 0, 3),  # 3 < 4: 3 * 4/4
        (6, 0, 0),
        (9, -3, 0),  # bounded by zero; the server pays for the overrun
    ],
)
def test_rix_rule_3_with_one_client(executed: int, server_keeps: int, client_gets: int) -> None:
    engine, server, client = pair()
    request = engine.enter(client, server, 0)
    if executed:
        execute(engine, server, executed, 0)
    engine.leave(request, 10)
    assert budgets(server, client) == (server_keeps, client_gets)


@pytest.mark.parametrize(
    ("first", "after_first"),
    [
        # 2 + 4 + 2 - 5 = 3 are left and C_sum is 6. a leaves first: 3 * 4/6 = 2, then of 1: 1.
        ("a", (1, 2, 0)),
        # b leaves first: 3 * 2/6 = 1, then of 2: min(4, 2) = 2.
        ("b", (2, 0, 1)),
    ],
)
def test_rix_rule_3_with_two_clients(first: str, after_first: tuple[int, ...]) -> None:
    engine = Engine()
    server = add(engine, "server", 0, (2, NEVER), rix=True)
    a, b = add(engine, "a", 0, (4, NEVER)), add(engine, "b", 0, (2, NEVER))
    requests = {who.name: engine.enter(who, server, 0) for who in (a, b)}
    assert budgets(server, a, b) == (8, 0, 0)
    execute(engine, server, 5, 0)
    engine.leave(requests.pop(first), 6)
    assert budgets(server, a, b) == after_first
    engine.leave(requests.popitem()[1], 7)
    assert budgets(server, a, b) == (0, 2, 1)


def test_a_server_that_is_replenished_meanwhile_returns_everything() -> None:
    # Figure 10's medium task. e = 2 + 4 - 3 = 3; at 10: min(2 + 4, 3 + 2) = 5; 5 >= 4.
    engine, server, client = pair(server=(2, 10))
    request = engine.enter(client, server, 5)
    execute(engine, server, 3, 5)
    engine.advance(10)
    assert budgets(server, client) == (5, 0)
    engine.leave(request, 11)
    assert budgets(server, client) == (1, 4)


def test_a_server_is_replenished_up_to_its_capacity_and_what_it_holds() -> None:
    engine, server, client = pair(server=(2, 10))
    engine.enter(client, server, 0)
    execute(engine, server, 1, 0)
    engine.advance(10)
    assert budgets(server, client) == (6, 0)


def test_rix_rule_2_a_client_is_replenished_while_its_budget_is_lent() -> None:
    # e = 2 + 4 - 3 = 3. At 10 the client gets back 3, has min(4, 3 + 4) = 4, and lends 4 again.
    engine, server, client = pair(client=(4, 10))
    request = engine.enter(client, server, 5)
    execute(engine, server, 3, 5)
    engine.advance(10)
    assert budgets(server, client) == (4, 0)
    engine.leave(request, 11)
    assert budgets(server, client) == (0, 4)


def test_a_server_in_debt_is_helped_out_by_its_clients_replenishment() -> None:
    # e = 2 + 4 - 9 = -3. At 10 nothing comes back, the client has 4 and lends them: 1.
    engine, server, client = pair(client=(4, 10))
    request = engine.enter(client, server, 0)
    execute(engine, server, 9, 0)
    engine.advance(10)
    assert budgets(server, client) == (1, 0)
    engine.leave(request, 11)
    assert budgets(server, client) == (0, 1)


def test_a_server_without_budget_goes_when_its_client_is_replenished() -> None:
    # The client comes with e = 4 - 6 = -2, lends nothing, and the server has 0. At 10 the client
    # has 2, lends them, and the server, which has waited since 8, is let through.
    engine, server, client = pair(client=(4, 10))
    execute(engine, server, 2, 0)
    execute(engine, client, 6, 2)
    engine.enter(client, server, 8)
    blit = submit(engine, server, 1, 8)
    assert engine.dispatch(8) is None
    engine.advance(10)
    assert budgets(server, client) == (2, 0)
    assert engine.dispatch(10) is blit


def test_a_client_in_debt_lends_nothing_and_keeps_its_debt() -> None:
    engine, server, client = pair()
    execute(engine, client, 5, 0)
    request = engine.enter(client, server, 5)
    assert budgets(server, client) == (2, -1)
    engine.leave(request, 6)
    assert budgets(server, client) == (2, -1)


def test_a_server_that_waits_goes_as_soon_as_a_client_lends() -> None:
    engine, server, client = pair()
    execute(engine, server, 2, 0)
    blit = submit(engine, server, 1, 2)
    assert engine.dispatch(2) is None
    engine.enter(client, server, 3)
    assert engine.dispatch(3) is blit


def test_a_client_that_lent_everything_waits_until_it_is_answered() -> None:
    engine, server, client = pair()
    request = engine.enter(client, server, 0)
    group = submit(engine, client, 1, 0)
    assert engine.dispatch(0) is None
    engine.leave(request, 1)
    assert engine.dispatch(1) is group


def test_an_ae_server_counts_what_it_inherited() -> None:
    engine = Engine()
    server = add(engine, "server", 0, (2, NEVER), rix=True, kind="ae")
    client = add(engine, "client", 0, (4, NEVER))
    blit = submit(engine, server, 5, 0)
    assert engine.dispatch(0) is None
    engine.enter(client, server, 1)
    assert engine.dispatch(1) is blit


def test_a_client_in_the_servers_own_pool_lends_nothing() -> None:
    engine = Engine()
    pool = ReserveSpec("pe", 4, NEVER, shared="pool")
    server, _ = engine.add_task("server", 0, reserve=pool, rix=True)
    client, _ = engine.add_task("client", 0, reserve=pool)
    request = engine.enter(client, server, 0)
    assert budgets(server) == (4,)
    execute(engine, server, 1, 0)
    engine.leave(request, 1)
    assert budgets(client) == (3,)


def pooled(
    count: int, capacity: int, period: int = NEVER, *, kind: str = "pe"
) -> tuple[Engine, Task, list[Task]]:
    """A server with C = 2 and clients that share a reserve."""
    engine = Engine()
    server = add(engine, "server", 0, (2, NEVER), rix=True)
    pool = ReserveSpec(kind, capacity, period, shared="pool")
    clients = [engine.add_task(f"c{n}", 0, reserve=pool)[0] for n in range(count)]
    return engine, server, clients


def test_a_member_of_a_pool_lends_its_part_and_the_others_go_on() -> None:
    engine, server, (asking, other, _) = pooled(3, 9)
    request = engine.enter(asking, server, 0)
    assert budgets(server, other) == (2 + 3, 6)
    group = submit(engine, other, 1, 1)
    assert engine.dispatch(1) is group
    engine.complete(group, 1, 2)
    engine.leave(request, 3)
    assert budgets(server, other) == (2, 8)


def test_every_member_of_a_pool_lends_as_much() -> None:
    # 10 = 3 + 3 + 4; a second request of one who has lent lends nothing more.
    engine, server, clients = pooled(3, 10)
    given = [0]
    for client in (*clients, clients[0]):
        engine.enter(client, server, 0)
        given.append(reserve_of(server).budget_ns - 2)
    assert given == [0, 3, 6, 10, 10]


def test_what_an_ae_member_waits_with_is_not_lent() -> None:
    # 10 are replenished at 20; 8 wait. Without anybody who waits it would be 5.
    engine, server, (asking, other) = pooled(2, 10, 20, kind="ae")
    engine.enter(asking, server, 0)
    assert budgets(server, other) == (7, 5)
    group = submit(engine, other, 8, 1)
    assert engine.dispatch(1) is None
    engine.advance(20)
    assert budgets(server, other) == (4, 8)
    assert engine.dispatch(20) is group


def test_who_died_or_left_has_no_part_of_a_pool() -> None:
    engine, server, (asking, dead, left) = pooled(3, 9)
    engine.remove_task(dead, 0)
    engine.set_reserve(left, None, 0)
    engine.enter(asking, server, 0)
    assert budgets(server, asking) == (2 + 9, 0)


def test_a_client_without_a_reserve_lends_nothing() -> None:
    engine = Engine()
    server, client = add(engine, "server", 0, (2, NEVER), rix=True), add(engine, "client")
    request = engine.enter(client, server, 0)
    assert budgets(server) == (2,)
    engine.leave(request, 1)
    assert budgets(server) == (2,)


def test_a_late_replenishment_of_a_lent_reserve_equals_the_ones_that_were_missed() -> None:
    # Server C = 2, client C = 2, both every 10. e = 2 + 2 - 9 = -5 when the first is due, and each
    # of the three replenishments of each brings 2: -5 + 6 + 6 = 7, but for the caps: at 10
    # (client first) -3, then -1; at 20 1, then 3; at 30 the client gets 2 back, has 2, lends them:
    # 3, then min(2 + 2, 5) = 4.
    results = []
    for instants in ((10, 20, 30), (30,)):
        engine = Engine()
        client = add(engine, "client", 0, (2, 10))
        server = add(engine, "server", 0, (2, 10), rix=True)
        engine.enter(client, server, 0)
        execute(engine, server, 9, 0)
        for now in instants:
            engine.advance(now)
        results.append(budgets(server, client))
    assert results[0] == (4, 0)
    assert results[1] == results[0]


# -- deaths ----------------------------------------------------------------------------------


def full_pair() -> tuple[Engine, Task, Task]:
    engine = Engine()
    server = add(engine, "server", 1, (2, NEVER), pix=True, rix=True)
    return engine, server, add(engine, "client", 5, (4, NEVER))


def test_a_client_that_dies_takes_its_rank_and_what_is_left_of_its_budget_along() -> None:
    engine, server, client = full_pair()
    engine.enter(client, server, 0)
    engine.enter(client, server, 1)
    execute(engine, server, 1, 1)
    engine.remove_task(client, 3)
    assert server.priority == 1
    assert budgets(server) == (1,)
    assert not reserve_of(server).inherited


def test_a_server_that_dies_returns_what_it_holds() -> None:
    engine, server, client = full_pair()
    request = engine.enter(client, server, 0)
    execute(engine, server, 3, 0)
    engine.remove_task(server, 4)
    assert budgets(client) == (3,)
    engine.leave(request, 5)  # nobody is there to answer, and nothing happens
    assert budgets(client) == (3,)
    assert not reserve_of(client).lent


def test_an_answer_that_comes_twice_counts_once() -> None:
    engine, server, client = full_pair()
    request = engine.enter(client, server, 0)
    execute(engine, server, 3, 0)
    engine.leave(request, 4)
    engine.leave(request, 5)
    assert budgets(server, client) == (0, 3)


def test_the_middle_of_a_chain_dies() -> None:
    engine = Engine()
    client = add(engine, "client", 5)
    middle, last = (add(engine, name, 1, pix=True) for name in ("middle", "last"))
    engine.enter(client, middle, 0)
    engine.enter(middle, last, 0)
    engine.remove_task(middle, 1)
    assert last.priority == 1
    execute(engine, last, 1, 1)


def test_with_the_protocols_off_a_request_changes_nothing() -> None:
    engine = Engine()
    server, client = add(engine, "server", 1, (2, NEVER)), add(engine, "client", 5, (4, NEVER))
    request = engine.enter(client, server, 0)
    assert (server.priority, budgets(server, client)) == (1, (2, 4))
    engine.leave(request, 1)
    assert (server.priority, budgets(server, client)) == (1, (2, 4))


@pytest.mark.parametrize(("pix", "rix"), [(True, False), (False, True)])
def test_each_protocol_works_alone(pix: bool, rix: bool) -> None:
    engine = Engine()
    server = add(engine, "server", 1, (2, NEVER), pix=pix, rix=rix)
    client = add(engine, "client", 5, (4, NEVER))
    engine.enter(client, server, 0)
    assert server.priority == (5 if pix else 1)
    assert budgets(server, client) == ((6, 0) if rix else (2, 4))


def test_a_client_that_changes_its_reserve_while_it_is_lent_gains_nothing() -> None:
    # 4 lent; a pool of 3 is joined: the private 4 come back and stay behind, 3 are lent.
    engine, server, client = pair()
    request = engine.enter(client, server, 0)
    engine.set_reserve(client, ReserveSpec("pe", 3, NEVER, shared="pool"), 1)
    assert budgets(server, client) == (5, 0)
    engine.leave(request, 2)
    assert budgets(server, client) == (2, 3)


# -- conservation ----------------------------------------------------------------------------


class Replenishments(Observer):
    def __init__(self) -> None:
        self.capacity_ns = 0

    def replenished(self, reserve: Reserve, now_ns: int) -> None:
        self.capacity_ns += reserve.capacity_ns


NUMBERS = st.tuples(st.integers(1, 9), st.integers(3, 20))


@settings(database=None, deadline=None, max_examples=250)
@given(
    st.lists(st.tuples(NUMBERS, st.booleans()), min_size=5, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(("in", "in", "out", "run", "wait", "die")), st.integers(0, 99)),
        max_size=40,
    ),
)
def test_budget_moves_but_is_never_made(
    made: list[tuple[tuple[int, int], bool]], steps: list[tuple[str, int]]
) -> None:
    """The sum over all reserves changes only by execution and by replenishment."""
    replenished = Replenishments()
    engine = Engine(observers=[replenished])
    tasks = [add(engine, f"t{i}", 0, spec, rix=rix) for i, (spec, rix) in enumerate(made)]
    reserves = [reserve_of(who) for who in tasks]
    pending: list[Request] = []

    def total() -> int:
        return sum(reserve.budget_ns for reserve in reserves)

    now = 0
    for what, number in steps:
        before = total()
        client, server = sorted((number % 5, number // 5 % 5))
        alive = tasks[client].alive and tasks[server].alive
        if what == "in" and client != server and alive:
            pending.append(engine.enter(tasks[client], tasks[server], now))
        elif what == "out" and pending:
            engine.leave(pending.pop(number % len(pending)), now)
        elif what == "die" and number < 5 and tasks[number].alive:
            engine.remove_task(tasks[number], now)
        elif what == "run" and tasks[client].alive:
            cost = number // 5 + 1
            group = submit(engine, tasks[client], cost, now)
            if engine.dispatch(now) is None:
                engine.withdraw(tasks[client], now)
                continue
            while engine.next_timer_ns() is not None and now < group.submitted_ns + cost - 1:
                now += 1
                grown = replenished.capacity_ns
                engine.advance(now)
                assert total() <= before + replenished.capacity_ns - grown
                before = total()
            now = group.submitted_ns + cost
            engine.complete(group, now - cost, now)
            before -= cost
        assert total() == before
        if what == "wait":
            for _ in range(number // 5):
                now += 1
                before, grown = total(), replenished.capacity_ns
                engine.advance(now)
                assert total() <= before + replenished.capacity_ns - grown
    for request in pending:
        engine.leave(request, now)
    assert not any(reserve.inherited or reserve.lent for reserve in reserves)
    engine.advance(now + 20)
    for reserve, ((capacity, _), _) in zip(reserves, made, strict=True):
        assert reserve.budget_ns <= capacity or not reserve.members
