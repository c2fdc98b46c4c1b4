"""The GPU measurements' books: goals, tables and sections, without a GPU."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as campaign
from benchmarks.gpu import gates, inference, overhead, pairs
from benchmarks.gpu import stage as stages
from benchmarks.gpu.results import Goal, Outcome, Table
from benchmarks.gpu.spread import confidence, spread
from benchmarks.gpu.stage import Failed, Stage
from benchmarks.gpu.turns import order

pytestmark = pytest.mark.tables


@pytest.mark.parametrize(
    ("found", "at_least", "met"),
    [(1.0, False, True), (1.1, False, False), (1.0, True, True), (0.9, True, False)],
)
def test_a_goal_is_met_up_to_its_limit(found: float, at_least: bool, met: bool) -> None:
    goal = Goal("x", found, 1.0, at_least=at_least)
    assert goal.met is met
    assert ("missed" in goal.verdict) is not met


def test_an_interval_of_the_median_is_wide_enough_whatever_the_distribution() -> None:
    """For rounds that are independent, by playing all outcomes: below the median, or above it."""
    for rounds in (2, 6, 10, 13):
        found = spread([float(number) for number in range(1, rounds + 1)])
        outcomes = [bin(number).count("1") for number in range(2**rounds)]
        inside = sum(found.low <= below < found.high for below in outcomes)
        assert found.confidence == pytest.approx(inside / 2**rounds)
        assert found.confidence >= 0.95 or (found.low, found.high) == (1, rounds)


def test_an_interval_is_as_narrow_as_its_table_in_text_books() -> None:
    for rounds, rank in ((6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (40, 14)):
        assert spread(range(1, rounds + 1)).low == rank
        assert confidence(rounds, rank) >= 0.95 > confidence(rounds, rank + 1)


def test_too_few_rounds_say_how_little_they_say() -> None:
    found = spread([3.0, 1.0, 4.0, 2.0])
    assert found.interval("{:.0f}".format) == "1 - 4 (only 88 %)"
    assert found.middle_half("{:.2f}".format) == "1.75 - 3.25"
    assert (found.median, found.whole(str)) == (2.5, "1.0 - 4.0")


@pytest.mark.parametrize("many", [2, 3, 6])
def test_every_way_follows_every_other_one_equally_often(many: int) -> None:
    titles = [str(number) for number in range(many)]
    rounds = [order(titles, number) for number in range(2 * many)]
    assert all(sorted(ways) == titles for ways in rounds)
    followed = Counter(pair for ways in rounds for pair in pairwise(ways))
    assert followed == dict.fromkeys(permutations(titles, 2), 2)


def test_a_cost_is_against_the_mean_of_both_runs_without_headway_in_the_same_round() -> None:
    cost = overhead.Cost(
        without=[10.0, 20.0, 40.0, 10.0, 20.0, 40.0],
        again=[30.0, 20.0, 40.0, 10.0, 20.0, 20.0],
        under=[21.0, 22.0, 44.0, 11.0, 26.0, 45.0],
        generations=2,
    )
    assert cost.found.rounds == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.3, 0.5])
    assert cost.found.median == pytest.approx(0.1)
    assert cost.found.medians == pytest.approx([0.1, 0.3])
    assert cost.of_nothing.rounds == pytest.approx([2, 0, 0, 0, 0, -0.5])
    assert cost.of_nothing.medians == pytest.approx([0, 0])
    singles = [1.1, 0.1, 0.1, 0.1, 0.3, 0.125, -0.3, 0.1, 0.1, 0.1, 0.3, 1.25]
    assert cost.one_by_one.rounds == pytest.approx(singles)


def test_without_a_second_run_a_cost_is_against_the_only_one() -> None:
    cost = overhead.Cost([4000.0, 4400.0, 4200.0], [4100.0, 4450.0, 4500.0], [], relative=False)
    assert cost.found.rounds == cost.one_by_one.rounds == [100, 50, 300]
    assert cost.found.shown(cost.found.median) == "+100"


def test_one_by_one_noise_that_only_slows_down_is_not_taken_for_a_gain() -> None:
    """Three runs that cost the same: now and then, each as often, one of them is held up."""
    held_up = [(10.0, 10.0, 13.0), (10.0, 13.0, 10.0), (13.0, 10.0, 10.0)] * 4
    without, under, again = (list(runs) for runs in zip(*held_up, strict=True))
    cost = overhead.Cost(without, under, again)
    assert cost.found.median < 0, "the mean of two is held up in twice as many rounds as the third"
    assert cost.one_by_one.median == 0


def test_rounds_are_enough_for_an_interval_and_every_order_of_three_is_as_frequent() -> None:
    full, quick = overhead.cases(quick=False), overhead.cases(quick=True)
    told = [case for case in full + quick if case.short is not None]
    for case in full + told:
        assert spread(range(case.rounds * case.generations)).confidence >= 0.95
    for case in told:
        turns = Counter(
            tuple(order("abc", number)) for number in range(case.rounds * case.generations)
        )
        assert len(turns) == 6
        assert len(set(turns.values())) == 1


def test_w3_is_compared_with_time_slicing_of_the_same_run_and_the_others_with_the_prototype() -> (
    None
):
    result = pairs.Result(1.0, 1.0, 1600.0, 1.0, 0.83)
    sliced = pairs.Result(1.0, 1.0, 1500.0, 1.0, 0.8)
    rows = {
        stages.OVERLAP.title: dict.fromkeys(pairs.WORK, result),
        stages.TIME_SLICED.title: dict.fromkeys(pairs.WORK, sliced),
    }
    goals = {goal.what: goal for goal in pairs.goals_of(stages.OVERLAP, rows)}
    assert goals["Headway, W1: HP p99, us"].limit == pytest.approx(1644 * 1.05)
    assert goals["Headway, W1: HP p99, us"].met
    assert goals["Headway, W3: HP p99, us"].limit == 1500
    assert not goals["Headway, W3: HP p99, us"].met
    assert goals["Headway, W1: LP share"].met
    assert not goals["Headway, W3: LP share"].met


def test_w1_to_w3_run_three_times_as_long_in_every_way_and_medians_have_a_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: dict[str, list[float]] = {work: [] for work in pairs.WORK}

    def played(work: str, seconds: float) -> pairs.Result:
        ran[work].append(seconds)
        return pairs.Result(1234.0, 1.0, 2.0, 3.0, 0.5)

    monkeypatch.setattr(pairs, "alone", lambda _, work, seconds: played(work, seconds))
    monkeypatch.setattr(pairs, "pair", lambda _, work, way, seconds: played(work, seconds))
    monkeypatch.setattr(stages.Way, "on", lambda _, stage: contextlib.nullcontext(stage))
    outcome = pairs.measure(Stage(tmp_path), quick=False)
    assert ran["W1"] == ran["W2"] == ran["W3"] == [3 * seconds for seconds in ran["W4"]]
    assert len(ran["W3"]) == 1 + len(pairs.WAYS)
    assert "HP p50 in us" in outcome.markdown()
    assert "| MPS | 1234 | 1234 | 1234 | 1234 |" in outcome.markdown()


def test_inference_as_a_graph_has_goals_and_all_must_compute_the_same() -> None:
    def said(per_s: float, result: str) -> dict[str, list[dict[str, Any]]]:
        latencies = [1.0] * 99 + [1.8]
        infer = {"latencies_ms": latencies, "p99_ms": 1.8, "hash": "same"}
        return {"inference": [infer] * 4, "training": [{"per_s": per_s, "hash": result}] * 4}

    rows = {way.title: said(20.0, "same") for way in (*inference.WAYS, inference.AGAIN)}
    rows[inference.ALONE] = said(21.0, "same")
    rows[stages.OVERLAP.title] = said(19.0, "other")
    goals = {goal.what: goal.met for goal in inference.goals_of({"eager": rows, "graph": rows})}
    assert not goals["Headway, graph: training, of time-sliced"]
    assert goals["Headway + MPS, graph: training, of time-sliced"]
    assert goals["Headway, graph: p99, ms"]
    assert not any("eager: training" in what for what in goals)
    for kind in ("eager", "graph"):
        assert goals[f"{kind}: ways with different results of inference"]
        assert not goals[f"{kind}: ways with different results of training"]


GATES = """#!{python}
import json, pathlib, sys, time
there = pathlib.Path({there!r})
if sys.argv[1] == "wait":
    there.touch()
    print("waits", flush=True)
    time.sleep(int(sys.argv[2]))
said = json.loads({said!r})
runs = said["runs"]
for name in runs:
    if there.exists() and name != "nothing":
        runs[name] = [a + 3 * (b - a) for a, b in zip(runs["nothing"], runs[name])]
print(json.dumps(said))
"""


def test_a_gate_costs_what_its_rounds_took_longer_than_those_without(tmp_path: Path) -> None:
    runs = {"nothing": [4000.0, 5000.0, 4100.0]}
    for number, name in enumerate(gates.OPERATIONS, 1):
        runs[name] = [us + 200 * number for us in runs["nothing"]]
        runs[f"{name} / 10"] = [us + 20 * 10 * number for us in runs["nothing"]]
    said = {"kernels": 200, "runs": runs, "calls": {name: [2.0, 4.0] for name in gates.CALLS}}
    said |= {name: [float(us) for us in range(1, 102)] for name in gates.OPENINGS}
    program = tmp_path / "gates"
    there = tmp_path / "somebody waits"
    program.write_text(GATES.format(python=sys.executable, there=str(there), said=json.dumps(said)))
    program.chmod(0o755)
    outcome = gates.measure(Stage(tmp_path), quick=True)
    for data, times in (("gpu_us", 1), ("gpu_beside_us", 3)):
        costs = outcome.data[data]
        for number, name in enumerate(gates.OPERATIONS, 1):
            assert costs[name][1]["median"] == pytest.approx(times * number), "200 gates"
            assert costs[name][10]["median"] == pytest.approx(times * 10 * number), "20 gates"
    assert outcome.data["kernel_us"] == pytest.approx(20.5)
    assert outcome.data["opening_us"]["no gate"]["p99"] == 100
    assert "| write, wait, write | 4.00 | 4.00 - 4.00 (only 75 %) | 40.00 |" in outcome.markdown()


def test_a_program_that_should_wait_at_a_gate_and_does_not_is_told(tmp_path: Path) -> None:
    program = tmp_path / "gates"
    program.write_text("#!/bin/sh\necho no GPU >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(Failed, match="no GPU"), gates.somebody_waiting(Stage(tmp_path)):
        pass


def run_with(
    monkeypatch: pytest.MonkeyPatch, folder: Path, sections: dict[str, Outcome | Exception]
) -> int:
    """The whole script with sections that are played."""

    @contextlib.contextmanager
    def opened(built: Path | None) -> Iterator[Stage]:
        yield Stage(folder)

    def player(outcome: Outcome | Exception) -> Outcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    played = {
        name: (lambda stage, quick, outcome=outcome: player(outcome), 1, 1)
        for name, outcome in sections.items()
    }
    monkeypatch.setattr(campaign, "opened", opened)
    monkeypatch.setattr(campaign, "SECTIONS", played)
    monkeypatch.setattr(sys, "argv", ["run", "--out", str(folder)])
    return campaign.main()


def test_a_section_that_fails_is_told_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    good = Outcome([Table("numbers", ["a", "b"], [["1", "2"]])], [Goal("x", 1, 2)])
    code = run_with(monkeypatch, tmp_path, {"bad": Failed("it hung"), "good": good})
    assert code == 2
    text = (tmp_path / "results.md").read_text()
    assert "it hung" in text
    assert "| 1 | 2 |" in text
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["sections"]["good"]["goals"][0]["met"] is True
    assert {"date", "GPU", "driver", "CPUs", "kernel", "commit", "command"} <= set(written["facts"])


@pytest.mark.parametrize(("found", "code"), [(1, 0), (3, 1)])
def test_the_exit_code_says_whether_a_goal_was_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: float, code: int
) -> None:
    assert run_with(monkeypatch, tmp_path, {"one": Outcome(goals=[Goal("x", found, 2)])}) == code


def test_rounds_that_were_done_count_when_a_program_ends_after_enough_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the GPU's memory is used up: one that is half done does not."""
    both: dict[str, Any] = {inference.ALONE: (None, None), "time-sliced": (None, None)}
    least = inference.ENOUGH_ROUNDS

    def rounds(until: int) -> inference.Rows:
        parts = iter(range(2 * until + 1))

        def segment(*_: object, together: bool) -> tuple[dict[str, Any], dict[str, Any]]:
            if next(parts) == 2 * until:
                raise Failed("no memory")
            return {"latencies_ms": [1.0]}, {"per_s": 20.0}

        monkeypatch.setattr(inference, "_segment", segment)
        return inference._rounds(inference.Kind("graph", 3 * least, 0.4), both)

    assert [len(row["training"]) for row in rounds(least).values()] == [least, least]
    with pytest.raises(Failed):
        rounds(least - 1)
