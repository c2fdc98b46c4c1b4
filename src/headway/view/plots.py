"""Pictures of runs. matplotlib is optional and slow to import, so it is imported here and late."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headway.engine.events import Observer
from headway.engine.model import Group
from headway.sim.outcome import Outcome
from headway.view.errors import UserError
from headway.view.files import check_writable, whole_or_nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headway.sim.papers.figure import Plot

MAX_SLICES = 2000
MAX_TIMELINE_TASKS = 40
FORMATS = ("png", "svg", "pdf")
COLOURS = ("#0072b2", "#d55e00", "#00916a", "#c05c97", "#8a6d00", "#3a97cf", "#6a51a3", "#5f6b7a")
"""As the report has them: told apart also by people who see fewer colours."""
STYLE = {
    "text.parse_math": False,  # names of files and tasks may have any $ in them
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#98a2ad",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#e4e8ec",
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "xtick.color": "#3c4650",
    "ytick.color": "#3c4650",
}


class Timeline(Observer):
    """Keeps the first groups of a run, for the timeline of the picture."""

    def __init__(self) -> None:
        self.slices: list[tuple[str, int, int, int]] = []

    def completed(self, group: Group, now_ns: int) -> None:
        if len(self.slices) < MAX_SLICES:
            times = (group.submitted_ns, group.started_ns, group.finished_ns)
            self.slices.append((group.task.name, *times))


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, if matplotlib is there."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a plot needs matplotlib: run pip install 'headway[plot]'") from None
    mpl.rcParams.update(STYLE)
    return Figure(figsize=(width, height), layout="constrained")


def check_format(path: str) -> None:
    """Refuse a picture that could not be written, before the run rather than after it."""
    ending = path.rsplit(".", 1)[-1].lower() if "." in path else ""
    if ending not in FORMATS:
        raise UserError(
            f"--plot {path}: found the ending {ending!r}, expected {', '.join(FORMATS)}"
        )
    check_writable(path)


def save(figure: Figure, path: str) -> None:
    """Write the picture whole or not at all."""
    with whole_or_nothing(path) as partial, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph missing from a font is no reason to complain
        figure.savefig(partial, dpi=120, format=path.rsplit(".", 1)[-1].lower())


def _colours(names: Sequence[str]) -> dict[str, str]:
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def plot_run(path: str, title: str, outcome: Outcome, timeline: Timeline) -> None:
    """A run: the timeline of its beginning, rates over time, and response times."""
    figure = new_figure(11, 8)
    figure.suptitle(title)
    names = list(outcome.statistics.by_name())
    colours = _colours(names)
    top, middle, bottom = figure.subplots(3, 1)
    _draw_timeline(top, names, timeline, colours)
    _draw_rates(middle, outcome, colours)
    _draw_responses(bottom, outcome, colours)
    save(figure, path)


def _draw_timeline(
    axes: Axes, names: Sequence[str], timeline: Timeline, colours: Mapping[str, str]
) -> None:
    rows = {name: place for place, name in enumerate(names[:MAX_TIMELINE_TASKS])}
    last_ms = 0.0
    if timeline.slices:
        # Enough of the beginning to see single groups: the first 200 or so.
        last_ms = timeline.slices[min(len(timeline.slices), 200) - 1][3] / 1e6
    for name, submitted_ns, started_ns, finished_ns in timeline.slices:
        if name not in rows or submitted_ns / 1e6 > last_ms:
            continue
        row, colour = rows[name], colours[name]
        wait = (submitted_ns / 1e6, (started_ns - submitted_ns) / 1e6)
        run = (started_ns / 1e6, (finished_ns - started_ns) / 1e6)
        axes.broken_barh([wait], (row - 0.1, 0.2), color=colour, alpha=0.35)
        axes.broken_barh([run], (row - 0.4, 0.8), color=colour)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlim(0, last_ms or 1)
    axes.set_xlabel("ms")
    axes.set_title("the beginning: waiting (thin) and running (thick)", fontsize="medium")


def _draw_rates(axes: Axes, outcome: Outcome, colours: Mapping[str, str]) -> None:
    statistics = outcome.statistics
    for name, entry in statistics.by_name().items():
        if entry.frames:
            points = entry.frame_series.rates(statistics.end_ns)
            x = [at_ns / 1e9 for at_ns, _ in points]
            axes.plot(x, [value for _, value in points], label=name, color=colours[name])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("s")
    axes.set_ylabel("frames per second")
    axes.set_title("frame rate over time", fontsize="medium")
    if axes.lines:
        axes.legend(fontsize="small", ncols=4)


def _draw_responses(axes: Axes, outcome: Outcome, colours: Mapping[str, str]) -> None:
    names = list(outcome.statistics.by_name())[:MAX_TIMELINE_TASKS]
    for place, name in enumerate(names):
        entry = outcome.statistics.by_name()[name]
        p50, p99 = (value / 1e6 for value in entry.responses.at(0.50, 0.99))
        axes.bar(place - 0.2, p50, 0.4, color=colours[name], alpha=0.5)
        axes.bar(place + 0.2, p99, 0.4, color=colours[name])
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("ms")
    axes.set_title("response time of a group: p50 (light) and p99", fontsize="medium")


def plot_comparison(path: str, title: str, outcomes: Mapping[str, Outcome]) -> None:
    """Several runs side by side: frame rates where there are frames, else response times."""
    first = next(iter(outcomes.values())).statistics
    late = [name for name in first.by_name() if _has_deadlines(outcomes, name)]
    figure = new_figure(11, 10 if late else 7)
    figure.suptitle(title, x=0.01, ha="left", weight="bold")
    upper, lower, *more = figure.subplots(3 if late else 2, 1)
    drawing = [name for name, entry in first.by_name().items() if _has_frames(outcomes, name)]
    _bars(
        upper,
        drawing or list(first.by_name()),
        {
            label: {
                name: (entry.frames if drawing else entry.groups)
                * 1e9
                / max(1, outcome.statistics.end_ns)
                for name, entry in outcome.statistics.by_name().items()
            }
            for label, outcome in outcomes.items()
        },
    )
    upper.set_title(f"{'frames' if drawing else 'groups'} per second: more is better")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside upper right", ncols=4)
    _bars(
        lower,
        list(first.by_name()),
        {
            label: {
                name: entry.responses.at(0.99)[0] / 1e6
                for name, entry in outcome.statistics.by_name().items()
            }
            for label, outcome in outcomes.items()
        },
    )
    lower.set_title("p99 response of a group, ms (logarithmic): less is better")
    lower.set_yscale("symlog", linthresh=0.1)
    lower.set_ylim(0, 3 * max(0.1, *(bar.get_height() for bar in lower.patches)))  # for the numbers
    lower.yaxis.set_major_formatter("{x:g}")
    for axes in more:
        _bars(axes, late, {label: _missed(outcome, late) for label, outcome in outcomes.items()})
        axes.set_title("deadlines missed, %: less is better")
        axes.set_ylim(0, max(1.0, *(1.15 * bar.get_height() for bar in axes.patches)))
    save(figure, path)


def _has_deadlines(outcomes: Mapping[str, Outcome], name: str) -> bool:
    return any(outcome.statistics.by_name()[name].deadlines for outcome in outcomes.values())


def _missed(outcome: Outcome, names: Sequence[str]) -> dict[str, float]:
    """What part of its deadlines each of these missed, in percent."""
    entries = outcome.statistics.by_name()
    return {name: 100 * entries[name].missed / max(1, entries[name].deadlines) for name in names}


def _has_frames(outcomes: Mapping[str, Outcome], name: str) -> bool:
    return any(outcome.statistics.by_name()[name].frames for outcome in outcomes.values())


def _bars(axes: Axes, names: Sequence[str], series: Mapping[str, Mapping[str, float]]) -> None:
    width = 0.8 / max(1, len(series))
    for place, (label, values) in enumerate(series.items()):
        x = [row - 0.4 + (place + 0.5) * width for row in range(len(names))]
        heights = [values[name] for name in names]
        drawn = axes.bar(x, heights, width * 0.92, label=label, color=COLOURS[place % len(COLOURS)])
        if len(names) * len(series) <= 40:
            axes.bar_label(drawn, fmt="%.3g", fontsize=8)
    axes.margins(y=0.15)
    axes.set_xticks(range(len(names)), list(names))


def plot_figure(path: str, title: str, plot: Plot) -> None:
    """A figure of a paper, as our simulation gives it."""
    figure = new_figure(10, 5)
    figure.suptitle(title)
    axes = figure.subplots()
    if plot.kind == "bars" and plot.groups is not None:
        series = {c.name: dict(zip(plot.groups, c.y, strict=True)) for c in plot.curves}
        _bars(axes, plot.groups, series)
    else:
        for curve in plot.curves:
            axes.plot(curve.x or range(len(curve.y)), curve.y, label=curve.name)
        axes.set_ylim(bottom=0)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", ncols=3)
    save(figure, path)
