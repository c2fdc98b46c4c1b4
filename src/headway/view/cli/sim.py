"""`headway sim`"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from headway.engine.events import Observer, Recorder
from headway.engine.spec import Spec, parse_spec
from headway.sim.gpusync.scenario import is_gpusync
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import Override, Scenario, parse_override, parse_scenario, parse_variants
from headway.view.errors import INTERRUPTED, UserError
from headway.view.files import load_policy_file, read_text
from headway.view.gpusync import run_gpusync
from headway.view.running import watch


@click.command(name="sim")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the results as JSON, one line per file."
)
@click.option("--trace", metavar="F.pftrace", help="Write a full trace for ui.perfetto.dev.")
@click.option("--plot", metavar="F.png", help="Draw the timeline, frame rates and response times.")
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key, e.g. task.video.priority=5.",
)
@click.option("--variant", metavar="NAME", help="Run the file's variant of this name.")
@click.option("--seed", type=int, help="Seed of everything random, instead of the file's.")
@click.option("--spec", "spec_file", metavar="FILE", help="Take policies and reserves from a spec.")
@click.option(
    "--load", "loads", multiple=True, metavar="FILE.py", help="Load a policy from a file."
)
def command(
    files: tuple[str, ...],
    as_json: bool,
    trace: str | None,
    plot: str | None,
    changes: tuple[str, ...],
    variant: str | None,
    seed: int | None,
    spec_file: str | None,
    loads: tuple[str, ...],
) -> int:
    """Simulate scenarios: who runs when, at what rate, within which budget."""
    if len(files) > 1 and (trace or plot):
        raise UserError("--trace and --plot write one file: expected one scenario, found several")
    for path in loads:
        load_policy_file(path)
    if plot is not None:
        from headway.view.plots import check_format

        check_format(plot)
    overrides = read_overrides(changes)
    if any(is_gpusync(read_text(file)) for file in files):
        wanted = {"--trace": trace, "--variant": variant, "--spec": spec_file}
        return run_gpusync(
            files, wanted, as_json=as_json, plot=plot, overrides=overrides, seed=seed
        )
    spec = None if spec_file is None else parse_spec(read_text(spec_file), spec_file)
    # Every file is read before the first one runs: a mistake in the last must not come late.
    scenarios = [(file, _read(file, variant, overrides, seed)) for file in files]
    code = 0
    for file, scenario in scenarios:
        outcome = run_one(file, scenario, as_json=as_json, trace=trace, plot=plot, spec=spec)
        if not outcome.complete:
            code = INTERRUPTED
            break
    return code


def read_overrides(changes: tuple[str, ...]) -> list[Override]:
    """The --set options."""
    try:
        return [parse_override(change) for change in changes]
    except ValueError as error:
        raise UserError(f"--set: {error}") from None


def _read(file: str, variant: str | None, overrides: list[Override], seed: int | None) -> Scenario:
    text = read_text(file)
    if variant is not None:
        known = {v.name: v for v in parse_variants(text, file)}
        if variant not in known:
            names = ", ".join(known) or "a file that has variants"
            raise UserError(f"{file}: --variant: found {variant!r}, expected {names}")
        overrides = [*known[variant].overrides, *overrides]
    return parse_scenario(text, file, overrides=overrides, seed=seed)


def run_one(
    file: str,
    scenario: Scenario,
    *,
    as_json: bool,
    trace: str | None = None,
    plot: str | None = None,
    spec: Spec | None = None,
) -> Outcome:
    """Run one scenario and write all that was asked for."""
    observers: list[Observer] = []
    with ExitStack() as stack:
        if trace is not None:
            from headway.view.traces.writer import TraceWriter

            observers.append(Recorder(stack.enter_context(TraceWriter(trace)).write))
        timeline = None
        if plot is not None:
            from headway.view.plots import Timeline

            timeline = Timeline()
            observers.append(timeline)
        stream = None
        if as_json:
            from headway.view.results import JsonStream

            stream = JsonStream(sys.stdout.buffer, file=file)
            observers.append(stream)
        with watch(Path(file).name, scenario.duration_ns) as watcher:
            outcome = simulate(scenario, observers=observers, spec=spec, progress=watcher)
    if stream is not None:
        stream.finish(outcome)
    else:
        from headway.view.results import print_outcome
        from headway.view.tables import new_console

        print_outcome(new_console(), file, outcome)
    if plot is not None and timeline is not None:
        from headway.view.plots import plot_run

        plot_run(plot, file, outcome, timeline)
    return outcome
