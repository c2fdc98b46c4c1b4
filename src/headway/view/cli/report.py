"""`headway report`"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headway.view.errors import UserError
from headway.view.histories import Part, from_to, load


@click.command(name="report")
@click.argument("traces", metavar="TRACE [TRACE]", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="F.html",
    help="The page to write; by default TRACE.html in this folder.",
)
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@from_to
def command(
    traces: tuple[str, ...],
    output: str | None,
    opens: bool,
    from_text: str | None,
    to_text: str | None,
) -> None:
    """Show a trace as one page for the browser: who ran, who waited and for what.

    Two traces are shown side by side, below a table of what is different.
    """
    if len(traces) > 2:
        raise UserError(f"headway report: found {len(traces)} traces, expected one or two")
    output = output or f"{'-'.join(Path(trace).stem for trace in traces)}.html"
    for trace in traces:
        if Path(output).exists() and Path(trace).exists() and Path(output).samefile(trace):
            raise UserError(f"-o {output}: found the trace itself, expected another file")
    parts = [load(trace, from_text, to_text) for trace in traces]
    if len(parts) == 1:
        _write_one(output, traces[0], parts[0])
    else:
        from headway.view.report.pair import write_pair

        write_pair(output, [(*_named(t, p), p) for t, p in zip(traces, parts, strict=True)])
    if opens:
        import webbrowser

        webbrowser.open(Path(output).resolve().as_uri())
    tasks = sum(len(part.history.tasks) for part in parts)
    events = sum(part.history.events for part in parts)
    click.echo(f"{output}: {tasks} tasks, {events} events")


def _named(trace: str, part: Part) -> tuple[str, dict[str, Any]]:
    """The title of a trace's page, and the facts in its header."""
    written = datetime.fromtimestamp(Path(trace).stat().st_mtime, UTC)
    facts = {
        "trace": Path(trace).name,
        "written": f"{written:%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(["headway", *sys.argv[1:]]),
        "problem": part.problem,
    }
    return Path(trace).name, facts


def _write_one(output: str, trace: str, part: Part) -> None:
    from headway.view.report import write_report

    title, facts = _named(trace, part)
    write_report(
        output, part.history, title=title, facts=facts, from_ns=part.from_ns, to_ns=part.to_ns
    )
