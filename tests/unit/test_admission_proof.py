"""Admission by analysis: who gets a reserve, who would miss, and that nobody then does."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from headway.engine.core import Engine
from headway.engine.model import Task
from headway.engine.priorities import parse_priority
from headway.engine.reading import BadInput
from headway.engine.reserves import ReserveSpec
from headway.engine.spec import parse_spec
from headway.sim.analysing import analyse_scenario
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario

MS = 1_000_000


def engine(**more: Any) -> Engine:
    return Engine(limit=1, longest_ns=1 * MS, **more)  # type: ignore[arg-type]


def add(
    engine: Engine, name: str, capacity: float, period: float, priority: int | str = 0, **more: Any
) -> tuple[Task, str]:
    spec = ReserveSpec("pe", int(capacity * MS), int(period * MS), **more)
    rule = parse_priority(priority)
    task, answer = engine.add_task(name, 0, priority=rule, reserve=spec)
    assert answer.accepted == (task.reserve is not None and task.reserve.spec is spec)
    return task, answer.why


def test_a_reserve_is_given_while_every_deadline_is_proven() -> None:
    one = engine()
    # A job of 2 ms, a weaker group of 2 ms before it, and perhaps a wait for its own reserve.
    assert add(one, "a", 2, 20, priority=2) == (one.tasks["a"], "")
    assert add(one, "b", 3, 60, priority=1)[1] == ""
    why = add(one, "c", 9, 90, priority=0)[1]
    assert why == (
        "jobs of a might miss their deadline: they may take 22ms, mostly reserve, and are due "
        "after 20ms"
    )
    assert one.tasks["c"].reserve is not None
    assert one.tasks["c"].reserve.spec.shared == "background"
    # By the limit alone there was room: 10 + 10 + 10 %.
    assert add(Engine(limit=1), "c", 9, 90)[1] == ""  # type: ignore[arg-type]


def test_who_would_miss_itself_is_told_so() -> None:
    one = engine()
    add(one, "a", 4, 10, priority=2)
    why = add(one, "b", 6, 12, priority=1)[1]
    assert why.startswith("its own jobs might miss their deadline: its reserve is too small")


def test_a_program_without_a_reserve_that_goes_first_leaves_nothing_to_prove() -> None:
    one = engine()
    one.add_task("greedy", 0, priority=parse_priority(5))
    assert "its own jobs might miss their deadline" in add(one, "a", 1, 50)[1]
    two = engine()
    two.add_task("greedy", 0, priority=parse_priority(-5))
    assert add(two, "a", 1, 50)[1] == ""


def test_weaker_groups_count_with_the_length_that_was_given() -> None:
    for longest_ms, accepted in ((1, True), (9, False)):
        one = Engine(limit=1, longest_ns=longest_ms * MS)  # type: ignore[arg-type]
        one.add_task("weak", 0, priority=parse_priority(-5))
        assert (add(one, "a", 1, 10)[1] == "") is accepted


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"shared": "pool"}, "it shares its reserve (pool)"),
        ({"kind": "ae", "predict": "history"}, "goes by predictions that may be wrong"),
    ],
)
def test_what_cannot_be_proven_is_refused_with_its_reason(more: dict[str, Any], why: str) -> None:
    one = engine()
    spec = ReserveSpec(**{"kind": "pe", "capacity_ns": MS, "period_ns": 50 * MS, **more})
    assert why in one.add_task("a", 0, reserve=spec)[1].why


def test_other_policies_are_named() -> None:
    one = engine()
    one.add_task("w", 0, policy="fifo")
    assert add(one, "a", 1, 50)[1] == "nothing is proven beside w, whose policy is fifo"


def test_a_change_that_would_make_somebody_miss_changes_nothing() -> None:
    one = engine()
    add(one, "a", 2, 20, priority=2)
    task, _ = add(one, "b", 3, 30, priority=1)
    before = task.reserve
    answer = one.set_reserve(task, ReserveSpec("pe", 19 * MS, 60 * MS), 0)
    assert "jobs of a might miss" in answer.why
    assert task.reserve is before
    assert one.set_reserve(task, ReserveSpec("pe", 2 * MS, 60 * MS), 0).accepted


def test_each_gpu_is_proven_by_itself() -> None:
    one = engine(gpus=2)
    assert add(one, "a", 2, 20, priority=2)[1] == ""
    assert add(one, "b", 9, 90, priority=1)[1] == ""
    gpus = {name: task.reserve.gpu for name, task in one.tasks.items() if task.reserve}
    assert gpus == {"a": 0, "b": 1}


def test_a_crowd_is_decided_on_in_time_or_refused() -> None:
    one = engine()
    started = time.perf_counter()
    answers = [add(one, f"t{number}", 0.1, 40 + number)[1] for number in range(70)]
    assert "admission by analysis is for 64 tasks" in answers[-1]
    assert time.perf_counter() - started < 60  # 70 proofs; one is a matter of milliseconds


def test_files_say_how_admission_decides() -> None:
    assert parse_spec('[admission]\nby = "analysis"\n').settings.longest_ns == 2 * MS
    found = parse_spec('[admission]\nby = "analysis"\nlongest = "5ms"\nlimit = 50\n').settings
    assert (found.longest_ns, float(found.limit or 0)) == (5 * MS, 0.5)
    assert parse_spec("[admission]\nlimit = 50\n").settings.longest_ns is None
    for text, problem in [
        ('by = "proof"', "by: found 'proof'"),
        ('longest = "5ms"', "admission.longest: found a longest group"),
        ('by = "analysis"\nlongest = "0ms"', "admission.longest"),
    ]:
        with pytest.raises(BadInput, match=problem):
            parse_spec(f"[admission]\n{text}\n")


def scenario(seed: int) -> dict[str, Any]:
    """Periodic tasks with reserves, and greedy programs below, in a random order."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for number in range(rng.randint(2, 6)):
        period = rng.choice([20, 30, 50, 80, 100])
        cost = rng.randint(1, 6)
        row: dict[str, Any] = {
            "name": f"t{number}",
            "priority": rng.randint(1, 4),
            "reserve": {"policy": "pe", "capacity": f"{cost}ms", "period": f"{period}ms"},
            "periodic": {
                "cost": f"{rng.choice([cost, 1])}ms", "period": f"{period}ms",
                "offset": f"{rng.randint(0, 20)}ms",
            },
        }  # fmt: skip
        rows.append(row)
    rows.append({"name": "greedy", "greedy": {"cost": "2ms"}})
    rng.shuffle(rows)
    return {"run": {"duration": "2s"}, "admission": {"by": "analysis"}, "task": rows}


def test_whoever_was_given_a_reserve_by_proof_misses_nothing() -> None:
    given = refused = 0
    for seed in range(60):
        tables = scenario(seed)
        outcome = simulate(read_scenario(tables, "scenario"))
        found = outcome.statistics.by_name()
        for row in tables["task"]:
            if row["name"] == "greedy":
                continue
            if row["name"] in outcome.turned_away:
                refused += 1
                assert "miss" in outcome.turned_away[row["name"]]
            else:
                given += 1
                assert not found[row["name"]].missed, (seed, row)
    assert given > 60
    assert refused > 10


def test_headway_analyse_sees_who_was_given_a_reserve() -> None:
    def row(name: str, priority: int, reserve: str, cost: str, period: str) -> dict[str, Any]:
        periodic = {"cost": cost, "period": period}
        return {"name": name, "priority": priority, "reserve": reserve, "periodic": periodic}

    rows = [row("a", 2, "2ms/20ms", "2ms", "20ms"), row("b", 1, "30ms/90ms", "9ms", "90ms")]
    tables = {"admission": {"by": "analysis"}, "task": rows}
    a, _ = analyse_scenario(read_scenario(tables, "scenario")).verdicts
    assert a.bound_ns is not None
    assert a.bound_ns > 20 * MS  # b is Background now, and its group of 9 ms goes on all the same
