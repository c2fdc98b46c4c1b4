"""A figure of a paper: the scenarios behind it, what it claims and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from headway.sim.papers.claims import Claim
from headway.sim.papers.results import Results, Scenario


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of a plot."""

    name: str
    y: list[float]
    x: list[float] | None = None
    """None in a bar chart, whose places are the plot's `groups`."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What a plotter needs to draw a figure."""

    kind: str
    """Either "bars" (each curve has one bar in each group) or "lines" (curves of points x, y)."""
    x_label: str
    y_label: str
    curves: list[Curve]
    groups: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, or one measurement, of a paper."""

    id: str
    """Such as "timegraph/fig8"."""
    title: str
    shows: str
    """What a reader is meant to see."""
    variants: Callable[[], dict[str, Scenario]]
    """The scenarios by name, in the order in which they are shown."""
    claims: Callable[[Results], list[Claim]]
    plot: Callable[[Results], Plot]


R = TypeVar("R")
"""What one run came to, in the form that a paper's figures ask for."""


@dataclass(frozen=True)
class TableFigure(Generic[R]):
    """A figure, or a table, with runs and numbers of its paper's own kind."""

    id: str
    title: str
    shows: str
    variants: Callable[[], dict[str, Scenario]]
    claims: Callable[[Mapping[str, R]], list[Claim]]
    plot: Callable[[Mapping[str, R]], Plot]
    header: tuple[str, ...]
    rows: Callable[[Mapping[str, R]], list[tuple[str, ...]]]


@dataclass(frozen=True)
class TableResult(Generic[R]):
    """A figure or measurement that was run."""

    figure: TableFigure[R]
    results: Mapping[str, R]
    claims: list[Claim]


def bars(results: Results, groups: dict[str, str], series: dict[str, str], task: str) -> Plot:
    """Frame-rates of `task` in the variants called "GROUP-SERIES", by their shown names."""
    curves = [
        Curve(label, [results[f"{group}-{key}"].fps(task) for group in groups])
        for key, label in series.items()
    ]
    return Plot("bars", "", "frames per second", curves, list(groups.values()))


def task_bars(results: Results, tasks: Iterable[str]) -> Plot:
    """Frame-rates of each task in each variant."""
    names = list(tasks)
    curves = [Curve(name, [result.fps(t) for t in names]) for name, result in results.items()]
    return Plot("bars", "", "frames per second", curves, names)


def over_time(results: Results, tasks: Iterable[str]) -> Plot:
    """Frame-rates over time, one line per variant and task."""
    names = list(tasks)
    curves = []
    for variant, result in results.items():
        for task in names:
            points = result.rates(task)
            label = variant if len(names) == 1 else f"{task}, {variant}"
            curves.append(Curve(label, [rate for _, rate in points], [at for at, _ in points]))
    return Plot("lines", "seconds", "frames per second", curves)
