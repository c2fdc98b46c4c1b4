"""`headway ps`"""

from __future__ import annotations

import click

from headway.view.cli.status import fetch, print_tasks


@click.command(name="ps")
def command() -> None:
    """List the programs that the daemon serves."""
    print_tasks(fetch())
