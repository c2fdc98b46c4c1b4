"""Acceptance ratios as a table, as JSON and as a picture."""

from __future__ import annotations

from typing import Any

from headway.sim.study.acceptance import Ratios, Study
from headway.view.plots import new_figure, save
from headway.view.tables import new_console, new_table

SCHEMA = 1
SAYS = {
    "analysis": "every deadline is met, by proof",
    "analysis-soft": "response times are bounded, by proof",
    "simulation": "no deadline was missed in a simulation",
}


def as_dict(study: Study, ratios: Ratios) -> dict[str, Any]:
    """Everything, for JSON."""
    return {
        "schema": SCHEMA,
        "test": study.test,
        "seed": study.seed,
        "configurations": {
            name: [
                {
                    "utilisation": utilisation,
                    "sets": ratios[name, utilisation].sets,
                    "accepted": ratios[name, utilisation].accepted,
                    "fraction": ratios[name, utilisation].fraction,
                    "interval": ratios[name, utilisation].interval,
                }
                for utilisation in study.utilisations
            ]
            for name, _ in study.systems
        },
    }


def print_ratios(study: Study, ratios: Ratios) -> None:
    """A row for each configuration and utilisation."""
    console = new_console()
    table = new_table("task sets that are schedulable, with 95 % intervals")
    table.add_column("configuration")
    for column in ("utilisation", "accepted", "%", "interval"):
        table.add_column(column, justify="right")
    for name, _ in study.systems:
        shown = name
        for utilisation in study.utilisations:
            ratio = ratios[name, utilisation]
            low, high = ratio.interval
            table.add_row(
                shown,
                f"{utilisation:g}",
                f"{ratio.accepted}/{ratio.sets}",
                f"{100 * ratio.fraction:.0f}" if ratio.sets else "-",
                f"{100 * low:.0f}-{100 * high:.0f}" if ratio.sets else "-",
            )
            shown = ""
    console.print(table)
    judged = sum(ratios[study.systems[0][0], u].sets for u in study.utilisations)
    console.print(f"{judged} task sets; schedulable: {SAYS[study.test]}")


def draw(path: str, study: Study, ratios: Ratios) -> None:
    """A curve for each configuration, with its intervals as a band."""
    figure = new_figure(8, 5)
    axes = figure.subplots()
    for name, _ in study.systems:
        found = [(u, ratios[name, u]) for u in study.utilisations if ratios[name, u].sets]
        x = [utilisation for utilisation, _ in found]
        (line,) = axes.plot(x, [ratio.fraction for _, ratio in found], marker="o", label=name)
        low = [ratio.interval[0] for _, ratio in found]
        high = [ratio.interval[1] for _, ratio in found]
        axes.fill_between(x, low, high, alpha=0.2, color=line.get_color())
    axes.set_xlabel("utilisation of a CPU, CPU and GPU time together")
    axes.set_ylabel("fraction of task sets")
    axes.set_ylim(-0.02, 1.02)
    axes.set_title(f"schedulable: {SAYS[study.test]}")
    axes.legend()
    save(figure, path)
