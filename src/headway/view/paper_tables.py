"""Figures with tables of their own, GPUSync's and CudaMon's, as text, JSON and pictures."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click
import msgspec

from headway.sim.papers.figure import TableFigure, TableResult
from headway.view.results import print_claims
from headway.view.tables import new_console, new_table


def tell(figure: str, variant: str) -> None:
    """Say what is simulated now, on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"{figure}: {variant} ...", err=True)


def show_results(results: Iterable[TableResult[Any]], *, as_json: bool, plot: str | None) -> int:
    """Show figures as they come; how many claims do not hold."""
    failed = 0
    for result in results:
        figure = result.figure
        failed += sum(not claim.holds for claim in result.claims)
        if as_json:
            click.echo(msgspec.json.encode(_as_dict(result)))
        else:
            _print(result)
        if plot is not None:
            from headway.view.plots import plot_figure

            plot_figure(plot, f"{figure.id}: {figure.title}", figure.plot(result.results))
    return failed


def _as_dict(result: TableResult[Any]) -> dict[str, object]:
    figure: TableFigure[Any] = result.figure
    return {
        "figure": figure.id,
        "title": figure.title,
        "shows": figure.shows,
        "claims": [asdict(claim) for claim in result.claims],
        "header": list(figure.header),
        "rows": [list(row) for row in figure.rows(result.results)],
        "plot": asdict(figure.plot(result.results)),
    }


def _print(result: TableResult[Any]) -> None:
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
