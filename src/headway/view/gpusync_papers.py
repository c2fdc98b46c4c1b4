"""GPUSync's figures as tables, claims, JSON and pictures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click
import msgspec

from headway.sim.gpusync.paper import FigureResult, GpuSyncFigure, Runs
from headway.view.results import print_claims
from headway.view.tables import new_console, new_table


def run_gpusync_figures(chosen: Sequence[GpuSyncFigure], *, as_json: bool, plot: str | None) -> int:
    """Run figures and show them; how many claims do not hold."""
    runs = Runs(workers=os.cpu_count() or 1)
    failed = 0
    for figure in chosen:
        result = runs.run(figure, _tell)
        failed += sum(not claim.holds for claim in result.claims)
        if as_json:
            click.echo(msgspec.json.encode(_as_dict(result)))
        else:
            _print(result)
        if plot is not None:
            from headway.view.plots import plot_figure

            title = f"{figure.id}: {figure.title}"
            plot_figure(plot, title, figure.plot(result.results))
    return failed


def _tell(figure: str, variant: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{figure}: {variant} ...", err=True)


def _as_dict(result: FigureResult) -> dict[str, object]:
    figure = result.figure
    return {
        "figure": figure.id,
        "title": figure.title,
        "shows": figure.shows,
        "claims": [asdict(claim) for claim in result.claims],
        "header": list(figure.header),
        "rows": [list(row) for row in figure.rows(result.results)],
        "plot": asdict(figure.plot(result.results)),
    }


def _print(result: FigureResult) -> None:
    console = new_console()
    figure = result.figure
    console.print(figure.id, style="bold", end="")
    console.print(f"  {figure.title}\n{figure.shows}")
    table = new_table("")
    for place, column in enumerate(figure.header):
        table.add_column(column, justify="left" if place < 2 else "right")
    previous = ""
    for first, *cells in figure.rows(result.results):
        table.add_row(first if first != previous else "", *cells)
        previous = first
    console.print(table)
    print_claims(console, result.claims)
