"""Reserves: what a budget lets through, what debt costs, and what changes may not gain.

`e` is a budget, C the capacity, T the period and x a predicted cost. Timelines are in milliseconds;
the tests that drive the engine directly count in plain units.
"""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.admission import admit
from headway.engine.core import Engine
from headway.engine.events import Observer
from headway.engine.model import Group, Task
from headway.engine.priorities import Fixed
from headway.engine.reserves import DEFAULT_BACKGROUND, Reserve, ReserveSpec
from headway.engine.spec import Spec
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import read_scenario

MS = 1_000_000


class Started(Observer):
    """(task, started) of every group, in milliseconds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float]] = []

    def completed(self, group: Group, now_ns: int) -> None:
        self.rows.append((group.task.name, group.started_ns / MS))


def run(*tasks: dict[str, Any], spec: Spec | None = None, **top: Any) -> tuple[Started, Outcome]:
    seen = Started()
    scenario = read_scenario({"task": list(tasks), **top}, "scenario")
    return seen, simulate(scenario, observers=[seen], spec=spec)


def starts(*tasks: dict[str, Any], **top: Any) -> list[tuple[str, float]]:
    return sorted(run(*tasks, **top)[0].rows, key=lambda row: row[1])


def task(
    name: str, groups: list[tuple[float, float]], reserve: Any = None, **more: Any
) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name, **more}
    entry["groups"] = [{"at": f"{at}ms", "cost": f"{cost}ms"} for at, cost in groups]
    if reserve is not None:
        entry["reserve"] = reserve
    return entry


def pe(capacity: float, period: float, shared: str | None = None) -> dict[str, str]:
    numbers = {"policy": "pe", "capacity": f"{capacity}ms", "period": f"{period}ms"}
    return numbers if shared is None else {**numbers, "shared": shared}


def ae(capacity: float, period: float, shared: str | None = None) -> dict[str, str]:
    return {**pe(capacity, period, shared), "policy": "ae", "predict": "exact"}


# -- drive the engine by hand ----------------------------------------------------------------


def submit(engine: Engine, who: Task, cost: int, now: int) -> Group:
    group = Group(who, 0, cost)
    engine.submit(group, now)
    return group


def execute(engine: Engine, who: Task, cost: int, now: int) -> None:
    """The task's group goes at once and takes `cost`."""
    group = submit(engine, who, cost, now)
    assert engine.dispatch(now) is group
    engine.complete(group, now, now + cost)


def reserve_of(who: Task) -> Reserve:
    assert who.reserve is not None
    return who.reserve


def budget(who: Task) -> int:
    return reserve_of(who).budget_ns


# -- enforcement -----------------------------------------------------------------------------


def test_pe_pays_an_overrun_over_as_many_periods_as_it_takes() -> None:
    # At 7: e = 2 - 7 = -5. At 10: -3. At 20: -1. At 30: 1 > 0, let through.
    assert starts(task("a", [(0, 7), (0, 1)], pe(2, 10))) == [("a", 0), ("a", 30)]


def test_ae_saves_over_several_periods_for_a_group_above_its_capacity() -> None:
    # x = 7. At 0: 2. At 10: min(7, 4) = 4. At 20: 6. At 30: min(7, 8) = 7 >= 7.
    # At 37: 0. The next (x = 1): at 40 e = min(max(2, 1), 0 + 2) = 2.
    assert starts(task("a", [(0, 7), (0, 1)], ae(2, 10))) == [("a", 30), ("a", 40)]


def test_ae_never_lets_a_group_overrun() -> None:
    # x = 3 > 2 at 0. At 10: min(3, 4) = 3, exactly enough.
    assert starts(task("a", [(0, 3)], ae(2, 10))) == [("a", 10)]


def test_what_ae_saved_is_lost_when_the_group_is_gone() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("ae", 2, 10))
    submit(engine, a, 7, 0)
    engine.advance(10)
    engine.advance(20)
    assert budget(a) == 6
    engine.withdraw(a, 21)
    engine.advance(30)
    assert budget(a) == 2


def test_a_shared_reserve_caps_its_members_together() -> None:
    # e: 2, a runs 0-2 and leaves 0, so both wait. At 10: 2, which a's second takes. At 20: b.
    pool = pe(2, 10, "pool")
    assert starts(task("a", [(0, 2), (0, 2)], pool, priority=2), task("b", [(0, 2)], pool)) == [
        ("a", 0),
        ("a", 10),
        ("b", 20),
    ]


def test_a_member_of_a_shared_reserve_may_spend_what_the_others_leave() -> None:
    # Two members alone would have 2 of 10 each; one that is alone gets 4 of 10.
    pool = pe(4, 10, "pool")
    assert starts(task("a", [(0, 2)] * 4, pool), task("idle", [], pool)) == [
        ("a", 0),
        ("a", 2),
        ("a", 10),
        ("a", 12),
    ]


def test_background_is_a_shared_posterior_reserve_at_the_lowest_priority() -> None:
    engine = Engine()
    b = engine.add_background_task("b", 0)
    c = engine.add_background_task("c", 0)
    lowest, _ = engine.add_task("lowest", 0, priority=Fixed(-1_000_000))
    assert reserve_of(b) is reserve_of(c)
    assert reserve_of(b).spec == DEFAULT_BACKGROUND
    assert reserve_of(b).spec.kind == "pe"
    assert lowest.rank < b.rank == c.rank


def test_a_background_bomb_gets_its_tenth_and_no_more() -> None:
    # C = 2.5, T = 25, groups of 1: from 2.5 three run (-0.5), then from 2 two (0), in turn. In the
    # ten periods of 250 ms: 25 groups.
    bomb = {"name": "bomb", "reserve": "background", "bomb": {"cost": "1ms"}}
    seen, _ = run(bomb, run={"duration": "249ms"})
    assert len(seen.rows) == 25
    assert [at for _, at in seen.rows[:7]] == [0, 1, 2, 25, 26, 50, 51]


def test_a_task_that_the_spec_does_not_name_is_background() -> None:
    # What the file says of a does not count: both share 2.5 of 25. After 3: e = -0.5; at 25: 2,
    # a's second (since 0 like b's, and first in the file), -1; at 50: 1.5, b's.
    a = task("a", [(0, 3), (0, 3)], pe(20, 20), priority=1)
    b = task("b", [(0, 1)], priority=9)
    assert starts(a, b, spec=Spec()) == [("a", 0), ("a", 25), ("b", 50)]


def test_the_background_reserve_can_be_given_other_numbers() -> None:
    a = task("a", [(0, 4), (0, 4)], "background")
    assert starts(a, background={"capacity": "4ms", "period": "20ms"}) == [("a", 0), ("a", 20)]


# -- changing a reserve that is in use -------------------------------------------------------


def test_a_change_keeps_debt() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    execute(engine, a, 7, 0)
    engine.set_reserve(a, ReserveSpec("pe", 5, 10), 8)
    assert budget(a) == -5
    engine.advance(10)
    assert budget(a) == 0


def test_a_change_gains_nothing_before_a_replenishment() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    execute(engine, a, 1, 0)
    engine.set_reserve(a, ReserveSpec("pe", 8, 10), 2)
    assert budget(a) == 1
    engine.advance(10)
    assert budget(a) == 8


def test_a_smaller_capacity_counts_at_once() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 8, 10))
    engine.set_reserve(a, ReserveSpec("pe", 3, 10), 1)
    assert budget(a) == 3
    engine.set_reserve(a, ReserveSpec("pe", 8, 10), 2)
    assert budget(a) == 3


def test_a_new_period_begins_when_it_is_set() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    execute(engine, a, 2, 0)
    engine.set_reserve(a, ReserveSpec("pe", 2, 15), 9)
    engine.advance(10)
    assert budget(a) == 0
    engine.advance(24)
    assert budget(a) == 2


def test_a_group_that_waits_goes_by_the_changed_reserve() -> None:
    # e = 2 - 2 = 0 at 2: under PE the second waits until 10. Raised to 6 of 10 at 4, it still does:
    # a change gains nothing; at 10 e = 6.
    changed = {"at": "4ms", "task": "a", "reserve": pe(6, 10)}
    assert starts(task("a", [(0, 2), (0, 5), (0, 5)], pe(2, 10)), event=[changed]) == [
        ("a", 0),
        ("a", 10),
        ("a", 15),
    ]


def test_a_change_to_ae_asks_for_the_cost_of_the_group_that_waits_already() -> None:
    # At 2: e = 0, and the second group, which was submitted under PE, has x = 5 under AE.
    # At 10: min(5, 2) = 2. At 20: 4. At 30: 5, let through.
    changed = {"at": "1ms", "task": "a", "reserve": ae(2, 10)}
    assert starts(task("a", [(0, 2), (0, 5)], pe(2, 10)), event=[changed]) == [("a", 0), ("a", 30)]


def test_an_event_can_take_the_reserve_away() -> None:
    # At 5: e = 2 - 5 = -3, but from 1 on nothing holds a back.
    freed = {"at": "1ms", "task": "a", "reserve": "none"}
    assert starts(task("a", [(0, 5), (0, 5)], pe(2, 10)), event=[freed]) == [("a", 0), ("a", 5)]


SHARED_SPECS = st.builds(
    lambda kind, capacity, factor, rest: ReserveSpec(kind, capacity, 2 * capacity * factor + rest),
    st.sampled_from(("pe", "ae")),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 3),
)
"""Reserves of at most half the GPU."""


@settings(database=None, deadline=None, max_examples=200)
@given(
    SHARED_SPECS,
    st.dictionaries(st.integers(0, 60), SHARED_SPECS, max_size=20),
    st.lists(st.integers(1, 5), min_size=1, max_size=10),
)
def test_no_sequence_of_changes_yields_more_than_the_share(
    first: ReserveSpec, changes: dict[int, ReserveSpec], costs: list[int]
) -> None:
    # Every replenishment adds at most C <= T/2 and comes T after the one before or after the
    # change. So whenever a group is let through, what ran before is at most C0 + now/2.
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=first)
    executed = 0
    running: Group | None = None
    count = 0
    for now in range(80):
        if running is not None and running.finished_ns == now:
            engine.complete(running, running.started_ns, now)
            executed += now - running.started_ns
            running = None
        engine.advance(now)
        if now in changes:
            engine.set_reserve(a, changes[now], now)
        if a.waiting is None:
            submit(engine, a, costs[count % len(costs)], now)
            count += 1
        if running is None:
            running = engine.dispatch(now)
            if running is not None:
                running.started_ns, running.finished_ns = now, now + running.exact_ns
                assert 2 * executed <= 2 * first.capacity_ns + now


# -- pools -----------------------------------------------------------------------------------

POOL = ReserveSpec("pe", 4, 10, shared="pool")


def test_private_debt_goes_into_the_pool() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    b, _ = engine.add_task("b", 0, reserve=POOL)
    execute(engine, a, 5, 0)
    engine.set_reserve(a, POOL, 6)
    assert reserve_of(a) is reserve_of(b)
    assert budget(b) == 4 - 3


def test_private_debt_goes_into_background_too() -> None:
    engine = Engine(background=ReserveSpec("pe", 4, 10, shared="background"))
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    execute(engine, a, 5, 0)
    engine.make_background(a, 6)
    assert budget(a) == 1
    engine.advance(6)
    assert budget(a) == 1, "the first replenishment comes a period later"
    engine.advance(16)
    assert budget(a) == 4


def test_observers_hear_of_a_change_at_its_own_time() -> None:
    class Heard(Observer):
        def joined(self, task: Task, now_ns: int) -> None:
            times.append(now_ns)

        def reserve_set(self, reserve: Reserve, now_ns: int) -> None:
            times.append(now_ns)

    times: list[int] = []
    engine = Engine()
    a, _ = engine.add_task("a", 0)
    engine.attach(Heard())
    engine.make_background(a, 6)
    engine.set_reserve(a, ReserveSpec("pe", 2, 10), 8)
    engine.set_reserve(a, ReserveSpec("pe", 3, 10), 9)
    assert sorted(set(times)) == [6, 8, 9]


def test_private_debt_outlasts_a_time_without_a_reserve() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    execute(engine, a, 7, 0)
    engine.set_reserve(a, None, 8)
    engine.set_reserve(a, ReserveSpec("pe", 2, 10), 8)
    assert budget(a) <= 2 - 5


def test_unused_private_budget_stays_behind() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 2, 10))
    b, _ = engine.add_task("b", 0, reserve=POOL)
    engine.set_reserve(a, POOL, 6)
    assert budget(b) == 4


def test_debt_that_joins_a_pool_holds_back_who_waits_on_it() -> None:
    engine = Engine()
    busy, _ = engine.add_task("busy", 0)
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 1, 10))
    b, _ = engine.add_task("b", 0, reserve=POOL)
    execute(engine, a, 6, 0)
    running = submit(engine, busy, 2, 6)
    assert engine.dispatch(6) is running
    held_back = submit(engine, b, 1, 6)
    engine.set_reserve(a, POOL, 7)  # 4 - 5 = -1
    engine.complete(running, 6, 8)
    assert engine.dispatch(8) is None
    engine.advance(10)
    assert budget(b) == 3
    assert engine.dispatch(10) is held_back


def test_the_group_of_a_member_that_died_is_charged_to_the_pool() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=POOL)
    b, _ = engine.add_task("b", 0, reserve=POOL)
    group = submit(engine, a, 6, 0)
    assert engine.dispatch(0) is group
    engine.remove_task(a, 1)
    engine.complete(group, 0, 6)
    assert budget(b) == 4 - 6


def test_a_pool_without_members_pays_its_debt_all_the_same() -> None:
    # -6 at 10; a hundred periods later it has long been paid.
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=POOL)
    execute(engine, a, 10, 0)
    engine.remove_task(a, 10)
    engine.advance(1000)
    b, _ = engine.add_task("b", 1000, reserve=POOL)
    assert budget(b) == 4


def test_leaving_a_pool_in_debt_and_coming_back_at_once_gains_nothing() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=POOL)
    execute(engine, a, 9, 0)
    engine.remove_task(a, 9)
    b, _ = engine.add_task("b", 9, reserve=POOL)
    assert budget(b) == -5


def test_an_event_that_joins_a_pool_with_other_numbers_is_an_error_of_the_file() -> None:
    changed = {"at": "1ms", "task": "b", "reserve": pe(3, 10, "pool")}
    with pytest.raises(ValueError, match="pool"):
        read_scenario(
            {
                "task": [task("a", [(0, 1)], pe(2, 10, "pool")), task("b", [(0, 1)])],
                "event": [changed],
            },
            "scenario",
        )


def test_changing_a_pool_keeps_its_debt_for_everyone() -> None:
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=POOL)
    b, _ = engine.add_task("b", 0, reserve=POOL)
    execute(engine, a, 7, 0)
    assert engine.change_pool("pool", ReserveSpec("pe", 6, 10, shared="pool"), 8).accepted
    assert budget(b) == -3
    engine.advance(10)
    assert budget(a) == budget(b) == 3


# -- replenishment in time, late, and not at all ---------------------------------------------


@settings(database=None, deadline=None, max_examples=200)
@given(
    st.sampled_from(("pe", "ae")),
    st.integers(1, 5),
    st.integers(5, 12),
    st.integers(1, 30),
    st.none() | st.integers(1, 20),
    st.integers(31, 200),
)
def test_a_late_replenishment_equals_the_ones_that_were_missed(
    kind: str, capacity: int, period: int, executed: int, waits: int | None, late: int
) -> None:
    found = []
    for instants in ([late], [*range(executed, late + 1)]):
        engine = Engine()
        a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", capacity, period))
        execute(engine, a, executed, 0)
        engine.set_reserve(a, ReserveSpec(kind, capacity, period), executed)
        if waits is not None:
            submit(engine, a, waits, executed)
        for now in instants:
            engine.advance(now)
        states = [(budget(a), a.in_ready_queue)]
        for now in range(late + 1, late + 3 * period):
            engine.advance(now)
            states.append((budget(a), a.in_ready_queue))
        found.append(states)
    assert found[0] == found[1]


class Model:
    """A reserve that is replenished at every boundary, whether it matters or not."""

    def __init__(self, spec: ReserveSpec) -> None:
        self.spec = spec
        self.e = spec.capacity_ns
        self.x = 0

    def tick(self, now: int) -> None:
        if now and now % self.spec.period_ns == 0:
            x = self.x if self.spec.kind == "ae" else 0
            self.e = min(max(self.spec.capacity_ns, x), self.e + self.spec.capacity_ns)

    def lets_through(self) -> bool:
        return self.e > 0 if self.spec.kind == "pe" else self.e >= self.x


@settings(database=None, deadline=None, max_examples=200)
@given(
    st.builds(ReserveSpec, st.sampled_from(("pe", "ae")), st.integers(1, 6), st.integers(2, 9)),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=8),
)
def test_a_replenishment_that_is_skipped_would_have_changed_nothing(
    spec: ReserveSpec, work: list[tuple[int, int]]
) -> None:
    """Budgets are those of a model that replenishes always, through idle times of any length."""
    engine = Engine()
    a, _ = engine.add_task("a", 0, reserve=spec)
    model = Model(spec)
    running: Group | None = None
    due = 0
    todo = list(work)
    if todo:
        due = todo[0][0]
    for now in range(400):
        if running is not None and running.finished_ns == now:
            engine.complete(running, running.started_ns, now)
            model.e -= now - running.started_ns
            running = None
        timer = engine.next_timer_ns()
        if timer is not None and timer <= now:
            engine.advance(now)
        model.tick(now)
        assert budget(a) == model.e
        if todo and a.waiting is None and running is None and due <= now:
            _, cost = todo.pop(0)
            submit(engine, a, cost, now)
            model.x = cost
            if todo:
                due = now + todo[0][0]
        if running is None and a.waiting is not None:
            running = engine.dispatch(now)
            assert (running is not None) == model.lets_through()
            if running is not None:
                model.x = 0
                running.started_ns, running.finished_ns = now, now + running.exact_ns


@settings(database=None, deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=15),
    st.integers(1, 9),
)
def test_a_pools_budget_falls_by_exactly_what_its_members_execute(
    work: list[tuple[int, int]], capacity: int
) -> None:
    engine = Engine()
    spec = ReserveSpec("pe", capacity, 1000, shared="pool")
    members = [engine.add_task(name, 0, reserve=spec)[0] for name in "abc"]
    spent = now = 0
    for place, cost in work:
        group = submit(engine, members[place], cost, now)
        if engine.dispatch(now) is None:
            assert capacity - spent <= 0
            break
        engine.complete(group, now, now + cost)
        now += cost
        spent += cost
        assert {budget(member) for member in members} == {capacity - spent}
    assert sum(member.gpu_ns for member in members) == spent


# -- admission -------------------------------------------------------------------------------


def test_the_limit_itself_is_allowed_and_a_hair_more_is_not() -> None:
    # 1/3 + 1/7 + 11/21 = 1, which no sum of floats says.
    thirds = [ReserveSpec("pe", 1, 3), ReserveSpec("ae", 1, 7)]
    assert admit(ReserveSpec("pe", 11, 21), thirds, Fraction(1)).accepted
    assert not admit(ReserveSpec("pe", 11_000_001, 21_000_000), thirds, Fraction(1)).accepted
    tenths = [ReserveSpec("pe", 1, 10)] * 9
    assert admit(ReserveSpec("pe", 1, 10), tenths, Fraction(1)).accepted


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(50, 400)), max_size=6),
    st.integers(1, 50),
    st.integers(50, 400),
    st.fractions(0, 1),
)
def test_admission_is_the_exact_sum_of_c_over_t(
    active: list[tuple[int, int]], capacity: int, period: int, limit: Fraction
) -> None:
    answer = admit(
        ReserveSpec("pe", capacity, period), [ReserveSpec("pe", c, t) for c, t in active], limit
    )
    total = sum((Fraction(c, t) for c, t in active), Fraction(capacity, period))
    assert answer.accepted == (total <= limit)
    assert bool(answer.why) != answer.accepted


def test_without_a_limit_everything_is_admitted() -> None:
    assert admit(ReserveSpec("pe", 9, 10), [ReserveSpec("pe", 9, 10)] * 9, None).accepted


def test_a_shared_reserve_counts_once() -> None:
    engine = Engine(limit=Fraction(1, 2))
    pool = ReserveSpec("pe", 4, 10, shared="pool")
    assert all(engine.add_task(name, 0, reserve=pool)[1].accepted for name in "abc")
    assert engine.add_task("d", 0, reserve=ReserveSpec("pe", 1, 10))[1].accepted
    assert not engine.add_task("e", 0, reserve=ReserveSpec("pe", 1, 1000))[1].accepted


def test_a_task_that_is_turned_away_becomes_background_and_is_told_why() -> None:
    busy = task("busy", [(0, 1)], pe(8, 10), priority=5)
    extra = task("extra", [(0, 3), (0, 3)], pe(3, 10), priority=9)
    seen, outcome = run(busy, extra, admission={"limit": 100})
    # Background: after busy in spite of its priority, then 2.5 - 3 < 0 until 25.
    assert seen.rows == [("busy", 0), ("extra", 1), ("extra", 25)]
    assert list(outcome.turned_away) == ["extra"]
    for word in ("30 %", "80 %", "100 %"):
        assert word in outcome.turned_away["extra"]


def test_a_task_called_background_has_an_ordinary_reserve() -> None:
    engine = Engine(limit=Fraction(1))
    assert engine.add_task("background", 0, reserve=ReserveSpec("pe", 6, 10))[1].accepted
    assert not engine.add_task("b", 0, reserve=ReserveSpec("pe", 6, 10))[1].accepted


def test_background_itself_takes_no_room() -> None:
    engine = Engine(limit=Fraction(1))
    engine.add_background_task("b", 0)
    assert engine.add_task("a", 0, reserve=ReserveSpec("pe", 10, 10))[1].accepted


def test_a_change_that_is_refused_changes_nothing() -> None:
    engine = Engine(limit=Fraction(1))
    before = ReserveSpec("pe", 4, 10)
    a, _ = engine.add_task("a", 0, reserve=before, priority=Fixed(3))
    engine.add_task("b", 0, reserve=ReserveSpec("pe", 5, 10))
    execute(engine, a, 3, 0)
    rank = a.rank
    answer = engine.set_reserve(a, ReserveSpec("ae", 6, 10), 4)
    assert not answer.accepted
    assert answer.why
    assert (reserve_of(a).spec, budget(a), a.rank) == (before, 1, rank)
    engine.advance(10)
    assert budget(a) == 4


def test_a_pool_change_that_is_refused_changes_nothing() -> None:
    engine = Engine(limit=Fraction(1))
    a, _ = engine.add_task("a", 0, reserve=POOL)
    engine.add_task("b", 0, reserve=ReserveSpec("pe", 5, 10))
    assert not engine.change_pool("pool", ReserveSpec("pe", 6, 10, shared="pool"), 1).accepted
    assert (reserve_of(a).spec, budget(a)) == (POOL, 4)


def test_a_change_makes_room_for_itself_first() -> None:
    engine = Engine(limit=Fraction(1))
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 8, 10))
    assert engine.set_reserve(a, ReserveSpec("pe", 10, 10), 1).accepted


def test_a_task_that_is_gone_leaves_its_room() -> None:
    engine = Engine(limit=Fraction(1))
    a, _ = engine.add_task("a", 0, reserve=ReserveSpec("pe", 8, 10))
    engine.remove_task(a, 1)
    assert engine.add_task("b", 2, reserve=ReserveSpec("pe", 8, 10))[1].accepted


def test_a_pool_that_comes_back_needs_room_again() -> None:
    engine = Engine(limit=Fraction(1))
    pool = ReserveSpec("pe", 6, 10, shared="pool")
    a, _ = engine.add_task("a", 0, reserve=pool)
    execute(engine, a, 9, 0)
    engine.remove_task(a, 9)
    assert engine.add_task("b", 9, reserve=ReserveSpec("pe", 6, 10))[1].accepted
    assert not engine.add_task("c", 9, reserve=pool)[1].accepted


@settings(database=None, deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("add", "remove", "change")),
            st.integers(0, 5),
            st.integers(1, 9),
            st.sampled_from((None, "p", "q")),
        ),
        max_size=30,
    )
)
def test_the_reserves_in_use_never_exceed_the_limit(
    steps: list[tuple[str, int, int, str | None]],
) -> None:
    engine = Engine(limit=Fraction(3, 4))
    for now, (what, number, capacity, pool) in enumerate(steps):
        name = f"t{number}"
        spec = ReserveSpec("pe", 4 if pool else capacity, 20, shared=pool)
        if what == "add" and name not in engine.tasks:
            engine.add_task(name, now, reserve=spec)
        elif what == "remove" and name in engine.tasks:
            engine.remove_task(engine.tasks[name], now)
        elif what == "change" and name in engine.tasks:
            engine.set_reserve(engine.tasks[name], spec, now)
        used = {t.reserve.name: t.reserve.spec for t in engine.tasks.values() if t.reserve}
        shares = [spec.share for spec in used.values() if spec != DEFAULT_BACKGROUND]
        assert sum(shares) <= Fraction(3, 4)
