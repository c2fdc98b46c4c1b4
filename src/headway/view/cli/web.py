"""`headway web`"""

from __future__ import annotations

import contextlib
import os
import sys

import click

from headway.view.errors import UserError, say

NICE = 10
"""Whoever is watched goes first."""
LONGEST_NS = 60_000_000_000


@click.command(name="web")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to serve at; by default any free one.",
)
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.option(
    "--last",
    default="10s",
    show_default=True,
    metavar="T",
    help="How much of the past the page shows.",
)
@click.option("--allow-changes", is_flag=True, help="Let the page change priorities and reserves.")
def command(port: int, opens: bool, last: str, allow_changes: bool) -> None:
    """Serve a live page: what headway top shows, and the report of the last seconds.

    Only this machine can ask for the page, by the address that is printed: a part of the address is
    a secret, new at every start. Without --allow-changes the page only shows. Ctrl-C ends it.
    """
    from headway.engine.units import DurationError, format_ns, parse_duration
    from headway.live.api import client
    from headway.view.daemons import folder
    from headway.view.web.serving import site
    from headway.view.web.site import Server

    try:
        window_ns = parse_duration(last)
    except DurationError as error:
        raise UserError(f"--last: found {last!r}, expected {error}") from None
    if not 1_000_000_000 <= window_ns <= LONGEST_NS:
        raise UserError(f"--last: found {last!r}, expected 1s to {format_ns(LONGEST_NS)}")
    place = folder()
    recent, made = site(place, window_ns, changes=allow_changes)
    try:
        server = Server(made, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"--port: {port} cannot be listened at: {why}", code=1) from None
    os.nice(NICE)
    with server:
        click.echo(server.address)
        sys.stdout.flush()
        with contextlib.suppress(OSError):
            if not client.is_running(place):
                say(f"headway web: no daemon answers in {place} yet; the page waits for one")
        recent.start()
        if opens:
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever()
        finally:
            recent.stop()
