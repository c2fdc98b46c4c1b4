"""`headway papers`"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.cli.spreading import ray_option, spread
from headway.view.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.sim.papers import Figure, FigureResult
    from headway.sim.papers.figure import TableFigure, TableResult

DOES_NOT_HOLD = 1
PAPERS = ("cudamon", "gpusync", "libetp")
"""All figures of these go by the paper's name."""
VARIED = 3
"""How often chosen numbers are moved at random."""


@click.group(name="papers", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Run the papers' experiments and check their claims."""
    print_help_if_bare(context)


@command.command(name="list")
def list_figures() -> None:
    """List the figures."""
    for name, figure in _known().items():
        click.echo(f"{name:<19} {figure.title}")


def _known() -> dict[str, Figure | TableFigure[Any]]:
    """Every figure of every paper by its name."""
    from headway.sim.cudamon import figures as cudamon_figures
    from headway.sim.gpusync.paper import figures as gpusync_figures
    from headway.sim.papers import figures
    from headway.sim.papers.libetp import figures as libetp_figures

    return {**figures(), **gpusync_figures(), **cudamon_figures(), **libetp_figures()}


def _figure(name: str) -> Figure | TableFigure[Any]:
    known = _known()
    plain = re.sub(r"fig0*(\d)", r"fig\1", name)  # fig08 is fig8
    if plain not in known:
        raise UserError(f"papers: found {name!r}, expected one that `headway papers list` shows")
    return known[plain]


@command.command()
@click.argument("figure")
@click.option("--variant", metavar="NAME", help="Only this variant.")
def show(figure: str, variant: str | None) -> None:
    """Print the scenarios behind a figure, as files that headway sim runs."""
    from headway.sim.papers import to_toml

    variants = _figure(figure).variants()
    if not variants:
        raise UserError(
            f"papers: {figure} is measured and has no scenario; run headway papers run {figure}"
            " --live"
        )
    if variant is not None and variant not in variants:
        names = ", ".join(variants)
        raise UserError(f"papers: --variant: found {variant!r}, expected one of {names}")
    for name, scenario in variants.items():
        if variant in (None, name):
            click.echo(f"# {figure}, variant {name}\n{to_toml(scenario)}")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="FIGURE...")
@click.option("--plot", metavar="F.png", help="Draw the figure.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as JSON, one line per figure."
)
@click.option("--seeds", type=click.IntRange(1, 100), help="How many runs to average over.")
@click.option(
    "--vary",
    metavar="10%",
    help="Run again with all numbers that were chosen moved by up to this much.",
)
@click.option(
    "--live", is_flag=True, help="CudaMon's figures under MPS, libETP's: on this machine's GPU."
)
@click.option("--prng", metavar="PROGRAM", help="With --live: the PRNG sample, built elsewhere.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    metavar="S",
    help="With --live: how many seconds each of libETP's programs runs.",
)
@click.option(
    "--software-gpu", is_flag=True, help="With --live: run libETP's programs on llvmpipe."
)
@ray_option
@click.option("--strict", is_flag=True, help="Exit with 1 if a claim does not hold.")
def run(
    names: tuple[str, ...],
    plot: str | None,
    as_json: bool,
    seeds: int | None,
    vary: str | None,
    live: bool,
    prng: str | None,
    seconds: float | None,
    software_gpu: bool,
    ray: str | None,
    strict: bool,
) -> int:
    """Run figures and state each claim: holds, or does not hold and why.

    `all` runs all of TimeGraph and PIX/RIX, `cudamon` those of CudaMon, `gpusync` the ones of
    GPUSync, which take minutes, and `libetp --live` those of libETP, which are measured.
    """
    from headway.sim.papers import SEEDS, Figure, as_dict, figures, plot_data, run_figure
    from headway.view.paper_tables import show_results

    fraction = None if vary is None else _fraction(vary)
    if names == ("all",):
        chosen: list[Figure | TableFigure[Any]] = [*figures().values()]
    else:
        chosen = [
            f for name in names for f in (_paper(name) if name in PAPERS else [_figure(name)])
        ]
    if plot is not None:
        from headway.view.plots import check_format

        check_format(plot)
        if len(chosen) > 1:
            raise UserError("--plot draws one figure: expected one name, found several")
    results, moved = [], [0] * VARIED
    slow = [figure for figure in chosen if not isinstance(figure, Figure)]
    if ray is not None and slow:
        raise UserError(f"--ray: found {slow[0].id}, expected figures of TimeGraph or PIX/RIX")
    of_live = {"--prng": prng, "--seconds": seconds, "--software-gpu": software_gpu or None}
    _check_live(chosen, live=live, given=[name for name, value in of_live.items() if value])
    shown = _run_live(slow, prng, seconds, software_gpu) if live else _run_tables(slow)
    failed = show_results(shown, as_json=as_json, plot=plot)
    with spread(ray) as pool:
        for figure in chosen:
            if not isinstance(figure, Figure):
                continue
            result = run_figure(figure, SEEDS if seeds is None else range(1, seeds + 1), pool=pool)
            failed += sum(not claim.holds for claim in result.claims)
            results.append(result)
            for number in range(VARIED if fraction is not None else 0):
                other = run_figure(figure, SEEDS[:1], varied=(fraction or 0.0, number), pool=pool)
                moved[number] += sum(claim.holds for claim in other.claims)
            if as_json:
                import msgspec

                click.echo(msgspec.json.encode(as_dict(result)))
            else:
                _print(result)
            if plot is not None:
                from headway.view.plots import plot_figure

                plot_figure(plot, f"{figure.id}: {figure.title}", plot_data(result))
    if results and not as_json:
        _print_score(results, vary, moved)
    return DOES_NOT_HOLD if strict and failed else 0


def _fraction(text: str) -> float:
    match = re.fullmatch(r"(\d{1,2}(?:\.\d+)?) ?%", text)
    if match is None or not float(match[1]):
        raise UserError(f"--vary: found {text!r}, expected a percentage from 0.1% to 99%")
    return float(match[1]) / 100


def _print_score(results: list[FigureResult], vary: str | None, moved: list[int]) -> None:
    """How many claims hold, beside how many numbers were chosen."""
    from headway.sim.papers.varying import chosen

    claims = [claim for result in results for claim in result.claims]
    numbers = {
        (result.figure.id.partition("/")[0], *number)
        for result in results
        for number in chosen(result.figure.variants())
    }
    holds = sum(claim.holds for claim in claims)
    numeric = sum(any(c.isdigit() for c in claim.paper) for claim in claims)
    click.echo(
        f"{holds} of {len(claims)} claims hold, {numeric} of them with numbers of the paper;"
        f" {len(numbers)} numbers that the papers do not give were chosen."
    )
    if vary is not None:
        counts = ", ".join(map(str, sorted(moved)))
        click.echo(f"With those moved by up to {vary} at random, {VARIED} times: {counts} hold.")


def _paper(name: str) -> list[Figure | TableFigure[Any]]:
    """All figures of a paper."""
    return [figure for place, figure in _known().items() if place.startswith(f"{name}/")]


def _check_live(chosen: list[Figure | TableFigure[Any]], *, live: bool, given: list[str]) -> None:
    """What can be run live, and what only live."""
    if not live and given:
        raise UserError(f"{given[0]}: expected --live as well, for simulations run no programs")
    papers = [(figure.id, figure.id.partition("/")[0]) for figure in chosen]
    if live and (other := [name for name, paper in papers if paper not in ("cudamon", "libetp")]):
        raise UserError(f"--live: found {other[0]}, expected figures of cudamon or libetp")
    if not live and (measured := [name for name, paper in papers if paper == "libetp"]):
        raise UserError(f"papers: {measured[0]} is measured, not simulated; run it with --live")
    of_one = {"--prng": "cudamon", "--seconds": "libetp", "--software-gpu": "libetp"}
    for option in given:
        wanted = of_one[option]
        if other := [name for name, paper in papers if paper != wanted]:
            raise UserError(f"{option}: found {other[0]}, expected figures of {wanted}")


def _run_live(
    chosen: list[TableFigure[Any]], prng: str | None, seconds: float | None, software_gpu: bool
) -> Iterator[TableResult[Any]]:
    """Run CudaMon's and libETP's figures with real programs."""
    from headway.live.identity.program import ProgramError, find_program
    from headway.view import cudamon_live, libetp_live
    from headway.view.cli.examples import folder
    from headway.view.paper_tables import tell

    try:
        program = None if prng is None else Path(find_program(prng)).absolute()
    except ProgramError as error:
        raise UserError(f"--prng: {error}") from None
    for paper in ("cudamon", "libetp"):
        of_it = [figure for figure in chosen if figure.id.startswith(f"{paper}/")]
        if not of_it:
            continue
        with (
            cudamon_live.opened(program, folder)
            if paper == "cudamon"
            else libetp_live.opened(folder, seconds=seconds, software_gpu=software_gpu)
        ) as runs:
            for figure in of_it:
                yield runs.run(figure, tell)


def _run_tables(chosen: list[TableFigure[Any]]) -> Iterator[TableResult[Any]]:
    """Run figures with tables of their own; what several of a paper share is simulated once."""
    from headway.sim import cudamon
    from headway.sim.gpusync import paper as gpusync
    from headway.view.paper_tables import tell

    runs: dict[str, Any] = {}
    for figure in chosen:
        paper = figure.id.partition("/")[0]
        if paper not in runs:
            workers = os.cpu_count() or 1
            runs[paper] = cudamon.Runs() if paper == "cudamon" else gpusync.Runs(workers=workers)
        yield runs[paper].run(figure, tell)


def _print(result: FigureResult) -> None:
    """What every task did, then the claims: the paper's number beside ours."""
    from headway.sim.papers import NUMBER_HEADER, number_rows
    from headway.view.results import print_claims
    from headway.view.tables import new_console, new_table

    console = new_console()
    figure = result.figure
    console.print(figure.id, style="bold", end="")
    console.print(f"  {figure.title}\n{figure.shows}")
    table = new_table("")
    for place, column in enumerate(NUMBER_HEADER):
        table.add_column(column, justify="left" if place < 2 else "right")
    previous = ""
    for variant, *cells in number_rows(result):
        table.add_row(variant if variant != previous else "", *cells)
        previous = variant
    console.print(table)
    print_claims(console, result.claims)
