"""`headway study`"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from headway.view.cli.groups import Group, print_help_if_bare
from headway.view.cli.spreading import ray_option, spread
from headway.view.errors import INTERRUPTED, UserError

if TYPE_CHECKING:
    from headway.engine.locks.system import LockSystem

MAX_POINTS = 200
SEPARATOR = re.compile(r"\s*,\s*")


@click.group(name="study", cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Study many random task sets."""
    print_help_if_bare(context)


@command.command()
@click.option(
    "--utilisation",
    default="0.1:1.0:0.1",
    metavar="FROM:TO:STEP",
    show_default=True,
    help="Utilisation of a task set: CPU and GPU time together, per CPU.",
)
@click.option(
    "--sets",
    default=100,
    type=click.IntRange(1, 1_000_000),
    show_default=True,
    help="Task sets at each utilisation.",
)
@click.option(
    "--tasks", default=12, type=click.IntRange(1, 10_000), show_default=True, help="Tasks in a set."
)
@click.option(
    "--generator",
    default="randfixedsum",
    show_default=True,
    type=click.Choice(["uunifast", "randfixedsum"]),
    help="How utilisations are drawn.",
)
@click.option(
    "--most",
    default=0.5,
    type=click.FloatRange(0.001, 64),
    show_default=True,
    help="The largest utilisation of one task.",
)
@click.option(
    "--periods",
    default="10ms:100ms",
    metavar="FROM:TO",
    show_default=True,
    help="Periods, log-uniform, in whole milliseconds.",
)
@click.option(
    "--gpu-tasks",
    default=0.5,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="The fraction of tasks that use GPUs.",
)
@click.option(
    "--gpu-part",
    default=0.75,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="The fraction of their time that is on GPUs.",
)
@click.option(
    "--copy-part",
    default=0.25,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="The fraction of that for copies.",
)
@click.option(
    "--kernels",
    default=1,
    type=click.IntRange(1, 1000),
    show_default=True,
    help="Kernels in a job.",
)
@click.option(
    "--state",
    default=1.0,
    type=click.FloatRange(0, 1000),
    show_default=True,
    help="Bytes of state for each byte copied in or out.",
)
@click.option(
    "--jitter",
    default=0.0,
    type=click.FloatRange(0, 10),
    show_default=True,
    help="Jobs begin up to this fraction of a period after their releases.",
)
@click.option(
    "--sporadic",
    default=0.0,
    type=click.FloatRange(0, 100),
    show_default=True,
    help="Releases are up to this fraction of a period farther apart.",
)
@click.option(
    "--noise",
    default=0.0,
    type=click.FloatRange(0, 0.3),
    show_default=True,
    help="Deviation of jobs' lengths (normal, cut at three).",
)
@click.option(
    "--shortest",
    default=1.0,
    type=click.FloatRange(0, 1),
    show_default=True,
    help="Jobs are evenly between this fraction of their length and all of it.",
)
@click.option(
    "--cpus",
    default="4",
    metavar="N[/EACH]",
    show_default=True,
    help="CPUs, and how many in a cluster.",
)
@click.option(
    "--gpus",
    default="2",
    metavar="N[/EACH]",
    show_default=True,
    help="GPUs, and how many in a cluster.",
)
@click.option("--rho", default="2", show_default=True, metavar="LIST", help="Tokens of each GPU.")
@click.option(
    "--allocators",
    default="r2dglp-wc,kfmlp,priority",
    show_default=True,
    metavar="LIST",
    help="Token allocators to compare.",
)
@click.option(
    "--schedulers",
    default="rm",
    show_default=True,
    metavar="LIST",
    help="CPU schedulers to compare: edf, rm.",
)
@click.option(
    "--units",
    default="fifo",
    show_default=True,
    metavar="LIST",
    help="Orders of the units to compare: fifo, priority.",
)
@click.option(
    "--migrations",
    default="peer",
    show_default=True,
    metavar="LIST",
    help="Migrations to compare: peer, system.",
)
@click.option(
    "--test",
    default="analysis",
    show_default=True,
    type=click.Choice(["analysis", "analysis-soft", "simulation"]),
    help="What makes a set schedulable.",
)
@click.option(
    "--seed", default=0, type=int, show_default=True, help="Seed of the random task sets."
)
@click.option(
    "--jobs", type=click.IntRange(1, 4096), help="Processes to use; by default one for each CPU."
)
@ray_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--plot", metavar="F.png", help="Draw the ratios with their intervals.")
def acceptance(**options: Any) -> int:
    """The fraction of task sets that is schedulable, against utilisation, by configuration.

    Every combination of the lists is a configuration; all judge the same task sets.
    """
    from headway.sim.study.acceptance import Study, run_study
    from headway.view.running import watch
    from headway.view.studies import as_dict, draw, print_ratios

    for key, value in options.items():
        if value != value:
            raise UserError(f"--{key.replace('_', '-')}: found nan, expected a number")
    plot = options["plot"]
    if plot is not None:
        from headway.view.plots import check_format

        check_format(plot)
    study = Study(
        _systems(options),
        _recipe(options),
        _steps(options["utilisation"]),
        options["sets"],
        options["test"],
        options["seed"],
    )
    _check(study.recipe, study.utilisations, study.systems[0][1].clusters.cpus)
    workers = options["jobs"] or os.cpu_count() or 1
    total = study.sets * len(study.utilisations)
    with spread(options["ray"]) as pool, watch("task sets", total) as watcher:
        ratios = run_study(
            study, workers=workers, pool=pool, progress=lambda done, _: watcher(done)
        )
    if options["as_json"]:
        import msgspec

        click.echo(msgspec.json.encode(as_dict(study, ratios)))
    else:
        print_ratios(study, ratios)
    if plot is not None:
        draw(plot, study, ratios)
    return INTERRUPTED if watcher.interrupted else 0


def _steps(text: str) -> tuple[float, ...]:
    """0.1:1.0:0.1 as the numbers in between."""
    try:
        low, high, step = (float(part) for part in text.split(":"))
        if not (0 < low <= high <= 1000 and step > 0):
            raise ValueError
    except ValueError:
        raise UserError(
            f"--utilisation: found {text!r}, expected FROM:TO:STEP such as 0.1:1.0:0.1"
        ) from None
    count = int((high - low) / step + 1e-9) + 1
    if count > MAX_POINTS:
        raise UserError(f"--utilisation: found {count} points, expected at most {MAX_POINTS}")
    return tuple(round(low + place * step, 9) for place in range(count))


def _pair(options: dict[str, Any], key: str) -> tuple[int, int]:
    """12/6 as twelve in clusters of six; 12 as one cluster."""
    match = re.fullmatch(r"(\d{1,4})(?:/(\d{1,4}))?", options[key].strip())
    if match is None or not int(match[1]):
        raise UserError(f"--{key}: found {options[key]!r}, expected a number such as 12 or 12/6")
    return int(match[1]), int(match[2] or match[1])


def _list(options: dict[str, Any], key: str, known: tuple[str, ...]) -> list[str]:
    chosen = [part for part in SEPARATOR.split(options[key].strip()) if part]
    wrong = [part for part in chosen if part not in known]
    if wrong or not chosen:
        found = repr(wrong[0]) if wrong else "nothing"
        raise UserError(f"--{key}: found {found}, expected some of {', '.join(known)}")
    return list(dict.fromkeys(chosen))


def _systems(options: dict[str, Any]) -> tuple[tuple[str, LockSystem], ...]:
    """Every combination, named by what differs."""
    from itertools import product

    from headway.engine.locks.clusters import Clusters
    from headway.engine.locks.settings import PRESETS
    from headway.engine.locks.system import MIGRATIONS, SCHEDULERS, LockSystem
    from headway.engine.locks.unit_locks import ORDERS

    allocators = tuple(name for name in PRESETS if name != "length")
    lists = {
        "allocators": _list(options, "allocators", allocators),
        "schedulers": _list(options, "schedulers", SCHEDULERS),
        "units": _list(options, "units", ORDERS),
        "migrations": _list(options, "migrations", MIGRATIONS),
        "rho": _list(options, "rho", tuple(str(n) for n in range(1, 65))),
    }
    clusters = Clusters(*_pair(options, "cpus"), *_pair(options, "gpus"))
    found = []
    for chosen in product(*lists.values()):
        allocator, scheduler, units, migration, rho = chosen
        system = LockSystem(
            clusters, scheduler, int(rho), allocator, None, units, migration=migration
        )
        for key, wrong, expected in system.mistakes():
            option = {"cpus_each": "cpus", "devices_each": "gpus"}.get(key, key)
            raise UserError(f"--{option}: found {wrong}, expected {expected}")
        parts = zip(lists, chosen, strict=True)
        differs = [f"rho {v}" if key == "rho" else v for key, v in parts if len(lists[key]) > 1]
        found.append((", ".join(differs) or allocator, system))
    return tuple(found)


def _recipe(options: dict[str, Any]) -> Any:
    from headway.engine.units import DurationError, parse_duration
    from headway.sim.study.generators import Recipe

    low, _, high = options["periods"].partition(":")
    try:
        periods = (parse_duration(low), parse_duration(high))
        if not 1_000_000 <= periods[0] <= periods[1]:
            raise DurationError
    except DurationError:
        found = repr(options["periods"])
        raise UserError(f"--periods: found {found}, expected FROM:TO such as 10ms:100ms") from None
    return Recipe(
        options["tasks"],
        options["generator"],
        options["most"],
        periods,
        options["gpu_tasks"],
        options["gpu_part"],
        options["copy_part"],
        options["kernels"],
        options["state"],
        **{key: options[key] for key in ("jitter", "sporadic", "noise", "shortest")},
    )


def _check(recipe: Any, utilisations: tuple[float, ...], cpus: int) -> None:
    """Refuse what no task set can have before anything runs."""
    highest = utilisations[-1] * cpus
    if highest > recipe.tasks * recipe.most:
        raise UserError(
            f"--utilisation: found {utilisations[-1]:g} on {cpus} CPUs, expected at most "
            f"{recipe.tasks * recipe.most / cpus:g}, which {recipe.tasks} tasks of --most "
            f"{recipe.most:g} can have"
        )
