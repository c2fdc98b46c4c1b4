"""`headway set`"""

from __future__ import annotations

import click

from headway.view import completing
from headway.view.errors import UserError


@click.command(name="set")
@click.argument("task", shell_complete=completing.tasks)
@click.option(
    "--policy",
    shell_complete=completing.policies,
    help="prt, ht, ...; headway policies lists them.",
)
@click.option("--priority", help="A number, larger is more important, or * or rm or edf.")
@click.option("--reserve", metavar="C/T[:pe|ae]", help="A budget, such as 5ms/20ms.")
@click.option("--shared", metavar="POOL", help="Share the reserve with others of this pool.")
def command(
    task: str,
    policy: str | None,
    priority: str | None,
    reserve: str | None,
    shared: str | None,
) -> None:
    """Change a program while it runs. TASK is a name or a pid, as headway ps shows them."""
    from headway.view.daemons import ask

    if not (policy or priority or reserve):
        raise UserError("headway set: expected --policy, --priority or --reserve, found none")
    request = {"do": "set", "task": task, "policy": policy, "priority": priority}
    answer = ask("set", {**request, "reserve": reserve, "shared": shared})
    click.echo(f"changed: {', '.join(answer['tasks'])}")
