"""CudaMon's figures by command: every claim of the report is stated, and what happens is the
report's, with the numbers that it gives."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from headway.engine.controllers.bisection import FIRST, SOON
from headway.sim.cudamon import FigureResult, Runs, figures
from headway.sim.cudamon.controlling import DIRECT, REPORT
from headway.sim.cudamon.runs import run
from headway.sim.cudamon.workloads import HIGH, LOW, controlled
from headway.sim.papers import to_toml
from headway.sim.scenario import parse_scenario
from tests.integration.command import headway

pytestmark = pytest.mark.xdist_group("cudamon")

FIGURES = figures()


@pytest.fixture(scope="module")
def results() -> dict[str, FigureResult]:
    """Every figure, with controllers' runs of a third."""
    runs = Runs(part=0.34)
    return {name: runs.run(figure) for name, figure in FIGURES.items()}


def test_every_figure_and_both_manual_partitions_are_there() -> None:
    report = [f"cudamon/fig{number}" for number in (4, 5, 6, 7)]
    assert {*report, "cudamon/manual", "cudamon/controllers"} == set(FIGURES)
    listed = headway("papers", "list").stdout
    assert all(re.search(rf"^{name} ", listed, re.MULTILINE) for name in FIGURES)


def test_what_the_report_says_holds_also_in_short_runs(results: dict[str, FigureResult]) -> None:
    for name, result in results.items():
        for claim in result.claims:
            assert claim.paper
            assert claim.ours
            assert claim.holds, (name, claim)


def test_rows_and_pictures_fit_their_headers(results: dict[str, FigureResult]) -> None:
    for result in results.values():
        figure = result.figure
        assert {len(row) for row in figure.rows(result.results)} == {len(figure.header)}
        for curve in (plot := figure.plot(result.results)).curves:
            assert len(curve.y) == len(curve.x or plot.groups or ())


def test_figures_share_their_simulations(results: dict[str, FigureResult]) -> None:
    assert results["cudamon/fig6"].results[REPORT] is results["cudamon/fig7"].results[REPORT]


@pytest.mark.parametrize("name", FIGURES)
def test_every_variant_is_a_scenario_file(name: str) -> None:
    for scenario in FIGURES[name].variants().values():
        parse_scenario(to_toml(scenario))


def test_the_share_obeys_the_reports_rule_at_each_job(results: dict[str, FigureResult]) -> None:
    """Halved at a miss, one per cent more at a job in time, one change at a time (§3.4)."""
    for name in (REPORT, DIRECT):
        shares = [share for _, share in results["cudamon/fig7"].results[name].tasks[LOW].shares]
        assert shares[0] == 100
        for before, after in pairwise(shares):
            assert after in (pytest.approx(before / 2, abs=0.1), pytest.approx(before + 1))


def test_misses_end_at_a_share_below_what_the_kernel_leaves_free_which_is_found_later() -> None:
    """56 of 80 multiprocessors are the important kernel's: 24 are 30 %."""
    jobs = run(controlled("bisection", "12s"), "long").tasks
    shares = [share for _, share in jobs[LOW].shares]
    assert shares[:3] == [100, 50, 25]
    assert int(80 * shares[-1] / 100) == 24
    misses = [number for number, missed in enumerate(jobs[HIGH].missed) if missed]
    assert len([number for number in misses if number < FIRST]) <= SOON
    assert len(misses) <= 5 * SOON
    assert not any(jobs[HIGH].missed[-50:])


def test_restarts_cost_the_restarted_program_most_of_its_work(
    results: dict[str, FigureResult],
) -> None:
    runs = results["cudamon/controllers"].results
    assert runs[REPORT].rate(LOW) < 0.1 * runs[DIRECT].rate(LOW)
    assert runs["aimd, few restarts"].rate(LOW) > 0.8 * runs[DIRECT].rate(LOW)


def test_a_figure_is_printed_with_its_claims_and_score() -> None:
    shown = headway("papers", "run", "cudamon/fig4").stdout
    assert "holds: no increase in response time until 128 threads" in shown
