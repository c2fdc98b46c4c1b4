"""`headway explain`"""

from __future__ import annotations

import json
from pathlib import Path

import click

from headway.view import completing
from headway.view.errors import UserError


@click.command(name="explain")
@click.argument("task", shell_complete=completing.tasks)
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
def command(task: str, as_json: bool) -> None:
    """Say why a program waits, and what it waited for in the last seconds.

    TASK is a name or a pid, as headway ps shows them.
    """
    from headway.live.api import client
    from headway.live.wire import paths
    from headway.view.explaining import sentences

    try:
        tasks = client.ask(paths.runtime_folder(), {"do": "explain", "task": task})["tasks"]
    except client.NoDaemon as error:
        raise UserError(f"headway: {error}; headway daemon starts one", code=1) from None
    except client.Refused as error:
        raise UserError(f"headway explain: {error}{_unmanaged(task)}") from None
    if as_json:
        click.echo(json.dumps(tasks))
        return
    for facts in tasks:
        click.echo("\n".join(sentences(facts)))


def _unmanaged(task: str) -> str:
    """A process that exists but is not ours."""
    if not task.isdigit() or not Path("/proc", task).exists():
        return ""
    return f"; process {task} runs unmanaged, and headway run starts programs that are managed"
