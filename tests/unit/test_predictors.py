"""Predictors: what a group will probably cost, as TimeGraph §5.3 describes it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.events import Observer
from headway.engine.model import Group
from headway.engine.predictors import Context, predictors
from headway.engine.predictors.exact import Exact
from headway.engine.predictors.history import History
from headway.sim.outcome import simulate
from headway.sim.scenario import read_scenario

MS = 1_000_000
CALM = Context(switched=False)
SWITCHED = Context(switched=True)


def cost(history: History, signature: object, *, switched: bool = False) -> int:
    return history.predict(signature, Context(switched=switched)).cost_ns


def learn(history: History, signature: object, *costs: int, switched: bool = False) -> None:
    """Groups of this signature are submitted and cost so much."""
    context = Context(switched=switched)
    for executed in costs:
        history.observe(history.predict(signature, context), executed, context)


def test_both_predictors_are_registered() -> None:
    assert {"exact", "history"} <= set(predictors())


def test_exact_knows_the_cost() -> None:
    exact = Exact()
    prediction = exact.predict("anything", Context(switched=True, exact_ns=7))
    assert (prediction.cost_ns, prediction.hit) == (7, True)
    exact.observe(prediction, 1000, SWITCHED)
    assert exact.predict("anything", Context(exact_ns=9)).cost_ns == 9


def test_an_empty_history_predicts_nothing() -> None:
    prediction = History().predict("a", CALM)
    assert (prediction.cost_ns, prediction.hit) == (0, False)


def test_the_first_completion_makes_a_record_of_its_cost() -> None:
    history = History()
    learn(history, "a", 40)
    prediction = history.predict("a", CALM)
    assert (prediction.cost_ns, prediction.hit) == (40, True)
    assert len(history) == 1


def test_a_hit_predicts_the_average() -> None:
    history = History()
    learn(history, "a", 10, 20, 60)
    assert cost(history, "a") == 30


def test_a_miss_predicts_the_worst_average_on_record() -> None:
    history = History()
    learn(history, "a", 10, 90)
    learn(history, "b", 60)
    prediction = history.predict("c", CALM)
    assert (prediction.cost_ns, prediction.hit) == (60, False)


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
    history.predict("a", CALM)
    assert len(history) == 0


def test_the_least_recently_used_record_goes_first() -> None:
    history = History(size=2)
    learn(history, "a", 10)
    learn(history, "b", 20)
    cost(history, "a")  # now b is the one that was not used for longest
    learn(history, "c", 30)
    assert len(history) == 2
    assert history.predict("a", CALM).hit
    assert history.predict("c", CALM).hit
    assert not history.predict("b", CALM).hit


def test_a_table_of_one_remembers_the_last() -> None:
    history = History(size=1)
    learn(history, "a", 10)
    learn(history, "b", 20)
    assert cost(history, "a") == 20  # a miss: the worst there is
    assert cost(history, "b") == 20


def test_a_group_whose_record_went_meanwhile_makes_a_new_one() -> None:
    history = History(size=1)
    learn(history, "a", 10, 10)
    in_flight = history.predict("a", CALM)
    learn(history, "b", 20)
    history.observe(in_flight, 50, CALM)
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
        prediction = history.predict(matrix, Context(switched=expected_switch))
        x, hit = naive.predict(matrix, expected_switch)
        assert (prediction.cost_ns, prediction.hit) == (x, hit)
        history.observe(prediction, executed, Context(switched=switched))
        naive.complete(matrix, executed, switched, hit)
        assert len(history) == len(naive.records) <= size


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
