"""`headway stop`"""

from __future__ import annotations

import click

from headway.view.errors import UserError


@click.command(name="stop")
def command() -> None:
    """Stop the daemon; programs go on, unmanaged."""
    from headway.live.api import client
    from headway.live.wire import paths

    try:
        client.ask(paths.runtime_folder(), {"do": "stop"})
    except client.NoDaemon as error:
        raise UserError(f"headway: {error}", code=1) from None
