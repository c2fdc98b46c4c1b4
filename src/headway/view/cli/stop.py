"""`headway stop`"""

from __future__ import annotations

import click


@click.command(name="stop")
def command() -> None:
    """Stop the daemon; programs go on, unmanaged."""
    from headway.view.daemons import ask

    ask("stop", {"do": "stop"})
