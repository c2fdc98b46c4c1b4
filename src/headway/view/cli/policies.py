"""`headway policies`"""

from __future__ import annotations

from collections.abc import Mapping

import click

from headway.engine.cost_models import cost_models
from headway.engine.policies import policies
from headway.engine.priorities import rules
from headway.sim.programs import programs
from headway.view.files import load_policy_file


@click.command(name="policies")
@click.option(
    "--load", "loads", multiple=True, metavar="FILE.py", help="Load a policy from a file."
)
def command(loads: tuple[str, ...]) -> None:
    """List policies, priority rules, cost models and programs."""
    for path in loads:
        load_policy_file(path)
    sections: dict[str, Mapping[str, type]] = {
        "Policies (policy = NAME)": policies(),
        "Priority rules (priority = NAME)": rules(),
        "Cost models (predict = NAME)": cost_models(),
        "Programs of simulated tasks (NAME = { ... })": programs(),
    }
    for title, classes in sections.items():
        click.echo(title)
        for name, cls in sorted(classes.items()):
            click.echo(
                f"  {name:<10} {' '.join((cls.__doc__ or '').split(chr(10) * 2)[0].split())}"
            )
