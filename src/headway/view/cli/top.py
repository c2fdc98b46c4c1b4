"""`headway top`"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import click

from headway.view.errors import UserError

LEAST_NS = 50_000_000
PATIENCE_S = 2.0
"""A daemon that is silent for so long counts as gone; one asks again."""
WIDE = 160
"""Columns of a table that goes into a file or a pipe."""


@click.command(name="top")
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object at every refresh.")
@click.option(
    "--interval", metavar="T", default="1s", show_default=True, help="Time between two refreshes."
)
@click.option(
    "--no-color", "no_colour", is_flag=True, help="Use no colours; $NO_COLOR does the same."
)
@click.option("--ascii", "only_ascii", is_flag=True, help="Draw with ASCII characters only.")
def command(once: bool, as_json: bool, interval: str, no_colour: bool, only_ascii: bool) -> None:
    """Watch who uses the GPU and who waits, and change priorities and reserves.

    The keys are htop's; F1 shows them. Without a terminal, a table is printed at every refresh.
    """
    from headway.engine.units import DurationError, format_ns, parse_duration
    from headway.view.cli.status import fetch

    try:
        interval_ns = parse_duration(interval)
    except DurationError as error:
        raise UserError(f"--interval: found {interval!r}, expected {error}") from None
    if interval_ns < LEAST_NS:
        raise UserError(f"--interval: found {interval!r}, expected {format_ns(LEAST_NS)} or more")
    # One meaning for all the libraries below: set and not empty.
    if no_colour or os.environ.pop("NO_COLOR", ""):
        os.environ["NO_COLOR"] = "1"
    terminal = os.environ.get("TERM", "dumb")
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    only_ascii = only_ascii or terminal in ("dumb", "linux") or encoding != "utf8"
    screen = terminal != "dumb" and sys.stdin.isatty() and sys.stdout.isatty()
    if once or as_json or not screen:  # no daemon: a line
        print_tables(fetch(), interval_ns, once=once, as_json=as_json, only_ascii=only_ascii)
    else:  # no daemon: the screen waits for one
        show_screen(interval_ns, only_ascii=only_ascii)


def print_tables(
    status: dict[str, object], interval_ns: int, *, once: bool, as_json: bool, only_ascii: bool
) -> None:
    """Until interrupted, or until nobody reads it or the daemon is gone."""
    import shutil

    from headway.view.cli.status import fetch
    from headway.view.tables import new_console
    from headway.view.top.plain import as_json as encode
    from headway.view.top.plain import table
    from headway.view.top.rows import Past
    from headway.view.top.text import ASCII, UNICODE

    past = Past()
    while True:
        board = past.read(status)
        if as_json:
            click.echo(encode(board))
        else:
            width = shutil.get_terminal_size((WIDE, 24)).columns
            console = new_console(width=max(width, 1), soft_wrap=True)
            console.print(table(board, width, ASCII if only_ascii else UNICODE))
        if once:
            return
        sys.stdout.flush()
        time.sleep(interval_ns / 1e9)
        status = fetch()


def show_screen(interval_ns: int, *, only_ascii: bool) -> None:
    from headway.live.api import client
    from headway.view.cli.status import complete
    from headway.view.daemons import folder
    from headway.view.top.app import Top
    from headway.view.top.rows import Past
    from headway.view.top.text import ASCII, UNICODE

    place = folder()

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        answer = client.ask(place, request, timeout_s=PATIENCE_S)
        if request["do"] == "status":
            complete(answer["status"])
        return answer

    app = Top(
        ask,
        interval_s=interval_ns / 1e9,
        glyphs=ASCII if only_ascii else UNICODE,
        colour="NO_COLOR" not in os.environ,
        board=Past().read({}),
    )
    app.run()
    if app.return_code:
        raise SystemExit(app.return_code)
