"""`headway analyse`"""

from __future__ import annotations

import click

from headway.view.cli.sim import read_overrides
from headway.view.files import read_text

NOT_SCHEDULABLE = 1


@click.command(name="analyse")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key, e.g. task.video.priority=5.",
)
@click.option(
    "--omlp", is_flag=True, help="Show waits under the k-exclusion OMLP beside those for tokens."
)
@click.option("--strict", is_flag=True, help="Exit with 1 unless every deadline is met.")
def command(file: str, as_json: bool, changes: tuple[str, ...], omlp: bool, strict: bool) -> int:
    """Bound response times by proof: how long each task takes at most, and what dominates that."""
    from headway.engine.analysis.verdicts import HARD, overall
    from headway.sim.analysing import analyse_machine, analyse_scenario, omlp_waits
    from headway.sim.gpusync.scenario import is_gpusync, parse_gpusync
    from headway.sim.scenario import parse_scenario
    from headway.view.errors import UserError
    from headway.view.verdicts import as_dict, print_analysis

    text = read_text(file)
    overrides = read_overrides(changes)
    waits = None
    if is_gpusync(text):
        plan = parse_gpusync(text, file, overrides=overrides)
        analysis = analyse_machine(plan)
        waits = omlp_waits(plan, analysis) if omlp else None
    elif omlp:
        raise UserError(f"{file}: --omlp: found no [gpusync], expected a scenario with tokens")
    else:
        analysis = analyse_scenario(parse_scenario(text, file, overrides=overrides))
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(as_dict(file, analysis, waits)))
    else:
        print_analysis(file, analysis, waits)
    return NOT_SCHEDULABLE if strict and overall(analysis.verdicts) != HARD else 0
