"""Runs of scenarios with tokens and units: tables, JSON and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from headway.engine.locks.topology import DISTANCES
from headway.engine.units import format_ns
from headway.sim.gpusync.plan import GpuSyncPlan
from headway.sim.gpusync.results import GpuSyncResult, TaskResult
from headway.sim.gpusync.run import run_plan
from headway.sim.gpusync.scenario import is_gpusync, parse_gpusync
from headway.sim.papers.figure import Curve, Plot
from headway.sim.scenario import Override
from headway.view.errors import INTERRUPTED, UserError
from headway.view.files import read_text
from headway.view.running import watch

SCHEMA = 1
MAX_CURVES = 10


def run_gpusync(
    files: Sequence[str],
    unsupported: Mapping[str, object],
    *,
    as_json: bool,
    plot: str | None,
    overrides: Sequence[Override],
    seed: int | None,
) -> int:
    """`headway sim` of files with a `[gpusync]` table."""
    for option, value in unsupported.items():
        if value is not None:
            raise UserError(f"{option}: found with [gpusync], expected --json or --plot")
    plans = []
    for file in files:
        text = read_text(file)
        if not is_gpusync(text):
            raise UserError(f"{file}: found no [gpusync], expected files of one kind")
        plans.append((file, parse_gpusync(text, file, overrides=overrides, seed=seed)))
    for file, plan in plans:
        with watch(Path(file).name, plan.duration_ns) as watcher:
            result = run_plan(plan, workers=0, progress=watcher)
        if as_json:
            click.echo(msgspec.json.encode({"schema": SCHEMA, "file": file, **as_dict(result)}))
        else:
            print_result(file, plan, result)
        if plot is not None:
            from headway.view.plots import plot_figure

            plot_figure(plot, file, response_plot(result))
        if not result.complete:
            return INTERRUPTED
    return 0


def as_dict(result: GpuSyncResult) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "duration_ns": result.duration_ns,
        "complete": result.complete,
        "unschedulable": result.unschedulable,
        "tasks": {name: _task_dict(task) for name, task in result.tasks.items()},
    }


def _task_dict(task: TaskResult) -> dict[str, Any]:
    return {
        "jobs": [{"release_ns": r, "deadline_ns": d, "finish_ns": f} for r, d, f in task.jobs],
        "response_ns": {name: _quantile(task.responses(), q) for name, q in _QUANTILES.items()},
        "missed": task.missed,
        "aborted": task.aborted,
        "overruns": task.overruns,
        "distances": task.distances,
        "worst_token_wait_ns": task.worst_wait_ns,
        "unit_held_ns": task.unit_held_ns[-1] if task.unit_held_ns else 0,
    }


_QUANTILES = {"p50": 0.50, "p99": 0.99, "max": 1.0}


def _quantile(values: list[int], q: float) -> int:
    """The smallest value that at least this fraction is not above."""
    if not values:
        return 0
    return values[min(len(values) - 1, max(0, -int(-q * len(values) // 1) - 1))]


def print_result(file: str, plan: GpuSyncPlan, result: GpuSyncResult) -> None:
    """The table of a run."""
    from headway.view.results import milliseconds
    from headway.view.tables import new_console, new_table

    table = new_table(f"{file} (response times in ms)")
    table.add_column("task")
    for column in ("period", "jobs", "p50", "p99", "max", "% of T", "missed", "moves", "overruns"):
        table.add_column(column, justify="right", no_wrap=True)
    for task in result.tasks.values():
        responses = task.responses()
        moves = "/".join(map(str, task.distances[1:DISTANCES]))
        table.add_row(
            task.name,
            format_ns(task.period_ns),
            str(len(task)),
            *(milliseconds(_quantile(responses, q)) for q in _QUANTILES.values()),
            f"{100 * task.worst_ns / task.period_ns:.0f}",
            str(task.missed) if task.missed else ".",
            moves if any(task.distances) else ".",
            str(task.overruns) if task.overruns else ".",
        )
    console = new_console()
    console.print(table)
    cpus = plan.system.clusters.cpus
    busy = 100 * result.cpu_busy_ns / (result.duration_ns * cpus)
    console.print(
        f"{format_ns(result.duration_ns)} simulated, CPUs busy {busy:.1f} %; "
        "moves: tokens at distance 1/2/3 from home"
    )
    if result.unschedulable:
        console.print(f"response times keep growing: {', '.join(result.unschedulable)}")
    if not result.complete:
        console.print("interrupted: this is what was simulated until then")


def response_plot(result: GpuSyncResult) -> Plot:
    """How many jobs responded within a fraction of their period."""
    curves = []
    for task in list(result.tasks.values())[:MAX_CURVES]:
        responses = task.responses()
        step = max(1, len(responses) // 400)
        chosen = [*range(0, len(responses), step), *([len(responses) - 1] if responses else [])]
        x = [100 * responses[place] / task.period_ns for place in chosen]
        y = [100 * (place + 1) / len(responses) for place in chosen]
        curves.append(Curve(task.name, y, x))
    return Plot("lines", "response time, % of the period", "% of jobs", curves)
