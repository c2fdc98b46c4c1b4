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
    help="A scheduling policy, such as prt or ht; headway policies lists them.",
)
@click.option(
    "--priority",
    help="A number (larger is more important), * for the foreground window, rm or edf.",
)
@click.option(
    "--reserve",
    metavar="C/T[:pe|ae]",
    help="A budget of C of GPU time in every T, such as 5ms/20ms.",
)
@click.option("--shared", metavar="POOL", help="Share the reserve with all programs of this pool.")
@click.option(
    "--period", metavar="T", help="How often its jobs come, such as 33ms; rm orders by this."
)
@click.option(
    "--deadline",
    metavar="D",
    help="How long a job may take; by default the period; edf orders by this.",
)
@click.option(
    "--slowdown",
    metavar="P%",
    help="Without a deadline: how much longer than alone a job may take.",
)
@click.option(
    "--share",
    metavar="P%[..P%]",
    help="The part of the multiprocessors that it may get beside others, such as 25%..100%.",
)
def command(
    task: str,
    policy: str | None,
    priority: str | None,
    reserve: str | None,
    shared: str | None,
    **goals: str | None,
) -> None:
    """Change the priority or budget of a running program, at once.

    TASK is a name or a pid, as headway ps shows them.
    """
    from headway.view.daemons import ask

    if not (policy or priority or reserve or any(goals.values())):
        changes = "--policy, --priority, --reserve, --period, --deadline, --slowdown or --share"
        raise UserError(f"headway set: expected {changes}, found none")
    request = {"do": "set", "task": task, "policy": policy, "priority": priority}
    answer = ask("set", {**request, "reserve": reserve, "shared": shared, **goals})
    click.echo(f"changed: {', '.join(answer['tasks'])}")
