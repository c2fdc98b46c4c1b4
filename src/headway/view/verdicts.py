"""What an analysis says, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from headway.engine.analysis.verdicts import Verdict, overall
from headway.sim.analysing import Analysis
from headway.view.results import milliseconds
from headway.view.tables import new_console, new_table

SCHEMA = 1


def as_dict(file: str, analysis: Analysis, omlp: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Everything, for JSON."""
    tasks = {}
    for verdict in analysis.verdicts:
        tasks[verdict.task] = {
            "bound_ns": verdict.bound_ns,
            "deadline_ns": verdict.deadline_ns,
            "slack_ns": verdict.slack_ns,
            "schedulable": verdict.schedulable,
            "dominates": verdict.dominates,
            "parts_ns": dict(verdict.parts),
            "why": verdict.why,
        }
        if omlp is not None:
            tasks[verdict.task]["omlp_ns"] = omlp.get(verdict.task)
    return {
        "schema": SCHEMA,
        "file": file,
        "schedulable": overall(analysis.verdicts),
        "tasks": tasks,
        "remarks": analysis.remarks,
    }


def print_analysis(file: str, analysis: Analysis, omlp: Mapping[str, int] | None = None) -> None:
    """The table, and why tasks without a bound have none."""
    console = new_console()
    table = new_table(f"{file} (ms)")
    table.add_column("task")
    for column in ("bound", "deadline", "slack"):
        table.add_column(column, justify="right")
    table.add_column("dominates")
    table.add_column("schedulable")
    for verdict in analysis.verdicts:
        table.add_row(
            verdict.task,
            _shown(verdict.bound_ns),
            milliseconds(verdict.deadline_ns),
            _shown(verdict.slack_ns),
            verdict.dominates,
            verdict.schedulable,
        )
    console.print(table)
    console.print(_parts(analysis, omlp))
    for verdict in analysis.verdicts:
        if verdict.bound_ns is None:
            console.print(f"{verdict.task}: no bound: {verdict.why}")
    for remark in analysis.remarks:
        console.print(remark)
    said = {
        "yes": "every job meets its deadline",
        "bounded": "jobs may be late, by a bounded time",
        "no": "not schedulable, as far as this analysis can tell",
    }
    console.print(said[overall(analysis.verdicts)])


def _parts(analysis: Analysis, omlp: Mapping[str, int] | None) -> Table:
    """What the bounds consist of."""
    found = [name for verdict in analysis.verdicts for name, ns in verdict.parts.items() if ns]
    columns = list(dict.fromkeys(found))
    table = new_table("what the bounds consist of (ms)")
    table.add_column("task")
    for column in (*columns, *(["OMLP"] if omlp is not None else [])):
        table.add_column(column, justify="right")
    for verdict in analysis.verdicts:
        cells = [_part(verdict, column) for column in columns]
        if omlp is not None:
            cells.append(_shown(omlp.get(verdict.task)))
        table.add_row(verdict.task, *cells)
    return table


def _shown(length_ns: int | None) -> str:
    if length_ns is None:
        return "-"
    return f"-{milliseconds(-length_ns)}" if length_ns < 0 else milliseconds(length_ns)


def _part(verdict: Verdict, name: str) -> str:
    length_ns = verdict.parts.get(name, 0)
    return milliseconds(length_ns) if length_ns else "."
