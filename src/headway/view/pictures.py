"""What the report page shows, as pictures for paper: each is drawn from its data and nothing else,
and the data is what is saved beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headway.trace.analysis import CAUSES, History, Occupancy, Summary, percentile, summarise
from headway.trace.analysis.facts import SHORT
from headway.trace.analysis.rates import frame_rates
from headway.view.plots import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_GROUPS = 3000
MAX_POINTS = 2000
COLOURS = (
    "#0072b2", "#d55e00", "#00916a", "#c05c97", "#8a6d00", "#3a97cf", "#6a51a3", "#5f6b7a",
)  # fmt: skip
"""The page's; they stay apart for colour-blind eyes."""
STYLES = ("-", "--", ":")
CAUSE_NAMES = dict(zip(CAUSES, ("own budget", "hold-off", "GPU idle"), strict=True))

Data = dict[str, Any]


class Run:
    """A stretch of a run, and its numbers."""

    def __init__(self, history: History, from_ns: int, to_ns: int) -> None:
        self.history = history
        self.from_ns, self.to_ns = from_ns, to_ns
        self.summary: Summary = summarise(history, from_ns, to_ns, occupancy=Occupancy(history))

    @property
    def names(self) -> list[str]:
        return [facts.name for facts in self.history.tasks]


# -- data ------------------------------------------------------------------------------------------


def _timeline(run: Run) -> Data:
    groups, segments = run.history.groups, run.history.segments
    columns = (groups.tasks, groups.submitted_ns, groups.started_ns, groups.finished_ns)
    rows: list[dict[str, Any]] = [
        {"task": run.names[task], **_times(run, submitted=sub, started=start, finished=end)}
        for task, sub, start, end in zip(*columns, strict=True)
        if end > run.from_ns and start < run.to_ns
    ]
    until_ns = run.to_ns - run.from_ns
    if len(rows) > MAX_GROUPS:
        rows = rows[:MAX_GROUPS]
        until_ns = rows[-1]["finished_ns"]
    short = [
        {"task": run.names[task], **_times(run, start=start, end=end)}
        for task, kind, start, end in zip(
            segments.tasks, segments.kinds, segments.starts_ns, segments.ends_ns, strict=True
        )
        if kind == SHORT and end > run.from_ns and start < run.from_ns + until_ns
    ]
    return {"tasks": run.names, "until_ns": until_ns, "groups": rows, "waits_for_budget": short}


def _times(run: Run, **times: int) -> dict[str, int]:
    return {f"{name}_ns": ns - run.from_ns for name, ns in times.items()}


def _frames(run: Run) -> Data:
    """Frames per second of each task that showed any."""
    curves = {
        facts.name: [list(point) for point in frame_rates(facts.frames_ns, run.from_ns, run.to_ns)]
        for facts in run.history.tasks
    }
    shown = {name: points for name, points in curves.items() if points}
    return {"tasks": run.names, "frames_per_second": shown}


def _responses(run: Run) -> Data:
    tasks = {}
    for task in run.summary.tasks:
        count = task.groups
        if count:
            every = -(-count // MAX_POINTS)
            places = sorted({*range(0, count, every), count - 1})
            tasks[task.name] = {
                "p50_ns": percentile(task.responses_ns, 0.50),
                "p99_ns": percentile(task.responses_ns, 0.99),
                "cdf": [[task.responses_ns[n], (n + 1) / count] for n in places],
            }
    return {"tasks": run.names, "responses": tasks}


def _shares(run: Run) -> Data:
    whole_ns = run.summary.duration_ns * run.history.gpus
    gpu_ns = {task.name: task.gpu_ns for task in run.summary.tasks}
    shares = {name: ns / whole_ns if whole_ns else 0.0 for name, ns in gpu_ns.items()}
    return {"tasks": run.names, "gpu_ns": gpu_ns, "share": shares}


def _budgets(run: Run) -> Data:
    reserves = {}
    for facts, used in zip(run.history.reserves.values(), run.summary.reserves, strict=True):
        reserves[facts.name] = {
            "capacity_ns": facts.capacity_ns,
            "period_ns": facts.period_ns,
            "charged_ns": used.charged_ns,
            "used": used.used,
            "budget": facts.budget_line(run.from_ns, run.to_ns),
        }
    return {"until_ns": run.summary.duration_ns, "reserves": reserves}


def _waits(run: Run) -> Data:
    def name(cause: int) -> str:
        return CAUSE_NAMES[cause] if cause < 0 else run.names[cause]

    found = {cause for task in run.summary.tasks for cause in task.waited_ns}
    order = sorted(found, key=lambda cause: (cause < 0, abs(cause)))
    return {
        "tasks": run.names,
        "causes": [name(cause) for cause in order],
        "waited_ns": [[task.waited_ns[cause] for cause in order] for task in run.summary.tasks],
    }


# -- drawing ---------------------------------------------------------------------------------------


def _label(name: str) -> str:
    """A name as matplotlib draws it: a first _ would hide it."""
    shown = "".join(c if c.isprintable() else "?" for c in name[:40])
    return (" " if shown.startswith("_") else "") + shown


def _colour(data: Data, name: str) -> str:
    return COLOURS[data["tasks"].index(name) % len(COLOURS)]


def _style(data: Data, name: str) -> str:
    return STYLES[min(data["tasks"].index(name) // len(COLOURS), len(STYLES) - 1)]


def _bars(
    axes: Axes, row: float, height: float, stretches: list[tuple[int, int]], **how: Any
) -> None:
    bars = [(start / 1e6, (end - start) / 1e6) for start, end in stretches]
    axes.broken_barh(bars, (row, height), linewidth=0, **how)


def _draw_timeline(axes: Axes, data: Data) -> None:
    names = data["tasks"]
    for row, name in enumerate(names):
        groups = [g for g in data["groups"] if g["task"] == name]
        colour = _colour(data, name)
        waits = [(g["submitted_ns"], g["started_ns"]) for g in groups]
        runs = [(g["started_ns"], g["finished_ns"]) for g in groups]
        short = [
            (w["start_ns"], w["end_ns"]) for w in data["waits_for_budget"] if w["task"] == name
        ]
        _bars(axes, row + 0.25, 0.12, waits, color=colour, alpha=0.35)
        _bars(
            axes, row + 0.24, 0.14, short, facecolor="#ffffff", edgecolor="#b45f06", hatch="/////"
        )
        _bars(axes, row - 0.4, 0.6, runs, color=colour)
    axes.set_yticks(range(len(names)), [_label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, data["until_ns"] / 1e6 or 1)
    axes.set_xlabel("ms")
    axes.set_title("running (thick), waiting (thin), waiting for budget (hatched)")


def _draw_frames(axes: Axes, data: Data) -> None:
    for name, points in data["frames_per_second"].items():
        x, y = [ns / 1e9 for ns, _ in points], [rate for _, rate in points]
        (line,) = axes.plot(x, y, linestyle=_style(data, name), color=_colour(data, name))
        line.set_label(_label(name))
        line.set_marker("o" if len(x) < 4 else "")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("s")
    axes.set_title("frames per second")
    _legend(axes)


def _draw_responses(axes: Axes, data: Data) -> None:
    for name, entry in data["responses"].items():
        x = [ns / 1e6 for ns, _ in entry["cdf"][:1] + entry["cdf"]]
        y = [0.0, *(share for _, share in entry["cdf"])]
        colour = _colour(data, name)
        style = _style(data, name)
        axes.step(x, y, where="post", label=_label(name), color=colour, linestyle=style)
        quantiles_ms = [entry["p50_ns"] / 1e6, entry["p99_ns"] / 1e6]
        axes.plot(quantiles_ms, [0.5, 0.99], "o", markersize=3, color=colour)
    if data["responses"]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("ms")
    axes.set_title("share of groups done within a time; dots: p50 and p99")
    _legend(axes)


def _draw_shares(axes: Axes, data: Data) -> None:
    names = data["tasks"]
    shares = [100 * data["share"][name] for name in names]
    drawn = axes.barh(range(len(names)), shares, color=[_colour(data, name) for name in names])
    axes.bar_label(drawn, fmt="%.1f %%", padding=3)
    axes.set_yticks(range(len(names)), [_label(name) for name in names])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("% of the GPU")
    axes.set_title("GPU shares")


def _draw_budgets(axes: Axes, data: Data) -> None:
    for place, (name, entry) in enumerate(data["reserves"].items()):
        points = entry["budget"]
        x = [ns / 1e9 for ns, _ in points] + [data["until_ns"] / 1e9] * bool(points)
        y = [budget / 1e6 for _, budget in points] + [points[-1][1] / 1e6 for _ in points[:1]]
        label = f"{_label(name)}: {100 * entry['used']:.0f} % used"
        axes.step(x, y, where="post", linewidth=0.8, color=COLOURS[place % 8], label=label)
    axes.axhline(0, color="#888888", linewidth=0.6)
    axes.set_xlabel("s")
    axes.set_ylabel("budget, ms")
    axes.set_title("budgets")
    _legend(axes)


def _draw_waits(axes: Axes, data: Data) -> None:
    names, causes, rows = data["tasks"], data["causes"], data["waited_ns"]
    if not causes:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing waited", ha="center", transform=axes.transAxes)
        return
    parts = [[ns / max(1, sum(row)) for ns in row] for row in rows]
    axes.imshow(parts, cmap="Oranges", vmin=0, vmax=1.2, aspect="auto")
    for y, row in enumerate(rows):
        for x, ns in enumerate(row):
            axes.text(x, y, f"{ns / 1e6:.3g}", ha="center", va="center", fontsize="small")
    axes.set_xticks(range(len(causes)), [_label(name) for name in causes], rotation=30, ha="right")
    axes.set_yticks(range(len(names)), [_label(name) for name in names])
    axes.set_title("what waited (rows) for what (columns), ms added over groups")


def _legend(axes: Axes) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small", frameon=False)
    else:
        axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)


PICTURES: dict[str, tuple[Callable[[Run], Data], Callable[[Axes, Data], None]]] = {
    "timeline": (_timeline, _draw_timeline),
    "frames": (_frames, _draw_frames),
    "responses": (_responses, _draw_responses),
    "shares": (_shares, _draw_shares),
    "budgets": (_budgets, _draw_budgets),
    "waits": (_waits, _draw_waits),
}


def _height(what: str, data: Data) -> float:
    """In inches: those with a row for each task grow with their number."""
    rows = len(data["tasks"]) if what in ("timeline", "shares", "waits") else 0
    return min(40.0, max(3.4, 1 + 0.24 * rows))


def picture(title: str, data: dict[str, Data]) -> Figure:
    """One figure with a panel for each of these."""
    heights = [_height(what, part) for what, part in data.items()]
    figure = new_figure(9, 0.6 + sum(heights))
    figure.suptitle(_label(title))
    panels = figure.subplots(len(data), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (what, part) in zip(panels, data.items(), strict=True):
        PICTURES[what][1](axes, part)
    return figure
