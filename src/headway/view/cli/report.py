"""`headway report`"""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headway.view.errors import UserError
from headway.view.histories import Part, from_to, load

if TYPE_CHECKING:
    from headway.view.traces.others import Track


@click.command(name="report")
@click.argument("traces", metavar="TRACE [TRACE]", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="F.html",
    help="The page to write; by default TRACE.html in this folder.",
)
@click.option("--open", "opens", is_flag=True, help="Show it in the browser.")
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="FILE",
    help="Add CUDA, CPU and thread tracks that another tool recorded, in Perfetto's format or "
    "Chrome's JSON (PyTorch, VizTracer); may be repeated.",
)
@from_to
def command(
    traces: tuple[str, ...],
    output: str | None,
    opens: bool,
    others: tuple[str, ...],
    from_text: str | None,
    to_text: str | None,
) -> None:
    """Show a trace as one page for the browser: who ran, who waited and for what.

    Two traces are shown side by side, below a table of what is different. With --with, what the
    program and its CUDA streams did stands below the tasks.
    """
    if len(traces) > 2:
        raise UserError(f"headway report: found {len(traces)} traces, expected one or two")
    if others and len(traces) > 1:
        raise UserError("headway report --with: found two traces, expected one")
    output = output or f"{'-'.join(Path(trace).stem for trace in traces)}.html"
    for trace in (*traces, *others):
        if Path(output).exists() and Path(trace).exists() and Path(output).samefile(trace):
            raise UserError(f"-o {output}: found the trace itself, expected another file")
    parts = [load(trace, from_text, to_text) for trace in traces]
    if len(parts) == 1:
        _write_one(output, traces[0], parts[0], others)
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


def _write_one(output: str, trace: str, part: Part, others: tuple[str, ...]) -> None:
    from headway.view.report import write_report

    title, facts = _named(trace, part)
    write_report(
        output,
        part.history,
        title=title,
        facts=facts,
        from_ns=part.from_ns,
        to_ns=part.to_ns,
        others=_tracks(others, trace, part),
    )


def _tracks(files: tuple[str, ...], trace: str, part: Part) -> list[Track]:
    """Of other tools, by the clock of the run."""
    if not files:
        return []
    from headway.view.traces import clocks, others

    wall_ns = clocks.wall_ns(trace)
    history = part.history
    return [
        track
        for file in files
        for track in others.aligned(
            others.read(file), file, history.begin_ns, history.end_ns, wall_ns
        )
    ]
