"""`headway ps`"""

from __future__ import annotations

import json

import click

from headway.view.cli.status import fetch, print_tasks


@click.command(name="ps")
@click.option("--json", "as_json", is_flag=True, help="Print the programs as JSON.")
def command(as_json: bool) -> None:
    """List the programs that the daemon serves, and those it knows nothing of yet."""
    status = fetch()
    if not as_json:
        print_tasks(status)
        return
    kinds = ("channels", "unmanaged", "started", "devices")
    click.echo(json.dumps({"schema": 1, **{kind: status[kind] for kind in kinds}}))
