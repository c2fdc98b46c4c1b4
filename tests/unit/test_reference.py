"""The reference simulator: the worked examples, cases small enough to follow by hand, invariants.

In the hand-worked cases times are milliseconds and `e` is a reserve's budget.
"""

import json
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.reference import duration_ns, simulate
from tests.strategies import scenarios, to_toml

MS = 1_000_000


def oracle_directory() -> Path:
    """Where the worked examples of the contract lie, each a scenario and its expected result."""
    return Path(__file__).resolve().parents[1] / "data" / "oracles"


def task(
    name: str,
    policy: str,
    priority: int,
    groups: list[tuple[int, int]],
    reserve: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A task of a scenario; each group is (at, cost)."""
    entry: dict[str, Any] = {"name": name, "policy": policy, "priority": priority}
    if reserve is not None:
        entry["reserve"] = reserve
    entry["groups"] = [{"at": f"{at}ms", "cost": f"{cost}ms"} for at, cost in groups]
    return entry


def pe(capacity: int, period: int) -> dict[str, str]:
    return {"policy": "pe", "capacity": f"{capacity}ms", "period": f"{period}ms"}


def ae(capacity: int, period: int) -> dict[str, str]:
    return {**pe(capacity, period), "policy": "ae", "predict": "exact"}


def timeline(*tasks: dict[str, Any]) -> list[tuple[str, int, int, int, int]]:
    """(task, index, submitted, started, finished) of every group."""

    def ms(ns: int) -> int:
        assert ns % MS == 0
        return ns // MS

    return [
        (
            group["task"],
            group["index"],
            ms(group["submitted_ns"]),
            ms(group["started_ns"]),
            ms(group["finished_ns"]),
        )
        for group in simulate({"task": list(tasks)})
    ]


def test_there_are_five_oracles() -> None:
    assert len(list(oracle_directory().glob("*.toml"))) == 5
    assert len(list(oracle_directory().glob("*.json"))) == 5


@pytest.mark.parametrize(
    "path", sorted(oracle_directory().glob("*.toml")), ids=lambda path: path.stem
)
def test_reproduces_the_oracle_byte_for_byte(path: Path) -> None:
    result = {"schema": 1, "groups": simulate(tomllib.loads(path.read_text()))}
    assert json.dumps(result, indent=1).encode() == path.with_suffix(".json").read_bytes()


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0ms", 0),
        ("7ns", 7),
        ("3us", 3_000),
        ("2.5ms", 2_500_000),
        ("0.000001ms", 1),
        ("1.000000001s", 1_000_000_001),
        # More digits than a float holds.
        ("9007199254740993.001us", 9_007_199_254_740_993_001),
    ],
)
def test_a_duration_is_an_exact_number_of_nanoseconds(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "5", "ms", "0.5ns", "1.ms", ".5ms", "-1ms", "1e3ns", "1min"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        duration_ns(text)


def test_equal_priorities_go_by_submission_and_then_by_order_in_the_file() -> None:
    # At 0 only z waits. At 4 c (since 1), b (since 2) and a (since 2) wait: c was first, and of
    # the other two b stands first in the file.
    assert timeline(
        task("z", "prt", 0, [(0, 4)]),
        task("b", "prt", 0, [(2, 1)]),
        task("a", "prt", 0, [(2, 1)]),
        task("c", "prt", 0, [(1, 1)]),
    ) == [("z", 0, 0, 0, 4), ("c", 0, 1, 4, 5), ("b", 0, 2, 5, 6), ("a", 0, 2, 6, 7)]


def test_a_submission_at_the_instant_of_a_completion_takes_part_in_the_decision() -> None:
    # At 2 low's first group completes and high submits: high is dispatched, and not low's second,
    # which has waited since 0.
    assert timeline(
        task("low", "prt", 1, [(0, 2), (0, 2)]),
        task("high", "prt", 2, [(2, 1)]),
    ) == [("low", 0, 0, 0, 2), ("high", 0, 2, 2, 3), ("low", 1, 0, 3, 5)]


def test_an_at_before_the_predecessor_means_due_at_its_dispatch() -> None:
    # The second group's `at` is 1, but the task sleeps until the first is dispatched at 5.
    assert timeline(task("a", "prt", 0, [(5, 2), (1, 1)])) == [("a", 0, 5, 5, 7), ("a", 1, 5, 7, 8)]


def test_pe_debt_is_paid_over_two_periods() -> None:
    # At 5: e = 2 - 5 = -3. At 10: -1, held back. At 20: 1 > 0, let through.
    assert timeline(task("a", "prt", 0, [(0, 5), (0, 1)], pe(2, 10))) == [
        ("a", 0, 0, 0, 5),
        ("a", 1, 0, 20, 21),
    ]


def test_pe_holds_back_at_a_budget_of_exactly_zero() -> None:
    # At 4: e = 2 - 4 = -2. At 10: 0, which is not > 0. At 20: 2.
    assert timeline(task("a", "prt", 0, [(0, 4), (0, 1)], pe(2, 10))) == [
        ("a", 0, 0, 0, 4),
        ("a", 1, 0, 20, 21),
    ]


def test_pe_does_not_save_unused_budget() -> None:
    # e stays at C = 2 at 10, 20 and 30. At 35: 2 - 5 = -3. At 40: -1. At 50: 1.
    assert timeline(task("a", "prt", 0, [(30, 5), (30, 1)], pe(2, 10))) == [
        ("a", 0, 30, 30, 35),
        ("a", 1, 30, 50, 51),
    ]


def test_a_completion_is_charged_before_the_replenishment_of_its_instant() -> None:
    # At 10, in this order: e = 3 - 4 = -1, then min(3, -1 + 3) = 2 > 0, so the second group starts.
    # The other order would clip to 3, then charge to -1, and hold it back until 20.
    assert timeline(task("a", "prt", 0, [(6, 4), (6, 1)], pe(3, 10))) == [
        ("a", 0, 6, 6, 10),
        ("a", 1, 6, 10, 11),
    ]


def test_ae_saves_over_periods_for_a_group_above_the_capacity() -> None:
    # x = 5. At 0: e = 2 < 5. At 10: min(5, 4) = 4 < 5. At 20: min(5, 6) = 5, let through; at 25: 0.
    # The second group (x = 2, submitted at 20): at 30 e = min(max(2, 2), 0 + 2) = 2, let through.
    assert timeline(task("a", "prt", 0, [(0, 5), (0, 2)], ae(2, 10))) == [
        ("a", 0, 0, 20, 25),
        ("a", 1, 20, 30, 32),
    ]


def test_a_replenishment_does_not_know_the_group_submitted_at_its_instant() -> None:
    # At 10 nobody waits yet: e = min(max(2, 0), 4) = 2 < 3. At 20: min(3, 4) = 3.
    assert timeline(task("a", "prt", 0, [(10, 3)], ae(2, 10))) == [("a", 0, 10, 20, 23)]


def test_a_shared_ae_reserve_saves_for_the_largest_group_that_waits() -> None:
    # x = 5, the larger of 3 and 5. At 10: e = min(5, 4) = 4: a (3) is let through, b (5) is not.
    # At 13: 1. At 20: 3. At 30: 5, b is let through. Had x been 3 at 10, b would start at 40.
    pool = {**ae(2, 10), "shared": "pool"}
    assert timeline(
        task("a", "prt", 2, [(0, 3)], pool),
        task("b", "prt", 1, [(0, 5)], pool),
    ) == [("a", 0, 0, 10, 13), ("b", 0, 0, 30, 35)]


def test_ae_also_saves_for_a_group_that_waits_only_for_the_gpu() -> None:
    # x = 3. At 0: e = 2 < 3. At 10: min(3, 4) = 3, let through, but z is dispatched first. At 20 it
    # still waits, so e = min(max(2, 3), 3 + 2) = 3 and not 2; it starts when z completes.
    assert timeline(
        task("z", "prt", 2, [(10, 11)]),
        task("a", "prt", 1, [(0, 3)], ae(2, 10)),
    ) == [("z", 0, 10, 10, 21), ("a", 0, 0, 21, 24)]


def test_ht_passes_an_equal_priority_only_while_its_own_group_executes() -> None:
    # a's second group, due at 1 while its first executes, is dispatched at 1 before b, which has
    # waited since 0. At 6 nothing of a's executes any more when its third is submitted: b is first.
    groups = [(0, 3), (1, 3), (6, 1)]
    b = task("b", "prt", 1, [(0, 2)])
    assert timeline(task("a", "ht", 1, groups), b) == [
        ("a", 0, 0, 0, 3),
        ("a", 1, 1, 3, 6),
        ("b", 0, 0, 6, 8),
        ("a", 2, 6, 8, 9),
    ]
    # Under PRT b, which has waited longer, goes first at 3.
    assert timeline(task("a", "prt", 1, groups), b) == [
        ("a", 0, 0, 0, 3),
        ("b", 0, 0, 3, 5),
        ("a", 1, 1, 5, 8),
        ("a", 2, 6, 8, 9),
    ]


def test_ht_queues_every_due_group_at_once() -> None:
    # All three of a's are dispatched at 0, one through the other, before high arrives at 1.
    assert timeline(
        task("a", "ht", 1, [(0, 2), (0, 2), (0, 2)]),
        task("high", "prt", 2, [(1, 1)]),
    ) == [("a", 0, 0, 0, 2), ("a", 1, 0, 2, 4), ("a", 2, 0, 4, 6), ("high", 0, 1, 6, 7)]


def test_ht_gives_way_to_a_ready_task_of_higher_priority() -> None:
    # high waits since 1, so at 2 a's second group is not dispatched; at 3 high goes first.
    assert timeline(
        task("a", "ht", 1, [(0, 3), (2, 3)]),
        task("high", "prt", 2, [(1, 1)]),
    ) == [("a", 0, 0, 0, 3), ("high", 0, 1, 3, 4), ("a", 1, 2, 4, 7)]


def test_ht_passes_a_task_of_higher_priority_that_is_not_ready() -> None:
    # At 2: high's e = 1 - 2 = -1, so its second group waits. a executes from 2; at 3 its second
    # group is dispatched. high's e at 10: 0, not > 0; at 20: 1.
    assert timeline(
        task("a", "ht", 1, [(0, 3), (3, 3)]),
        task("high", "prt", 2, [(0, 2), (0, 1)], pe(1, 10)),
    ) == [
        ("high", 0, 0, 0, 2),
        ("a", 0, 0, 2, 5),
        ("a", 1, 3, 5, 8),
        ("high", 1, 0, 20, 21),
    ]


def test_ht_passes_at_the_replenishment_that_lets_its_group_through() -> None:
    # a's first group executes from 9 to 11; its second (x = 3) finds e = 2 at 9 and waits. At 10:
    # e = min(max(2, 3), 2 + 2) = 3, and it is dispatched then, behind the first.
    # Under PRT it would be looked at again at 11, where e = 3 - 2 = 1, and b would go first.
    assert timeline(
        task("a", "ht", 1, [(9, 2), (9, 3)], ae(2, 10)),
        task("b", "prt", 1, [(9, 1)]),
    ) == [("a", 0, 9, 9, 11), ("a", 1, 9, 11, 14), ("b", 0, 9, 14, 15)]


def test_ht_queues_on_a_budget_that_is_charged_only_at_completion() -> None:
    # At 0 e = 1 > 0 lets both of the first two through. At 2: e = -1, so the third waits from 3 on,
    # though the second executes. At 4: -3. At 10, 20, 30: -2, -1, 0. At 40: 1.
    assert timeline(task("a", "ht", 1, [(0, 2), (0, 2), (3, 1)], pe(1, 10))) == [
        ("a", 0, 0, 0, 2),
        ("a", 1, 0, 2, 4),
        ("a", 2, 3, 40, 41),
    ]


@pytest.mark.parametrize(
    "scenario",
    [
        {"device": {"switch": "1us"}, "task": []},
        {"device": {"count": 2}, "task": []},
        {"task": [task("a", "fifo", 1, [])]},
        {"task": [task("a", "prt", 1, [], {**ae(1, 2), "predict": "history"})]},
        {"task": [task("a", "prt", 1, [], pe(0, 2))]},
        {
            "task": [
                task(n, "prt", 1, [], {**pe(c, 2), "shared": "p"}) for n, c in (("a", 1), ("b", 2))
            ]
        },
    ],
    ids=["switch cost", "two devices", "policy", "prediction", "no capacity", "unequal pool"],
)
def test_what_the_reference_does_not_know_is_refused(scenario: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"reference knows|does not know|never grows|differently"):
        simulate(scenario)


@settings(database=None, deadline=None)
@given(scenarios())
def test_a_random_scenario_survives_its_file(scenario: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(scenario)) == scenario


@settings(database=None, deadline=None)
@given(scenarios())
def test_invariants_of_any_timeline(scenario: dict[str, Any]) -> None:
    groups = simulate(scenario)
    for before, after in pairwise(groups):
        assert before["finished_ns"] <= after["started_ns"], "one group at a time"
    for entry in scenario["task"]:
        own = [group for group in groups if group["task"] == entry["name"]]
        assert [group["index"] for group in own] == list(range(len(entry["groups"])))
        for declared, group in zip(entry["groups"], own, strict=True):
            assert duration_ns(declared["at"]) <= group["submitted_ns"] <= group["started_ns"]
            cost = group["finished_ns"] - group["started_ns"]
            assert cost == duration_ns(declared["cost"])
