"""Every figure by its name, and how one is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from headway.sim.papers import games, inversion, overheads, schedules, widgets, windows
from headway.sim.papers.claims import Claim
from headway.sim.papers.figure import Figure
from headway.sim.papers.results import Results, Run, Scenario, VariantResult, run_once
from headway.sim.papers.varying import vary

Progress = Callable[[int, int, str], None]
"""Called with the runs done, the runs in all, and the variant that begins."""
SEEDS = (1, 2)


@dataclass(frozen=True, slots=True)
class FigureResult:
    """A figure that was run."""

    figure: Figure
    variants: Results
    claims: list[Claim]
    seeds: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return all(claim.holds for claim in self.claims)


def _place(figure: Figure) -> tuple[bool, int, str]:
    """TimeGraph first, each paper's figures by number, what has none last."""
    paper, _, name = figure.id.partition("/")
    number = re.search(r"\d+", name)
    return paper != "timegraph", int(number[0]) if number else 1000, name


def figures() -> dict[str, Figure]:
    """Every figure by its id, in the order of the papers."""
    modules = (schedules, games, widgets, overheads, inversion, windows)
    known = [figure for module in modules for figure in module.FIGURES]
    return {figure.id: figure for figure in sorted(known, key=_place)}


def run_figure(
    figure: Figure,
    seeds: Sequence[int] = SEEDS,
    progress: Progress | None = None,
    *,
    varied: tuple[float, int] | None = None,
    pool: Executor | None = None,
) -> FigureResult:
    """Simulate every variant with every seed, in a pool if there is one, and judge the claims;
    `varied` moves what was chosen by up to a fraction, by a seed."""
    if not seeds:
        raise ValueError("found no seeds, expected at least one")
    scenarios = figure.variants()
    if varied is not None:
        paper = figure.id.partition("/")[0]
        scenarios = {name: vary(s, paper, *varied) for name, s in scenarios.items()}
    total = len(scenarios) * len(seeds)
    begun = {} if pool is None else _begin(pool, figure, scenarios, seeds)
    results: dict[str, VariantResult] = {}
    for name, scenario in scenarios.items():
        runs: list[Run] = []
        for seed in seeds:
            if progress is not None:
                progress(len(results) * len(seeds) + len(runs), total, name)
            runs.append(
                begun[name, seed].result()
                if begun
                else run_once(scenario, f"{figure.id} {name}", seed)
            )
        results[name] = VariantResult(name, runs)
    return FigureResult(figure, results, figure.claims(results), tuple(seeds))


def _begin(
    pool: Executor, figure: Figure, scenarios: Mapping[str, Scenario], seeds: Sequence[int]
) -> dict[tuple[str, int], Future[Run]]:
    """All runs of a figure, under way."""
    return {
        (name, seed): pool.submit(run_once, scenario, f"{figure.id} {name}", seed)
        for name, scenario in scenarios.items()
        for seed in seeds
    }
