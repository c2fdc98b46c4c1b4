"""`headway compare`"""

from __future__ import annotations

import click
import msgspec
from rich.console import Console

from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import Variant, parse_scenario, parse_variants
from headway.view import completing
from headway.view.cli.sim import read_overrides
from headway.view.errors import INTERRUPTED
from headway.view.files import load_policy_file, read_text
from headway.view.results import as_dict, milliseconds, per_second, share, unit_of
from headway.view.running import watch
from headway.view.tables import Row, new_console, side_by_side

DEFAULT_POLICIES = ("fifo", "prt", "ht")


@click.command(name="compare")
@click.argument("file")
@click.option(
    "--policy",
    "names",
    shell_complete=completing.policies,
    multiple=True,
    help="A policy for all tasks; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object.")
@click.option("--plot", metavar="F.png", help="Draw the comparison.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key in every run, e.g. task.video.priority=5.",
)
@click.option("--seed", type=int, help="Seed of everything random, instead of the file's.")
@click.option(
    "--load", "loads", multiple=True, metavar="FILE.py", help="Load a policy from a file."
)
def command(
    file: str,
    names: tuple[str, ...],
    as_json: bool,
    plot: str | None,
    changes: tuple[str, ...],
    seed: int | None,
    loads: tuple[str, ...],
) -> int:
    """Simulate a scenario several ways, in one table and one picture.

    With --policy, every task gets that policy in turn; without, the variants that the file
    describes are run, or fifo, prt and ht if it describes none.
    """
    for path in loads:
        load_policy_file(path)
    if plot is not None:
        from headway.view.plots import check_format

        check_format(plot)
    text = read_text(file)
    common = read_overrides(changes)
    variants = parse_variants(text, file) if not names else []
    if not variants:
        variants = [Variant(name, (("task.*.policy", name),)) for name in names or DEFAULT_POLICIES]
    runs = {
        variant.name: parse_scenario(text, file, overrides=[*variant.overrides, *common], seed=seed)
        for variant in variants
    }
    outcomes: dict[str, Outcome] = {}
    for name, scenario in runs.items():
        with watch(name, scenario.duration_ns) as watcher:
            outcomes[name] = simulate(scenario, progress=watcher)
        if not outcomes[name].complete:
            break
    if as_json:
        results = {name: as_dict(outcome) for name, outcome in outcomes.items()}
        click.echo(msgspec.json.encode({"schema": 1, "file": file, "variants": results}))
    else:
        print_comparison(new_console(), file, outcomes)
    if plot is not None:
        from headway.view.plots import plot_comparison

        plot_comparison(plot, file, outcomes)
    return 0 if all(outcome.complete for outcome in outcomes.values()) else INTERRUPTED


def print_comparison(console: Console, title: str, outcomes: dict[str, Outcome]) -> None:
    """A column per run; a section per measure, with a row for each task."""
    runs = [(outcome.statistics.by_name(), outcome.statistics) for outcome in outcomes.values()]
    tasks = list(runs[0][0])
    drawing = [task for task in tasks if any(entries[task].frames for entries, _ in runs)]
    rows: list[Row] = [("frames per second", [])]
    for task in drawing:
        cells = [per_second(entries[task].frames, run.end_ns) for entries, run in runs]
        rows.append((f"  {task}", cells))
    unit = unit_of(next(iter(outcomes.values())))
    rows.append((f"{unit} per second", []))
    for task in tasks:
        cells = [per_second(entries[task].groups, run.end_ns) for entries, run in runs]
        rows.append((f"  {task}", cells))
    rows.append((f"p99 response of a {unit[:-1]}, ms", []))
    for task in tasks:
        cells = [milliseconds(entries[task].responses.at(0.99)[0]) for entries, _ in runs]
        rows.append((f"  {task}", cells))
    late = [task for task in tasks if any(entries[task].deadlines for entries, _ in runs)]
    if late:
        rows.append(("deadlines missed, of all", []))
    for task in late:
        counts = [(entries[task].missed, entries[task].deadlines) for entries, _ in runs]
        rows.append((f"  {task}", [f"{m}/{of}" if of else "." for m, of in counts]))
    rows.append(("share of the GPU, %", []))
    for task in tasks:
        cells = [share(entries[task].gpu_ns, run.end_ns) for entries, run in runs]
        rows.append((f"  {task}", cells))
    console.print(side_by_side(console, title, list(outcomes), rows))
    for name, outcome in outcomes.items():
        if not outcome.complete:
            console.print(f"{name} was interrupted; later runs are left out", highlight=False)
