"""A figure's result for people and for programs: rows, plot data, JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headway.sim.papers.figure import Figure, Plot
from headway.sim.papers.figures import FigureResult
from headway.sim.papers.text import to_toml

CLAIM_HEADER = ("claim", "paper", "ours", "holds")
NUMBER_HEADER = ("variant", "task", "fps", "GPU", "groups/s")


def claim_rows(result: FigureResult) -> list[tuple[str, str, str, str]]:
    """The paper's figures beside ours, in the columns of `CLAIM_HEADER`."""
    return [(c.text, c.paper, c.ours, "yes" if c.holds else "no") for c in result.claims]


def number_rows(result: FigureResult) -> list[tuple[str, str, str, str, str]]:
    """What every task did in every variant, in the columns of `NUMBER_HEADER`."""
    return [
        (
            name,
            task,
            f"{variant.fps(task):.1f}" if variant.rates(task) else "-",
            f"{100 * variant.share(task):.1f} %",
            f"{variant.groups_per_s(task):.0f}",
        )
        for name, variant in result.variants.items()
        for task in variant.tasks
    ]


def plot_data(result: FigureResult) -> Plot:
    """What a plotter needs."""
    return result.figure.plot(result.variants)


def as_dict(result: FigureResult) -> dict[str, Any]:
    """The same for JSON."""
    figure = result.figure
    return {
        "figure": figure.id,
        "title": figure.title,
        "shows": figure.shows,
        "seeds": list(result.seeds),
        "claims": [asdict(claim) for claim in result.claims],
        "variants": {name: variant.as_dict() for name, variant in result.variants.items()},
        "plot": asdict(plot_data(result)),
    }


def scenario_file(figure: Figure, variant: str) -> str:
    """One variant as a scenario file, with a line that says where it comes from."""
    return f"# {figure.id}, {variant}: {figure.title}\n\n{to_toml(figure.variants()[variant])}"
