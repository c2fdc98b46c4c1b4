"""How good cost models are, as a table, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.trace.predictions import WITHIN, Verdict, cdf

HEADER = (
    "task", "cost model", "groups", "mean |error|", "median", "bias",
    f"within {WITHIN:.0%}", "under by 5 %", "over bound", "p5 … p95",
)  # fmt: skip


def rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """A row for each, the task's name in its first."""
    found, previous = [], ""
    for verdict in verdicts:
        low, high = verdict.quantile_ns(0.05) / 1000, verdict.quantile_ns(0.95) / 1000
        task = verdict.task if verdict.task != previous else ""
        previous = verdict.task
        found.append(
            (
                task,
                verdict.model,
                str(verdict.groups),
                *(f"{100 * x:.1f} %" for x in (verdict.mean, verdict.median)),
                f"{100 * verdict.bias:+.1f} %",
                f"{100 * verdict.within:.0f} %",
                *(f"{100 * x:.1f} %" for x in (verdict.under, verdict.over)),
                f"{low:+.0f} … {high:+.0f} us",
            )
        )
    return found


def as_dict(verdict: Verdict) -> dict[str, Any]:
    return {
        "task": verdict.task,
        "model": verdict.model,
        "groups": verdict.groups,
        "mean": verdict.mean,
        "median": verdict.median,
        "bias": verdict.bias,
        "within_15": verdict.within,
        "under_5": verdict.under,
        "over_bound": verdict.over,
        "p5_ns": verdict.quantile_ns(0.05),
        "p95_ns": verdict.quantile_ns(0.95),
        "cdf": cdf([verdict]),
    }


def draw(path: str, verdicts: Sequence[Verdict]) -> None:
    """The error's cumulative distribution for each model, over all tasks."""
    from headway.view.plots import new_figure, save

    figure = new_figure(8, 4)
    axes = figure.subplots()
    for model in dict.fromkeys(verdict.model for verdict in verdicts):
        points = cdf([v for v in verdicts if v.model == model])
        x, y = [100 * error for error, _ in points], [part for _, part in points]
        axes.step(x, y, where="post", label=model)
    axes.axvline(0, color="#888888", linewidth=0.6)
    axes.set_xlim(-100, 150)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("predicted against measured cost, % (positive: pessimistic)")
    axes.set_ylabel("share of groups")
    axes.legend(fontsize="small")
    save(figure, path)
