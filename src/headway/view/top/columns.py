"""The columns of `headway top`: each with its meaning, its width, how it sorts and how it looks."""

from __future__ import annotations

import functools
import pwd
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.engine.units import format_ns
from headway.view.top.rows import Row
from headway.view.top.text import (
    ASCII,
    UNKNOWN,
    Cell,
    Glyphs,
    Line,
    budget_label,
    clean,
    count,
    duration,
    fit,
    meter,
    percent,
    rate,
    sparkline,
)

STATE_TONES = {
    "launched": "dim",
    "unmanaged": "bad",
    "running": "good",
    "leased": "good",
    "waiting": "warn",
    "budget": "bad",
}
LOW_BUDGET = 0.25
GAP = 1
USUAL = 80
"""Columns of a terminal. On a narrower one, where many columns are left out anyway, a name is worth
a third of the width."""


@dataclass(frozen=True, slots=True)
class Column:
    """`least` cells or it is not shown; up to `most` where there is room. The smaller `place`, the
    longer it stays when the terminal gets narrow."""

    title: str
    help: str
    least: int
    most: int
    place: int
    value: Callable[[Row], Any]
    """What sorts; None goes last."""
    cell: Callable[[Row, int, Glyphs], Cell]
    left: bool = False
    """Text: aligned to the left, and sorted from A."""
    likes: int = 0
    """Cells that it takes before less important columns get any."""


def _plain(
    text: Callable[[Row], str], tone: Callable[[Row], str] = lambda row: "", *, left: bool = False
) -> Callable[[Row, int, Glyphs], Cell]:
    def cell(row: Row, width: int, glyphs: Glyphs) -> Cell:
        shown = text(row)
        return [(fit(shown, width, glyphs, left=left), "dim" if shown == UNKNOWN else tone(row))]

    return cell


def _name(row: Row, width: int, glyphs: Glyphs) -> Cell:
    tone = "front" if row.foreground else "dim" if row.background else "name"
    name = clean(row.program, ascii_only=glyphs is ASCII)
    if row.contexts > 1:
        name = fit(name, max(1, width - len(f" x{row.contexts}") - 2 * row.foreground), glyphs)
        name = f"{name.rstrip()} x{row.contexts}"
    return [(fit(("> " if row.foreground else "") + name, width, glyphs), tone)]


def priority_text(row: Row, glyphs: Glyphs) -> str:
    """1, rm@3, bg; 1→9 where 9 is inherited; *→ where it is a better place at the same level."""
    own = "bg" if row.lowest else row.priority or UNKNOWN
    return own + (glyphs.arrow if row.inherits else "") + (str(row.effective) if row.raised else "")


def _priority(row: Row, width: int, glyphs: Glyphs) -> Cell:
    tone = "warn" if row.inherits else "dim" if row.background else ""
    return [(fit(priority_text(row, glyphs), width, glyphs, left=False), tone)]


def _budget(row: Row, width: int, glyphs: Glyphs) -> Cell:
    if row.budget_ns is None or not row.capacity_ns:
        return [(fit(UNKNOWN, width, glyphs, left=False), "dim")]
    part = row.budget_ns / row.capacity_ns
    tone = "bad" if part <= 0 else "warn" if part < LOW_BUDGET else "good"
    return meter(part, budget_label(row.budget_ns, row.capacity_ns), width, tone)


def reserve_text(row: Row) -> str:
    if row.capacity_ns is None or row.period_ns is None:
        return UNKNOWN
    return f"{format_ns(row.capacity_ns)}/{format_ns(row.period_ns)}"


def _past(row: Row, width: int, glyphs: Glyphs) -> Cell:
    return [(sparkline(row.past, width, glyphs), "spark")]


@functools.lru_cache(maxsize=256)
def _user(uid: int | None) -> str:
    if uid is None:
        return UNKNOWN
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _part(row: Row) -> float | None:
    if row.budget_ns is None or not row.capacity_ns:
        return None
    return row.budget_ns / row.capacity_ns


COLUMNS: tuple[Column, ...] = (
    Column(
        "TASK", "program; > before the one in the foreground window",
        12, 28, 0, lambda r: r.name.casefold(), _name, left=True, likes=20,
    ),
    Column(
        "PID", "process", 7, 7, 13, lambda r: r.pid,
        _plain(lambda r: UNKNOWN if r.pid is None else str(r.pid)),
    ),
    Column(
        "USER", "whose program it is", 8, 12, 14, lambda r: _user(r.uid),
        _plain(lambda r: clean(_user(r.uid)), left=True), left=True,
    ),
    Column(
        "POL", "scheduling policy", 4, 6, 7, lambda r: r.policy,
        _plain(lambda r: r.policy or UNKNOWN, left=True), left=True,
    ),
    Column(
        "PRIO", "larger goes first; 1→9: own and inherited; bg: Background",
        5, 8, 1, lambda r: r.effective, _priority,
    ),
    Column(
        "BUDGET", "what is left of the reserve's capacity; below zero is debt",
        13, 20, 4, _part, _budget,
    ),
    Column(
        "RESERVE", "capacity every period", 11, 13, 12,
        lambda r: (r.capacity_ns / r.period_ns) if r.capacity_ns and r.period_ns else None,
        _plain(reserve_text),
    ),
    Column(
        "Q", "groups that wait for the GPU now", 1, 2, 11, lambda r: r.queued,
        _plain(lambda r: count(r.queued), lambda r: "warn" if r.queued else "dim"),
    ),
    Column(
        "FPS", "frames shown per second", 5, 6, 2, lambda r: r.fps, _plain(lambda r: rate(r.fps)),
    ),
    Column(
        "GPU%", "share of the GPU's time", 4, 5, 3, lambda r: r.gpu_share,
        _plain(lambda r: percent(r.gpu_share)),
    ),
    Column(
        "SM%", "share of the multiprocessors that it may use beside others, if not all", 4, 5, 16,
        lambda r: r.multiprocessors, _plain(lambda r: percent(r.multiprocessors)),
    ),
    Column(
        "P50", "half of the groups waited no longer than this", 5, 6, 9, lambda r: r.wait_p50_ns,
        _plain(lambda r: duration(r.wait_p50_ns)),
    ),
    Column(
        "P99", "99 of 100 groups waited no longer than this", 5, 6, 6, lambda r: r.wait_p99_ns,
        _plain(lambda r: duration(r.wait_p99_ns)),
    ),
    Column(
        "MISS", "deadlines missed", 4, 5, 8, lambda r: r.misses,
        _plain(lambda r: count(r.misses), lambda r: "bad" if r.misses else "dim"),
    ),
    Column(
        "ERR%", "half of the last groups' costs were predicted this near", 4, 5, 15,
        lambda r: r.prediction_error, _plain(lambda r: percent(r.prediction_error)),
    ),
    Column(
        "STATE", "running, leased (runs without asking), waiting, budget (waits for budget), idle,"
        " started (no GPU yet), outside (unmanaged)",
        7, 8, 5, lambda r: r.state,
        _plain(
            lambda r: r.state or UNKNOWN, lambda r: STATE_TONES.get(r.state, "dim"), left=True
        ),
        left=True,
    ),
    Column(
        "GROUPS", "groups submitted so far", 6, 7, 15, lambda r: r.groups,
        _plain(lambda r: count(r.groups)),
    ),
    Column(
        "GPU", "number of the GPU that its work goes to", 3, 5, 16, lambda r: r.gpu or None,
        _plain(lambda r: r.gpu or UNKNOWN),
    ),
    Column(
        "TREND", "frames per second, else the share of the GPU, one bar per refresh",
        6, 60, 10, lambda r: r.past[-1] if r.past else None, _past, left=True, likes=16,
    ),
)  # fmt: skip
BY_TITLE = {column.title: column for column in COLUMNS}

Layout = list[tuple[Column, int]]


def arrange(width: int, skip: int = 0) -> Layout:
    """The columns that fit, most important first, in their usual order, and as wide as they may be.

    With `skip`, as many of those after the first are left out, which makes room for those further
    to the right.
    """
    first, *rest = COLUMNS
    name = first.least if width >= USUAL else max(first.least, min(first.likes, width // 3))
    chosen = {first.title: min(name, max(1, width))}
    room = width - chosen[first.title]
    for column in sorted(rest[skip:], key=lambda column: column.place):
        if room >= column.least + GAP:
            chosen[column.title] = max(column.least, min(column.likes, room - GAP))
            room -= chosen[column.title] + GAP
    growing = [column for column in COLUMNS if column.title in chosen]
    while room > 0 and growing:
        growing = [c for c in growing if chosen[c.title] < c.most]
        for column in growing[:room]:
            chosen[column.title] += 1
        room -= len(growing[:room])
    return [(column, chosen[column.title]) for column in COLUMNS if column.title in chosen]


def ordered(rows: Iterable[Row], column: Column, *, inverted: bool = False) -> list[Row]:
    """By one column: numbers from the largest, text from A, equals by name, the unknown last."""
    named = sorted(rows, key=lambda row: row.name)
    known = [row for row in named if column.value(row) is not None]
    unknown = [row for row in named if column.value(row) is None]
    return sorted(known, key=column.value, reverse=column.left == inverted) + unknown


def titles(layout: Layout, column: Column, glyphs: Glyphs, *, inverted: bool = False) -> Line:
    """The line over the rows, with the sorted column marked by its direction."""
    line: Line = []
    for shown, width in layout:
        title = shown.title
        if shown is column:
            mark = glyphs.up if shown.left != inverted else glyphs.down
            title = (title + mark) if len(title) < width else title
        tone = "sorted" if shown is column else "title"
        line += [(fit(title, width, glyphs, left=shown.left), tone), (" " * GAP, "title")]
    return line[:-1]


def cells(row: Row, layout: Layout, glyphs: Glyphs) -> Line:
    """One row as a line."""
    line: Line = []
    for column, width in layout:
        line += [*column.cell(row, width, glyphs), (" " * GAP, "")]
    return line[:-1]


def column_at(layout: Layout, x: int) -> Column | None:
    """Which column a click on the titles is meant for."""
    for column, width in layout:
        if x < width + GAP:
            return column
        x -= width + GAP
    return None


def neighbour(column: Column, layout: Layout, step: int) -> Column:
    """The next column to sort by, among those one sees."""
    shown: Sequence[Column] = [c for c, _ in layout]
    if column not in shown:
        return shown[0]
    return shown[(shown.index(column) + step) % len(shown)]
