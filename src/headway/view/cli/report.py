"""`headway report`"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from headway.view.histories import from_to, load


@click.command(name="report")
@click.argument("trace", metavar="TRACE")
@click.option("-o", "--output", required=True, metavar="F.html", help="The page to write.")
@from_to
def command(trace: str, output: str, from_text: str | None, to_text: str | None) -> None:
    """Show a trace as one page for the browser: who ran, who waited and for what."""
    from headway.view.errors import UserError
    from headway.view.report import write_report

    if Path(output).exists() and Path(trace).exists() and Path(output).samefile(trace):
        raise UserError(f"-o {output}: found the trace itself, expected another file")
    part = load(trace, from_text, to_text)
    written = datetime.fromtimestamp(Path(trace).stat().st_mtime, UTC)
    facts = {
        "trace": Path(trace).name,
        "written": f"{written:%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(["headway", *sys.argv[1:]]),
        "problem": part.problem,
    }
    write_report(
        output,
        part.history,
        title=Path(trace).name,
        facts=facts,
        from_ns=part.from_ns,
        to_ns=part.to_ns,
    )
    click.echo(f"{output}: {len(part.history.tasks)} tasks, {part.history.events} events")
