"""`headway explain`"""

from __future__ import annotations

import json
from pathlib import Path

import click

from headway.view import completing
from headway.view.errors import BAD_INPUT, UserError


@click.command(name="explain")
@click.argument("task", shell_complete=completing.tasks)
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
def command(task: str, as_json: bool) -> None:
    """Say why a program waits, and what it waited for in the last seconds.

    TASK is a name or a pid, as headway ps shows them.
    """
    from headway.view.daemons import ask, folder
    from headway.view.explaining import sentences
    from headway.view.unmanaged import PASSES, started

    passing = {
        found.pid: found.task
        for found in started(folder())
        if found.has_vulkan and task in (str(found.pid), found.name, found.task)
    }
    try:
        tasks = ask("explain", {"do": "explain", "task": task})["tasks"]
    except UserError as error:
        if not passing or error.code != BAD_INPUT:
            raise UserError(f"{error}{_unmanaged(task)}", code=error.code) from None
        tasks = []
    if as_json:
        click.echo(json.dumps(tasks))
        return
    for facts in tasks:
        click.echo("\n".join(sentences(facts)))
    for name in passing.values():
        click.echo(f"{name}: {PASSES}: no daemon decides when")


def _unmanaged(task: str) -> str:
    """A process that exists but is not ours."""
    if not task.isdigit() or not Path("/proc", task).exists():
        return ""
    return f"; process {task} runs unmanaged, and headway run starts programs that are managed"
