"""Admission on several GPUs: each has its own room, and no reserve is divided between two."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headway.engine.core import Engine
from headway.engine.reserves import ReserveSpec
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario

MS = 1_000_000


def percent(share: int, **more: str) -> ReserveSpec:
    return ReserveSpec("pe", share * MS // 10, 10 * MS, **more)


def admitted(gpus: int, *shares: int) -> list[int | None]:
    """The GPU of each in turn; None: turned away."""
    engine = Engine(gpus=gpus, limit=Fraction(1))
    places = []
    for number, share in enumerate(shares):
        task, answer = engine.add_task(f"t{number}", 0, reserve=percent(share))
        reserve = task.reserve
        places.append(reserve.gpu if answer.accepted and reserve is not None else None)
    return places


@pytest.mark.parametrize(
    ("gpus", "shares", "places"),
    [
        (1, (60, 60), [0, None]),
        (2, (60, 60), [0, 1]),
        (2, (60, 60, 60), [0, 1, None]),
        (2, (60, 60, 40, 40, 1), [0, 1, 0, 1, None]),
        (2, (40, 40, 40, 60), [0, 1, 0, 1]),
        (3, (100, 50, 50), [0, 1, 2]),
    ],
)
def test_every_gpu_has_its_own_room(
    gpus: int, shares: tuple[int, ...], places: list[int | None]
) -> None:
    assert admitted(gpus, *shares) == places


def test_a_reserve_that_grows_stays_or_moves_to_where_there_is_room() -> None:
    engine = Engine(gpus=2, limit=Fraction(1))
    tasks = [engine.add_task(f"t{n}", 0, reserve=percent(s))[0] for n, s in enumerate((50, 30, 30))]
    assert [t.reserve.gpu for t in tasks if t.reserve] == [0, 1, 1]
    assert engine.set_reserve(tasks[1], percent(60), 1).accepted
    assert tasks[1].reserve is not None
    assert tasks[1].reserve.gpu == 1
    assert not engine.set_reserve(tasks[1], percent(80), 2).accepted
    assert engine.set_reserve(tasks[2], percent(50), 3).accepted
    assert tasks[2].reserve is not None
    assert tasks[2].reserve.gpu == 0


def test_two_reserves_of_more_than_half_are_kept_on_two_gpus() -> None:
    reserve = {"policy": "pe", "capacity": "6ms", "period": "10ms"}
    tasks = [
        {"name": name, "reserve": reserve, "greedy": {"cost": "1ms"}} for name in ("a", "b", "c")
    ]
    scenario = {
        "run": {"duration": "1s"},
        "device": {"count": 2},
        "admission": {"limit": 100},
        "task": tasks,
    }
    outcome = simulate(read_scenario(scenario, "test"))
    assert list(outcome.turned_away) == ["c"]
    assert "on each of 2" in outcome.turned_away["c"]
    shares = {name: e.gpu_ns / 1e9 for name, e in outcome.statistics.by_name().items()}
    assert shares["a"] == pytest.approx(0.6, abs=0.01)
    assert shares["b"] == pytest.approx(0.6, abs=0.01)
