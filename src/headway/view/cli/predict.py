"""`headway predict`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.errors import UserError

if TYPE_CHECKING:
    from headway.engine.cost_models import CostModel


@click.group(name="predict", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Say how well costs of groups are predicted."""
    print_help_if_bare(context)


@command.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--model",
    "names",
    multiple=True,
    metavar="MODEL",
    help="Only this cost model; may be repeated.",
)
@click.option("--task", "wanted", metavar="NAME", help="Only tasks whose names begin with this.")
@click.option("--plot", metavar="F.png", help="Draw the distribution of errors.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as JSON, one line per verdict."
)
@click.option(
    "--load", "loads", multiple=True, metavar="FILE.py", help="Load a cost model from a file."
)
def compare(
    traces: tuple[str, ...],
    names: tuple[str, ...],
    wanted: str | None,
    plot: str | None,
    as_json: bool,
    loads: tuple[str, ...],
) -> None:
    """Judge cost models on recorded runs, each group by what was known before it.

    Programs that ran with `headway run --predict` are recorded with their groups' features. The
    first fifth of a task's groups teaches and is not judged; errors are predicted less measured,
    over measured, so above zero is pessimistic.
    """
    import msgspec

    from headway.trace.predictions import FEWEST, groups_of, judge
    from headway.view.files import load_policy_file
    from headway.view.predictions import HEADER, as_dict, draw, rows
    from headway.view.tables import new_console, new_table
    from headway.view.traces import read_events

    if plot is not None:
        from headway.view.plots import check_format

        check_format(plot)
    for path in loads:
        load_policy_file(path)
    models = _models(names)
    verdicts = []
    bare = []
    for trace in traces:
        groups = groups_of(read_events(trace))
        chosen = {t: g for t, g in groups.items() if wanted is None or t.startswith(wanted)}
        found = judge(chosen, models)
        if not found:
            raise UserError(
                f"{trace}: found no task with {FEWEST} groups that were asked for and done,"
                " expected one that ran with a reserve; run headway run --predict adaptive"
                " --reserve 95ms/100ms:ae"
            )
        if not any(verdict.model in models for verdict in found):
            bare.append(trace)
        verdicts += found
    if as_json:
        for verdict in verdicts:
            click.echo(msgspec.json.encode(as_dict(verdict)))
    else:
        table = new_table("")
        for place, column in enumerate(HEADER):
            table.add_column(column, justify="left" if place < 2 else "right")
        for row in rows(verdicts):
            table.add_row(*row)
        console = new_console()
        console.print(table)
        for trace in bare:
            why = "its groups have no features: only what was recorded"
            console.print(f"{trace}: {why}", soft_wrap=True)
    if plot is not None:
        draw(plot, verdicts)


def _models(names: tuple[str, ...]) -> dict[str, CostModel]:
    """Those of these names, or all but the one that knows the truth; with this machine's
    calibration."""
    from headway.engine.cost_models import cost_models
    from headway.engine.cost_models.exact import Exact
    from headway.live.devices.calibrations import calibrated

    known = {name: cls for name, cls in cost_models().items() if name != Exact.name}
    for name in names:
        if name not in known:
            expected = ", ".join(sorted(known))
            raise UserError(f"predict: --model: found {name!r}, expected one of {expected}")
    special = {model.name: model for model in calibrated()}
    return {n: special.get(n) or cls() for n, cls in known.items() if not names or n in names}
