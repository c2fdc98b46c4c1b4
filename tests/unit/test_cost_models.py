"""Cost models: what a group will cost, as TimeGraph §5.3 describes it and otherwise."""

import ctypes
import subprocess
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.cost_models import (
    Conditions,
    CostModel,
    Prediction,
    Work,
    cost_model,
    cost_models,
)
from headway.engine.cost_models.exact import Exact
from headway.engine.cost_models.history import History
from headway.engine.cost_models.recent import KINDS, Recent, follow
from headway.engine.events import Observer
from headway.engine.model import Group
from headway.engine.registry import ExtensionError
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario

MS = 1_000_000
SHIM = Path(__file__).parents[2] / "shim"
PLAIN = Conditions()
SWITCHED = Conditions(switched=True)


@dataclass
class Some:
    """Some work."""

    signature: Hashable = "a"
    features: Mapping[str, int] = field(default_factory=dict)
    exact_ns: int = 0


def cost(model: CostModel, signature: Hashable, *, switched: bool = False) -> int:
    return model.predict(Some(signature), Conditions(switched=switched)).expected_ns


def learn(model: CostModel, signature: Hashable, *costs: int, switched: bool = False) -> None:
    """Groups of this signature are submitted and cost so much."""
    conditions = Conditions(switched=switched)
    for executed in costs:
        model.predict(Some(signature), conditions)
        model.observe(Some(signature), conditions, executed)


def test_all_cost_models_are_registered() -> None:
    assert {"exact", "history", "recent"} <= set(cost_models())


def test_exact_knows_the_cost() -> None:
    exact = Exact()
    assert exact.predict(Some(exact_ns=7), SWITCHED) == (7, 7, True)
    exact.observe(Some(exact_ns=7), SWITCHED, 1000)
    assert exact.predict(Some(exact_ns=9), PLAIN) == (9, 9, True)


def test_an_empty_history_predicts_nothing() -> None:
    assert History().predict(Some(), PLAIN) == (0, 0, False)


def test_the_first_completion_makes_a_record_of_its_cost() -> None:
    history = History()
    learn(history, "a", 40)
    assert history.predict(Some(), PLAIN) == (40, 40, True)
    assert len(history) == 1


def test_a_hit_predicts_the_average() -> None:
    history = History()
    learn(history, "a", 10, 20, 60)
    assert cost(history, "a") == 30


def test_a_miss_predicts_the_worst_average_on_record() -> None:
    history = History()
    learn(history, "a", 10, 90)
    learn(history, "b", 60)
    assert history.predict(Some("c"), PLAIN) == (60, 90, False)


def test_only_exactly_the_same_matrix_is_a_hit() -> None:
    history = History()
    learn(history, (("CLEAR", 4), ("DRAW", 8)), 10)
    learn(history, "large", 70)
    for other in (
        (("DRAW", 8), ("CLEAR", 4)),
        (("CLEAR", 4), ("DRAW", 9)),
        (("CLEAR", 4),),
        (("CLEAR", 4), ("DRAW", 8), ("DRAW", 8)),
    ):
        assert cost(history, other) == 70
    assert cost(history, (("CLEAR", 4), ("DRAW", 8))) == 10


def test_asking_alone_makes_no_record() -> None:
    history = History()
    history.predict(Some(), PLAIN)
    assert len(history) == 0


def test_the_least_recently_used_record_goes_first() -> None:
    history = History(size=2)
    learn(history, "a", 10)
    learn(history, "b", 20)
    cost(history, "a")  # now b is the one that was not used for longest
    learn(history, "c", 30)
    assert len(history) == 2
    assert history.predict(Some("a"), PLAIN).known
    assert history.predict(Some("c"), PLAIN).known
    assert not history.predict(Some("b"), PLAIN).known


def test_a_table_of_one_remembers_the_last() -> None:
    history = History(size=1)
    learn(history, "a", 10)
    learn(history, "b", 20)
    assert cost(history, "a") == 20  # a miss: the worst there is
    assert cost(history, "b") == 20


def test_a_group_whose_record_went_meanwhile_makes_a_new_one() -> None:
    history = History(size=1)
    learn(history, "a", 10, 10)
    history.predict(Some("a"), PLAIN)
    learn(history, "b", 20)
    history.observe(Some("a"), PLAIN, 50)
    assert cost(history, "a") == 50


def test_a_table_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        History(size=0)


def test_after_a_switch_the_average_stays_and_the_difference_is_the_impact() -> None:
    history = History()
    learn(history, "a", 100)
    learn(history, "a", 130, switched=True)
    assert cost(history, "a") == 100
    assert history.impact_ns == 30
    learn(history, "a", 110, switched=True)
    assert history.impact_ns == 20


def test_the_impact_is_added_only_when_a_switch_is_expected() -> None:
    history = History()
    learn(history, "a", 100)
    learn(history, "a", 130, switched=True)
    assert cost(history, "a", switched=True) == 130
    assert cost(history, "a") == 100
    assert cost(history, "unknown", switched=True) == 130
    assert cost(history, "unknown") == 100


def test_the_impact_is_one_average_for_all() -> None:
    history = History()
    learn(history, "a", 100)
    learn(history, "b", 10)
    learn(history, "a", 130, switched=True)
    learn(history, "b", 20, switched=True)
    assert cost(history, "b", switched=True) == 10 + 20


def test_a_cost_measured_beforehand_is_the_first_impact() -> None:
    history = History(preemption_ns=50)
    learn(history, "a", 100)
    assert cost(history, "a", switched=True) == 150
    learn(history, "a", 110, switched=True)
    assert cost(history, "a", switched=True) == 130


def test_an_impact_never_makes_a_prediction_smaller() -> None:
    history = History()
    learn(history, "a", 100)
    learn(history, "a", 60, switched=True)
    assert cost(history, "a", switched=True) == 100


def test_a_first_group_right_after_a_switch_is_recorded_all_the_same() -> None:
    history = History()
    learn(history, "a", 40, switched=True)
    assert cost(history, "a") == 40
    assert history.impact_ns == 0


class Naive:
    """§5.3 as a list of records, looked through from end to end."""

    def __init__(self, size: int, preemption: int) -> None:
        self.size = size
        self.impacts = [preemption] if preemption else []
        self.records: list[tuple[str, list[int]]] = []
        """(matrix, costs), the most recently used last."""

    def average(self, costs: list[int]) -> int:
        return sum(costs) // len(costs) if costs else 0

    def predict(self, matrix: str, switched: bool) -> tuple[int, bool]:
        hit = False
        x = max((self.average(costs) for _, costs in self.records), default=0)
        for record in self.records:
            if record[0] == matrix:
                hit, x = True, self.average(record[1])
                self.records.remove(record)
                self.records.append(record)
                break
        return x + (max(0, self.average(self.impacts)) if switched else 0), hit

    def complete(self, matrix: str, executed: int, switched: bool, hit: bool) -> None:
        if not hit:
            self.records.append((matrix, [executed]))
            del self.records[: -self.size]
            return
        (costs,) = (costs for name, costs in self.records if name == matrix)
        if switched:
            self.impacts.append(executed - self.average(costs))
        else:
            costs.append(executed)


@settings(database=None, deadline=None, max_examples=300)
@given(
    st.integers(1, 4),
    st.sampled_from((0, 25)),
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(1, 1000), st.booleans(), st.booleans()),
        max_size=40,
    ),
)
def test_history_is_what_the_paper_describes(
    size: int, preemption: int, groups: list[tuple[str, int, bool, bool]]
) -> None:
    history, naive = History(size, preemption), Naive(size, preemption)
    for matrix, executed, expected_switch, switched in groups:
        prediction = history.predict(Some(matrix), Conditions(switched=expected_switch))
        x, hit = naive.predict(matrix, expected_switch)
        assert (prediction.expected_ns, prediction.known) == (x, hit)
        assert prediction.bound_ns >= x
        history.observe(Some(matrix), Conditions(switched=switched), executed)
        naive.complete(matrix, executed, switched, hit)
        assert len(history) == len(naive.records) <= size


# -- recent: the interposer's formula ---------------------------------------------------------


def test_recent_goes_half_the_way_down_and_an_eighth_of_the_way_up() -> None:
    recent = Recent()
    learn(recent, "a", 800)
    assert cost(recent, "a") == 800
    learn(recent, "a", 400)
    assert cost(recent, "a") == 600
    learn(recent, "a", 1400)
    assert cost(recent, "a") == 700


def test_one_long_delay_does_not_double_what_is_expected() -> None:
    recent = Recent()
    learn(recent, "a", 100, 1_000_000)
    assert cost(recent, "a") == 187  # (7 * 100 + 8 * 100) / 8


def test_the_bound_is_the_largest_cost_lately() -> None:
    recent = Recent()
    learn(recent, "a", 100, 160)
    assert recent.predict(Some(), PLAIN).bound_ns == 160
    learn(recent, "a", *[100] * 50)
    expected_ns, bound_ns, _ = recent.predict(Some(), PLAIN)
    assert expected_ns <= bound_ns < 110


@settings(database=None, deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_the_expected_cost_is_within_what_was_seen_and_the_bound_above(costs: list[int]) -> None:
    recent = Recent()
    for number, executed in enumerate(costs, 1):
        learn(recent, "a", executed)
        expected_ns, bound_ns, _ = recent.predict(Some(), PLAIN)
        assert min(costs[:number]) - 1 <= expected_ns <= max(costs[:number])
        assert bound_ns >= max(expected_ns, executed)


def test_conditions_have_costs_of_their_own() -> None:
    recent = Recent()
    half = Conditions(share_permille=500)
    recent.observe(Some(), PLAIN, 100)
    assert recent.predict(Some(), half) == (100, 100, True)  # seen elsewhere only
    recent.observe(Some(), half, 190)
    recent.observe(Some(), Conditions(device=1), 50)
    assert recent.predict(Some(), half).expected_ns == 190
    assert recent.predict(Some(), PLAIN).expected_ns == 100
    assert recent.predict(Some(), Conditions(device=1)).expected_ns == 50
    assert recent.predict(Some(), SWITCHED).expected_ns == 50  # as it was seen last


def test_what_is_remembered_is_bounded_in_kinds_and_conditions() -> None:
    recent = Recent()
    for number in range(3 * KINDS):
        learn(recent, number, number + 1)
        recent.observe(Some("same"), Conditions(device=number), 7)
    assert len(recent) == KINDS
    assert recent.predict(Some("same"), Conditions(device=0)) == (7, 7, True)
    assert not recent.predict(Some(0), PLAIN).known


def test_tasks_learn_apart_under_recent_and_together_under_history() -> None:
    recent, history = Recent(), History()
    other = recent.for_task()
    learn(recent, "a", 100)
    assert not other.predict(Some(), PLAIN).known
    assert history.for_task() is history


FORMULA = """
#include "follow.h"
uint64_t follow_in_c(uint64_t known, uint64_t seen) { return hw_follow(known, seen); }
"""


@pytest.fixture(scope="module")
def interposer(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The interposer's learner of costs, with its formula."""
    folder = tmp_path_factory.mktemp("costs")
    (folder / "formula.c").write_text(FORMULA)
    command = ["gcc", "-shared", "-fPIC", "-O1", f"-I{SHIM}/core", f"-I{SHIM}/stream"]
    sources = [str(SHIM / "stream" / "costs.c"), str(folder / "formula.c")]
    subprocess.run([*command, "-o", str(folder / "costs.so"), *sources], check=True)
    library = ctypes.CDLL(str(folder / "costs.so"))
    library.follow_in_c.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
    library.follow_in_c.restype = ctypes.c_uint64
    library.hw_cost_find.argtypes = (ctypes.c_uint64,)
    library.hw_cost_find.restype = ctypes.POINTER(Cost)
    library.hw_cost_learn.argtypes = (ctypes.POINTER(Sum), Sight, ctypes.c_bool)
    return library


class Cost(ctypes.Structure):
    _fields_ = (
        ("signature", ctypes.c_uint64),
        ("ns", ctypes.c_uint64),
        ("seen", ctypes.c_uint32),
        ("at", ctypes.c_uint32),
    )


class Part(ctypes.Structure):
    _fields_ = (
        ("of", ctypes.POINTER(Cost)),
        ("ns", ctypes.c_uint64),
        ("works", ctypes.c_uint32),
    )


class Sum(ctypes.Structure):
    _fields_ = (("ns", ctypes.c_uint64), ("parts", ctypes.c_uint32), ("part", Part * 8))


class Sight(ctypes.Structure):
    _fields_ = (
        ("took_ns", ctypes.c_uint64),
        ("or_more", ctypes.c_bool),
        ("or_less", ctypes.c_bool),
    )


@settings(database=None, deadline=None)
@given(known=st.integers(0, 2**60), seen=st.integers(0, 2**60))
def test_the_interposer_follows_costs_by_the_same_formula(
    interposer: ctypes.CDLL, known: int, seen: int
) -> None:
    assert interposer.follow_in_c(known, seen) == follow(known, seen)


@settings(database=None, deadline=None)
@given(
    st.integers(1, 2**64 - 1),
    st.lists(st.integers(0, 2**50), min_size=1, max_size=40),
)
def test_the_interposer_learns_what_recent_learns(
    interposer: ctypes.CDLL, signature: int, costs: list[int]
) -> None:
    learned = interposer.hw_cost_find(signature)
    learned.contents.seen = learned.contents.ns = 0  # also if an earlier example had it
    batch = Sum(ns=1, parts=1)
    batch.part[0] = Part(learned, 1, 1)
    recent = Recent()
    for took_ns in costs:
        interposer.hw_cost_learn(ctypes.byref(batch), Sight(took_ns, False, False), False)
        recent.observe(Some(signature), PLAIN, took_ns)
        assert learned.contents.ns == cost(recent, signature)


# -- in the engine ---------------------------------------------------------------------------


class Predicted(Observer):
    def __init__(self) -> None:
        self.rows: list[tuple[str, float, float]] = []
        """(task, predicted, started) in milliseconds."""

    def completed(self, group: Group, now_ns: int) -> None:
        row = (group.task.name, group.predicted_ns / MS, group.started_ns / MS)
        self.rows.append(row)


def predicted(*tasks: dict[str, Any], **top: Any) -> list[tuple[str, float, float]]:
    seen = Predicted()
    simulate(read_scenario({"task": list(tasks), **top}, "scenario"), observers=[seen])
    return seen.rows


def learner(*groups: tuple[float, float, str], name: str = "a") -> dict[str, Any]:
    """A task under AE, 2 ms of 10; each group is (at, cost, kind)."""
    return {
        "name": name,
        "reserve": {"policy": "ae", "capacity": "2ms", "period": "10ms", "predict": "history"},
        "groups": [{"at": f"{at}ms", "cost": f"{c}ms", "kind": kind} for at, c, kind in groups],
    }


def test_ae_with_history_learns_from_what_ran() -> None:
    # The first is unknown: x = 0, let through, overruns to 2 - 5 = -3. The second, of the same
    # kind, has x = 5: at 10 -1, at 20 1, at 30 3, at 40 5. Then e = 0 at 45.
    # The third is of another kind: x is the worst, 5: at 50 2, at 60 4, at 70 5.
    assert predicted(learner((0, 5, "k"), (6, 5, "k"), (41, 1, "new"))) == [
        ("a", 0, 0),
        ("a", 5, 40),
        ("a", 5, 70),
    ]


def test_a_switch_is_expected_if_another_task_had_the_gpu() -> None:
    # a's k costs 1, impact 0.5 beforehand. At 5 b has run in between: x = 1.5. At 8 nobody has:
    # x = 1, its average; the one at 5 ran after a switch and cost 1, so the impact is (0.5+0)/2.
    # At 25, after b's second: 1.25.
    b = {"name": "b", "groups": [{"at": f"{at}ms", "cost": "1ms"} for at in (3, 22)]}
    rows = predicted(
        learner((0, 1, "k"), (5, 1, "k"), (8, 1, "k"), (25, 1, "k")),
        b,
        predict={"history": {"preemption": "0.5ms"}},
    )
    assert [x for name, x, _ in rows if name == "a"][1:] == [1.5, 1, 1.25]


def test_the_first_group_on_a_fresh_gpu_expects_no_switch() -> None:
    # Nothing ran before, so there is nothing to switch from and x = 0.
    settings = {"history": {"preemption": "3ms"}}
    assert predicted(learner((0, 1, "k")), predict=settings) == [("a", 0, 0)]


def test_the_impact_of_a_switch_is_learned_from_what_a_switch_costs() -> None:
    # a's first, 0.5, is learned as it is: nobody ran before it. Its second and third come after b's
    # and take 0.3 more: x is 0.5 for the second, and 0.8 from then on. b does the same from its
    # second on. Of those after no switch nothing is added.
    device = {"switch": "0.3ms"}
    a = learner((0, 0.5, "k"), (3, 0.5, "k"), (13, 0.5, "k"), (14, 0.5, "k"))
    b = {"name": "b", "groups": [{"at": f"{at}ms", "cost": "1ms"} for at in (1, 11)]}
    found = [x for name, x, _ in predicted(a, b, device=device) if name == "a"]
    assert found == [0, 0.5, 0.8, 0.5]
    free = predicted(a, b, device=device | {"charge_from": "start"})
    assert [x for name, x, _ in free if name == "a"] == [0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        ("periodic", {"period": "40ms"}),
        ("greedy", {"cpu": "20ms"}),
        ("widget", {"cpu": "20ms"}),
        ("bomb", {"depth": 1, "cpu": "20ms"}),
    ],
)
def test_what_a_task_costs_is_learned_from_itself(kind: str, work: dict[str, Any]) -> None:
    # Nobody is predicted by what the other's groups cost, though both are of the same kind.
    reserve = {"policy": "ae", "capacity": "40ms", "period": "40ms", "predict": "history"}
    tasks = [
        {"name": name, "reserve": reserve, kind: {**work, "cost": cost}}
        for name, cost in (("short", "1ms"), ("long", "15ms"))
    ]
    rows = predicted(*tasks, run={"duration": "500ms"})
    for name, cost in (("short", 1), ("long", 15)):
        found = [x for task, x, _ in rows if task == name]
        assert len(found) > 5
        assert set(found[1:]) == {cost}


def test_listed_groups_are_of_their_own_task_unless_they_say_of_which_kind_they_are() -> None:
    # An unknown group may cost what the worst known one does.
    reserve = {"policy": "ae", "capacity": "9ms", "period": "10ms", "predict": "history"}

    def three(**more: str) -> list[float]:
        none: dict[str, str] = {}
        groups = (("c", 0, 6, none), ("a", 20, 4, more), ("b", 40, 2, more))
        tasks = [
            {
                "name": name,
                "reserve": reserve,
                "groups": [{"at": f"{at}ms", "cost": f"{cost}ms", **kind}],
            }
            for name, at, cost, kind in groups
        ]
        return [x for _, x, _ in predicted(*tasks)]

    assert three() == [0, 6, 6]
    assert three(kind="clear") == [0, 6, 4]


def test_the_tables_size_can_be_set() -> None:
    # With room for one, k is forgotten when m is learnt: the last k costs the worst there is, 0.5.
    groups = [(0.0, 0.2, "k"), (1.0, 0.5, "m"), (2.0, 0.2, "k")]
    rows = predicted(learner(*groups), predict={"history": {"size": 1}})
    assert [x for _, x, _ in rows] == [0, 0.2, 0.5]
    rows = predicted(learner(*groups))
    assert [x for _, x, _ in rows] == [0, 0.2, 0.2]


def groups(*costs: float, name: str = "a", **more: Any) -> dict[str, Any]:
    """A task whose groups are of one kind, 10 ms apart."""
    listed = [{"at": f"{10 * i}ms", "cost": f"{c}ms"} for i, c in enumerate(costs)]
    return {"name": name, "groups": listed, **more}


def test_a_task_without_a_reserve_is_predicted_too() -> None:
    rows = predicted(groups(4, 4, 2, 3), groups(1, 1, name="b"))
    assert [x for name, x, _ in rows if name == "a"] == [4, 4, 2, 3]  # the simulator knows
    rows = predicted(groups(4, 4, 2, 3, predict="recent"))
    assert [x for _, x, _ in rows] == [0, 4, 4, 3]


def test_a_posterior_reserve_does_not_go_by_what_is_predicted() -> None:
    # 2 ms every 10: -3 after the first, 1 at 20, which lets through what is expected to cost 5;
    # then 0, and 2 at 30.
    pe = {"policy": "pe", "capacity": "2ms", "period": "10ms"}
    rows = predicted(groups(5, 1, 1, predict="recent", reserve=pe))
    assert [(x, start) for _, x, start in rows] == [(0, 0), (5, 20), (5, 30)]


def test_an_ae_reserve_goes_by_the_tasks_cost_model_unless_it_names_one() -> None:
    def first_two(**inner: str) -> list[float]:
        ae = {"policy": "ae", "capacity": "9ms", "period": "10ms", **inner}
        return [x for _, x, _ in predicted(groups(4, 4, predict="recent", reserve=ae))]

    assert first_two() == [0, 4]
    assert first_two(predict="exact") == [4, 4]


def test_a_cost_model_goes_by_features_and_is_one_class() -> None:
    @cost_model("test-pixels")
    class Pixels(CostModel):
        """A millisecond for each million pixels."""

        def predict(self, work: Work, conditions: Conditions) -> Prediction:
            expected_ns = work.features.get("pixels", 0)
            return Prediction(expected_ns, 2 * expected_ns)

        def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
            pass

    task = groups(5, 5, predict="test-pixels")
    task["groups"][1]["features"] = {"pixels": 3_000_000}
    assert [x for _, x, _ in predicted(task)] == [0, 3]


@pytest.mark.parametrize("method", ["predict", "observe"])
def test_a_cost_model_that_fails_is_told_of_and_replaced(method: str) -> None:
    class Broken(Recent):
        name = "broken"

        def for_task(self) -> "Broken":
            return self

    def fail(*_: object) -> None:
        raise ZeroDivisionError("no pixels")

    setattr(Broken, method, fail)
    failures: list[ExtensionError] = []
    engine = Engine(named=[Broken()], on_failure=failures.append)
    task, _ = engine.add_task("a", 0, predict="broken")
    for number in range(3):
        group = Group(task, number)
        engine.submit(group, number * MS)
        assert engine.dispatch(number * MS) is group
        engine.complete(group, number * MS, number * MS + 500)
    assert [str(failure) for failure in failures] == [str(failures[0])]
    assert f"cost model broken: {method} failed: ZeroDivisionError: no pixels" in str(failures[0])
    assert task.cost_model.name == "recent"
    assert group.predicted_ns == 500
