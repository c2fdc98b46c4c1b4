"""`headway replay`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headway.view import completing
from headway.view.errors import INTERRUPTED, UserError

if TYPE_CHECKING:
    from headway.engine.events import Event
    from headway.sim.scenario import Override
    from headway.trace.replay import Plan
    from headway.trace.tally import Tally, TaskTally

RECORDED, SAME = "recorded", "simulated"


@click.command(name="replay")
@click.argument("trace")
@click.option(
    "--policy",
    "names",
    shell_complete=completing.policies,
    multiple=True,
    help="Another policy for all tasks; may be repeated.",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key under these policies.",
)
@click.option(
    "--paced",
    multiple=True,
    metavar="TASK",
    help="A task that is paced by a clock; may be repeated.",
)
@click.option("--write", metavar="F.toml", help="Save the scenario, for headway sim and compare.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object.")
def command(
    trace: str,
    names: tuple[str, ...],
    changes: tuple[str, ...],
    paced: tuple[str, ...],
    write: str | None,
    as_json: bool,
) -> int:
    """What would another policy have done? Simulates a recorded run, live or not.

    The table has the run as it was recorded, as it is simulated under the policies it had, which
    shows how far the simulation can be trusted, and as it is under each other policy.
    """
    from headway.engine.policies import policies
    from headway.trace.replay import plan
    from headway.trace.tally import Tally
    from headway.view.cli.sim import read_overrides
    from headway.view.traces.reader import read_events

    overrides = read_overrides(changes)
    for name in names:
        if name not in policies():
            known = ", ".join(sorted(policies()))
            raise UserError(f"--policy: found {name!r}, expected one of {known}")
    recorded = Tally()

    def tallied() -> Iterator[Event]:
        for event in read_events(trace):
            recorded.feed(event)
            yield event

    made = plan(tallied(), paced)
    if not made.data["task"]:
        raise UserError(f"{trace}: found no task with a group, expected a run with some")
    if write is not None:
        _save(write, trace, made)
    runs: dict[str, list[Override]] = {SAME: []} | {
        name: [("task.*.policy", name), *overrides] for name in names
    }
    if not names:
        if overrides:
            runs["changed"] = overrides
        else:
            other = _other(made)
            runs[other] = [("task.*.policy", other)]
    columns = {RECORDED: {made.names[n]: t for n, t in recorded.tasks.items() if n in made.names}}
    code = 0
    for name, run_overrides in runs.items():
        tally, complete = _simulate(trace, made, name, run_overrides)
        columns[name] = tally.tasks
        code = code if complete else INTERRUPTED
    if as_json:
        click.echo(msgspec.json.encode(_as_dict(trace, made, columns)))
    else:
        _print(trace, made, columns)
    return code


def _other(made: Plan) -> str:
    """Prt, unless that is what it was."""
    return "ht" if all(task["policy"] == "prt" for task in made.data["task"]) else "prt"


def _simulate(trace: str, made: Plan, name: str, overrides: list[Any]) -> tuple[Tally, bool]:
    from copy import deepcopy

    from headway.engine.events import Recorder
    from headway.engine.reading import BadInput, Problem
    from headway.sim.outcome import simulate
    from headway.sim.scenario import override, read_scenario
    from headway.trace.tally import Tally
    from headway.view.running import watch

    data = {key: value for key, value in made.data.items() if key != "task"}
    data = deepcopy(data) | {"task": [dict(task) for task in made.data["task"]]}
    for path, value in overrides:
        try:
            override(data, path, value)
        except ValueError as error:
            problem = Problem(None, "--set", str(error), "a key of the scenario (--write shows it)")
            raise BadInput(trace, [problem]) from None
    scenario = read_scenario(data, trace)
    tally = Tally()
    with watch(name, scenario.duration_ns) as watcher:
        outcome = simulate(scenario, observers=[Recorder(tally.feed)], progress=watcher)
    return tally, outcome.complete


def _save(path: str, trace: str, made: Plan) -> None:
    from headway.trace.replay.text import scenario_text
    from headway.view.files import whole_or_nothing

    with whole_or_nothing(path) as partial:
        partial.write_text(scenario_text(made.data, f"made from {trace} by headway replay"))


Measure = Callable[["TaskTally", int], float]
MEASURES: dict[str, Measure] = {
    "frames per second": lambda task, alive_ns: task.frames * 1e9 / alive_ns,
    "groups per second": lambda task, alive_ns: task.groups * 1e9 / alive_ns,
    "share of the GPU, %": lambda task, alive_ns: 100 * task.gpu_ns / alive_ns,
    "p50 wait of a group, ms": lambda task, _: task.waits.at(0.50)[0] / 1e6,
    "p99 wait of a group, ms": lambda task, _: task.waits.at(0.99)[0] / 1e6,
}
"""Rates are over the time for which the task was there in the recording."""

Columns = dict[str, dict[str, "TaskTally"]]


def _number(value: float) -> str:
    """Three digits are enough, and whole numbers beyond."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _as_dict(trace: str, made: Plan, columns: Columns) -> dict[str, Any]:
    return {
        "schema": 1,
        "file": trace,
        "notes": made.notes,
        "runs": {
            name: {
                task: {title: measure(tally, alive_ns) for title, measure in MEASURES.items()}
                for task, alive_ns in made.alive_ns.items()
                if (tally := tasks.get(task)) is not None and alive_ns
            }
            for name, tasks in columns.items()
        },
    }


def _print(trace: str, made: Plan, columns: Columns) -> None:
    from headway.view.tables import Row, new_console, side_by_side

    console = new_console()
    rows: list[Row] = []
    results = _as_dict(trace, made, columns)["runs"]
    for title in MEASURES:
        rows.append((title, []))
        for task in made.alive_ns:
            values = [results[name].get(task, {}).get(title, 0.0) for name in columns]
            if any(values) or title.startswith("share"):
                rows.append((f"  {task}", [*map(_number, values)]))
    console.print(side_by_side(console, trace, list(columns), rows))
    for note in made.notes:
        console.print(note, highlight=False)
