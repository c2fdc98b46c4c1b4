"""GPUSync's figures by command: every observation is stated, and short runs judge what they can."""

from __future__ import annotations

import re
import tomllib

import pytest

from headway.sim.gpusync.paper import FigureResult, Runs, figures
from headway.sim.gpusync.paper.workloads import STREAMS, synthetic, vision
from headway.sim.gpusync.scenario import read_gpusync
from headway.sim.papers import to_toml
from tests.integration.command import headway

FIGURES = figures()


@pytest.fixture(scope="module")
def results() -> dict[str, FigureResult]:
    """Every figure, two seconds of each run."""
    runs = Runs(seconds=2)
    return {name: runs.run(figure) for name, figure in FIGURES.items()}


def test_all_thirteen_observations_are_stated(results: dict[str, FigureResult]) -> None:
    texts = [claim.text for result in results.values() for claim in result.claims]
    stated = {int(match[1]) for text in texts if (match := re.match(r"(\d+): ", text))}
    assert stated == set(range(1, 14))


def test_every_claim_has_both_numbers_and_a_reason(results: dict[str, FigureResult]) -> None:
    for result in results.values():
        for claim in result.claims:
            assert claim.paper
            assert claim.ours
            assert claim.reason.startswith("missed: ") is not claim.holds


def test_short_runs_supply_tasks_and_keep_them_at_home(results: dict[str, FigureResult]) -> None:
    held = {c.text[:2]: c.holds for result in results.values() for c in result.claims}
    assert held["1:"]
    assert held["8:"]


def test_rows_and_pictures_fit_their_headers(results: dict[str, FigureResult]) -> None:
    for result in results.values():
        figure = result.figure
        rows = figure.rows(result.results)
        assert rows
        assert {len(row) for row in rows} == {len(figure.header)}
        plot = figure.plot(result.results)
        for curve in plot.curves:
            assert len(curve.y) == len(curve.x or plot.groups or ())


def test_figures_share_their_simulations(results: dict[str, FigureResult]) -> None:
    name = "C-RM, aberrant"
    assert results["gpusync/fig7"].results[name] is results["gpusync/table2"].results[name]


def test_the_task_set_is_the_papers() -> None:
    plan = read_gpusync(synthetic("edf", aberrant=True, budget=False), "synthetic")
    tasks = {entry.task.name: entry for entry in plan.tasks}
    assert len(tasks) == 62
    assert sum(entry.task.work is not None for entry in plan.tasks) == 34
    for cluster in (0, 1):
        members = [entry for entry in plan.tasks if entry.task.cpus == cluster]
        assert len(members) == 31
        assert sum(entry.variation.aberrant_factor == 10 for entry in members) == 8
    t1, t2 = tasks["T1"].task, tasks["T2"].task
    assert t1.work is not None
    assert t2.work is not None
    assert (t1.cpu_ns, t1.work.kernels_ns) == (375_000, (2_531_250,))
    assert (t2.cpu_ns, t2.work.kernels_ns) == (750_000, (5_062_500,))
    assert abs(t1.work.input_bytes - 512 * 1024) <= 1
    assert abs(t2.work.output_bytes - 1024 * 1024) <= 1
    assert t1.work.state_bytes == 2 * (t1.work.input_bytes + t1.work.output_bytes)
    assert tasks["T2"].variation.aberrant_factor == 1


def test_the_streams_are_the_papers() -> None:
    plan = read_gpusync(vision("C-RM, priority", "g=2, system"), "vision")
    assert len(plan.tasks) == sum(count for _, count, _, _ in STREAMS) == 30
    assert {entry.task.devices for entry in plan.tasks} == {0, 1, 2, 3}


def test_a_figure_is_shown_as_a_file_that_the_simulator_reads() -> None:
    text = headway("papers", "show", "gpusync/fig6", "--variant", "C-EDF, aberrant").stdout
    expected = tomllib.loads(to_toml(synthetic("edf", aberrant=True, budget=False)))
    assert tomllib.loads(text) == expected


def test_the_list_names_them() -> None:
    listed = headway("papers", "list").stdout
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in FIGURES)
