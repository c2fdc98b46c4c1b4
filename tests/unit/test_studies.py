"""Studies: task sets are drawn as they claim to be, and configurations judge the same ones."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway import sim
from headway.engine.locks.clusters import Clusters
from headway.engine.locks.system import LockSystem
from headway.engine.reading import BadInput
from headway.sim.study.acceptance import Ratio, Study, run_study, task_set
from headway.sim.study.generators import Recipe, draw, log_uniform, randfixedsum, uunifast
from tests.integration.command import ROOT, headway

MS = 1_000_000
Generate = Callable[[random.Random, int, float, float], list[float]]


# -- generators ------------------------------------------------------------------------------


@pytest.mark.parametrize("generate", [uunifast, randfixedsum])
@pytest.mark.parametrize(
    ("count", "total", "most"), [(1, 0.7, 1), (4, 0.5, 1), (8, 3.5, 1), (6, 1.0, 0.4)]
)
def test_utilisations_add_up_and_stay_below_their_limit(
    generate: Generate, count: int, total: float, most: float
) -> None:
    rng = random.Random(1)
    for _ in range(300):
        drawn = generate(rng, count, total, most)
        assert len(drawn) == count
        assert sum(drawn) == pytest.approx(total)
        assert all(0 <= value <= most + 1e-9 for value in drawn)


@pytest.mark.parametrize("generate", [uunifast, randfixedsum])
def test_all_vectors_with_the_sum_are_as_likely(generate: Generate) -> None:
    # Of three even parts of 1 each is above 1/2 with probability 1/4, and 1/3 on average.
    rng = random.Random(2)
    drawn = [generate(rng, 3, 1.0, 1.0) for _ in range(8000)]
    for place in range(3):
        values = [row[place] for row in drawn]
        assert sum(values) / len(values) == pytest.approx(1 / 3, abs=0.01)
        assert sum(value > 0.5 for value in values) / len(values) == pytest.approx(1 / 4, abs=0.02)


def test_both_generators_agree_where_the_limit_cuts() -> None:
    # Four parts of 2, none above 1: the fraction of parts above 0.8.
    counts = []
    for generate in (uunifast, randfixedsum):
        rng = random.Random(3)
        values = [value for _ in range(4000) for value in generate(rng, 4, 2.0, 1.0)]
        counts.append(sum(value > 0.8 for value in values) / len(values))
    assert counts[0] == pytest.approx(counts[1], abs=0.015)


@pytest.mark.parametrize("generate", [uunifast, randfixedsum])
def test_impossible_sums_are_refused(generate: Generate) -> None:
    with pytest.raises(ValueError, match="expected more than 0 and at most 2"):
        generate(random.Random(0), 4, 2.5, 0.5)
    with pytest.raises(ValueError, match="expected at least one"):
        generate(random.Random(0), 0, 0.5, 0.5)


def test_periods_are_even_in_their_logarithm() -> None:
    rng = random.Random(4)
    drawn = [log_uniform(rng, 10 * MS, 1000 * MS, MS) for _ in range(4000)]
    assert all(10 * MS <= period <= 1000 * MS and period % MS == 0 for period in drawn)
    assert sum(period < 100 * MS for period in drawn) / len(drawn) == pytest.approx(0.5, abs=0.04)


def test_a_task_set_has_the_parts_of_its_recipe() -> None:
    recipe = Recipe(tasks=10, gpu_tasks=0.4, gpu_part=0.8, copy_part=0.25, kernels=2, state=2.0)
    tasks = draw(random.Random(5), recipe, 2.0, 10**9)
    users = [task for task in tasks if task.work is not None]
    assert len(users) == 4
    total = 0.0
    for task in tasks:
        length = task.cpu_ns
        if task.work is not None:
            copies = task.work.input_bytes + task.work.output_bytes  # ns at 1 GB/s
            kernels = sum(task.work.kernels_ns)
            assert kernels / (kernels + copies) == pytest.approx(0.75, rel=0.01)
            assert task.work.state_bytes == pytest.approx(2 * copies, abs=2)
            length += kernels + copies
        total += length / task.period_ns
    assert total == pytest.approx(2.0, rel=0.01)


# -- acceptance ------------------------------------------------------------------------------


def study(**changes: Any) -> Study:
    machine = Clusters(2, 2, 1, 1)
    systems = tuple(
        (name, LockSystem(machine, "rm", 2, name)) for name in ("r2dglp-wc", "priority")
    )
    plain: dict[str, Any] = {
        "systems": systems, "recipe": Recipe(tasks=6), "utilisations": (0.05, 0.8), "sets": 20
    }  # fmt: skip
    return Study(**{**plain, **changes})


def test_more_load_is_accepted_less_often() -> None:
    ratios = run_study(study())
    for name in ("r2dglp-wc", "priority"):
        low, high = ratios[name, 0.05], ratios[name, 0.8]
        assert low.sets == high.sets == 20
        assert low.accepted > 10 > high.accepted


def test_what_is_proved_is_seen_in_simulation() -> None:
    proved = run_study(study(utilisations=(0.2,)))
    seen = run_study(study(utilisations=(0.2,), test="simulation", simulated_ns=500 * MS))
    for key, ratio in proved.items():
        assert ratio.accepted <= seen[key].accepted


@pytest.mark.parametrize("test", ["analysis", "simulation"])
def test_releases_and_lengths_that_vary_count(test: str) -> None:
    def accepted(**recipe: Any) -> int:
        asked = study(
            recipe=Recipe(tasks=6, **recipe),
            utilisations=(0.2,),
            test=test,
            simulated_ns=500 * MS,
        )
        return run_study(asked)["r2dglp-wc", 0.2].accepted

    plain = accepted()
    assert accepted(jitter=0.99) < plain
    assert accepted(noise=0.3) <= plain <= accepted(sporadic=1.0) + (test == "simulation")


def test_processes_and_configurations_judge_the_same_task_sets() -> None:
    assert task_set(study(), 0.05, 3) == task_set(study(sets=7), 0.05, 3)
    assert task_set(study(), 0.05, 3) != task_set(study(seed=1), 0.05, 3)
    assert run_study(study()) == run_study(study(), workers=2)


def test_a_stopped_study_counts_what_was_judged() -> None:
    ratios = run_study(study(), progress=lambda done, total: done < 10)
    assert sum(ratios["priority", u].sets for u in (0.05, 0.8)) == 10


def test_the_interval_is_wilsons() -> None:
    assert Ratio(0, 20).interval == pytest.approx((0, 0.161), abs=0.001)
    assert Ratio(10, 20).interval == pytest.approx((0.299, 0.701), abs=0.001)
    assert Ratio(0, 0).interval == (0, 1)


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "ratios.png"
    result = headway(
        "study", "acceptance", "--sets", "4", "--utilisation", "0.05:0.1:0.05", "--tasks", "5",
        "--allocators", "kfmlp", "--rho", "1,2", "--json", "--plot", picture, "--jobs", "1",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert list(found["configurations"]) == ["rho 1", "rho 2"]
    assert [row["sets"] for row in found["configurations"]["rho 1"]] == [4, 4]
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--utilisation", "1"],
            "--utilisation: found '1', expected FROM:TO:STEP such as 0.1:1.0:0.1",
        ),
        (
            ["--utilisation", "0.5:9:0.5"],
            "--utilisation: found 9 on 4 CPUs, expected at most 1.5, which 12 tasks of --most 0.5 "
            "can have",
        ),
        (["--jitter", "nan"], "--jitter: found nan, expected a number"),
        (["--units", "lifo"], "--units: found 'lifo', expected some of fifo, priority"),
        (["--cpus", "4/3"], "--cpus: found 3, expected a divisor of 4, the number of cpus"),
        (["--gpus", "x"], "--gpus: found 'x', expected a number such as 12 or 12/6"),
        (["--periods", "5"], "--periods: found '5', expected FROM:TO such as 10ms:100ms"),
    ],
)
def test_wrong_options_are_one_line(options: list[str], line: str) -> None:
    result = headway("study", "acceptance", *options)
    assert result.returncode == 2
    assert result.stderr == line + "\n"


# -- from Python -----------------------------------------------------------------------------


def test_a_scenario_is_run_from_python() -> None:
    tables = {
        "task": [{"name": "a", "periodic": {"period": "10ms", "cost": "2ms", "count": 3}}],
        "run": {"duration": "50ms"},
    }
    result = sim.run(tables)
    jobs = result.tasks["a"].jobs
    assert [(job.release_ns, job.deadline_ns, job.finish_ns) for job in jobs] == [
        (0, 10 * MS, 2 * MS),
        (10 * MS, 20 * MS, 12 * MS),
        (20 * MS, 30 * MS, 22 * MS),
    ]
    assert result.tasks["a"].worst_response_ns == 2 * MS
    assert result.missed == 0


def test_a_machine_with_tokens_is_run_by_the_same_function() -> None:
    result = sim.run(ROOT / "examples" / "tokens.toml", seed=3)
    assert len(result.tasks["steer"].jobs) == 500
    assert result.tasks["front"].jobs[1].release_ns == 33 * MS
    assert result.missed == 0
    assert result.end_ns == 5_000 * MS
    late = sim.run({"gpusync": {}, "run": {"duration": "10ms"},
                            "task": [{"name": "a", "period": "2ms", "cpu": "3ms"}]})  # fmt: skip
    assert late.missed == 3
    assert late.tasks["a"].jobs[0].missed


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "studies.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code.replace('"examples/', f'"{ROOT}/examples/'), {})
    assert capsys.readouterr().out.splitlines()[1].startswith("33000000 66000000 ")


def test_mistakes_are_raised_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="scenario: found no task"):
        sim.run({"run": {}})
    with pytest.raises(BadInput, match=r"missing\.toml: found No such file"):
        sim.run(tmp_path / "missing.toml")
