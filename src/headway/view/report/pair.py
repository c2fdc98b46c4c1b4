"""Two traces on one page: what is different in a table, and both reports side by side below it.

Names of tasks are whatever somebody chose: they reach the table escaped, and the reports as always.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headway.trace.analysis import Summary, summarise
from headway.trace.analysis.summary import TaskSummary, percentile
from headway.view.files import whole_or_nothing
from headway.view.histories import Part
from headway.view.report.page import css_of_page, hash_of, policy_of, text_of

PID = re.compile(r"(?<=.)\.\d+(\.\d+)?$")
STYLE = """
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 8px; padding: 0 8px; }
.pair iframe { width: 100%; height: 92vh; border: 1px solid var(--line); background: var(--bg); }
main { display: block; } main .card { margin-bottom: 12px; }
@media (max-width: 900px) { .pair { grid-template-columns: 1fr; } }
"""
COLUMNS = ("groups", "frames/s", "p50, ms", "p99, ms", "GPU, %", "missed")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its page's title and facts, and its numbers by task."""

    title: str
    page: str
    policy: str
    tasks: dict[str, tuple[TaskSummary, Summary]]


def write_pair(path: str, runs: Sequence[tuple[str, dict[str, Any], Part]]) -> None:
    """Write the page for two runs; a process that was started again is the same task."""
    sides = [_side(*run) for run in runs]
    style = css_of_page() + STYLE
    # What is inside of a frame made here obeys this page's policy, too.
    inner = " ".join(dict.fromkeys(word for side in sides for word in side.policy.split()))
    policy = f"default-src 'none'; script-src {inner}; style-src {hash_of(style)} {inner}"
    title = html.escape(" and ".join(side.title for side in sides))
    frames = "".join(
        f'<iframe title="{html.escape(side.title)}" srcdoc="{html.escape(side.page)}"></iframe>'
        for side in sides
    )
    text = (
        '<!doctype html>\n<html lang="en" data-ready="yes"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">'
        f"<title>{title} · Headway</title><style>{style}</style></head><body>"
        f'<header><h1><span class="brand">Headway</span> {title}</h1></header>'
        '<main><section class="card wide"><div class="scroll">'
        f"{_table(sides)}</div></section></main>"
        f'<div class="pair">{frames}</div></body></html>\n'
    )
    with whole_or_nothing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _side(title: str, facts: dict[str, Any], part: Part) -> Side:
    page = text_of(part.history, title=title, facts=facts, from_ns=part.from_ns, to_ns=part.to_ns)
    summary = summarise(part.history, part.from_ns, part.to_ns)
    tasks = {PID.sub("", task.name): (task, summary) for task in summary.tasks}
    return Side(title, page, policy_of(), tasks)


def _cells(side: Side, name: str) -> list[float | None]:
    if name not in side.tasks:
        return [None] * len(COLUMNS)
    task, summary = side.tasks[name]
    whole_ns = summary.duration_ns or 1
    return [
        task.groups,
        summary.fps(task) if task.frames else None,
        percentile(task.responses_ns, 0.5) / 1e6 if task.groups else None,
        percentile(task.responses_ns, 0.99) / 1e6 if task.groups else None,
        100 * task.gpu_ns / whole_ns,
        task.missed if task.deadlines else None,
    ]


def _table(sides: Sequence[Side]) -> str:
    """A row for each task of either, each number of both next to the other."""
    names = dict.fromkeys(name for side in sides for name in side.tasks)
    head = "".join(f'<th scope="col">{column}</th>' for column in COLUMNS)
    rows = []
    for name in names:
        first, second = (_cells(side, name) for side in sides)
        cells = "".join(
            f'<td class="n">{_shown(a)} → {_shown(b)}</td>'
            for a, b in zip(first, second, strict=True)
        )
        rows.append(f'<tr><th scope="row">{html.escape(name)}</th>{cells}</tr>')
    return f'<table id="different"><thead><tr><th></th>{head}</tr></thead>{"".join(rows)}</table>'


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
