"""`headway top` where there is no screen to draw on: one table, or one JSON object, per refresh."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.text import Text

from headway.view.top.columns import BY_TITLE, arrange, cells, ordered, titles
from headway.view.top.folding import fold
from headway.view.top.rows import Board
from headway.view.top.summary import header
from headway.view.top.text import Glyphs, Line

SCHEMA = 1
TONES = {
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "dim": "dim",
    "title": "bold",
    "sorted": "bold",
    "label": "cyan",
    "spark": "cyan",
    "front": "bold",
}


def table(board: Board, width: int, glyphs: Glyphs) -> Text:
    """What the screen would show, all rows of it."""
    layout = arrange(width)
    column = BY_TITLE["PRIO"]
    lines = [*header(board, width, glyphs), titles(layout, column, glyphs)]
    lines += [cells(row, layout, glyphs) for row in ordered(fold(board.rows), column)]
    lines += [[(f"{row.name}: {row.note}", "dim")] for row in board.rows if row.note]
    return Text("\n").join(styled(line) for line in lines)


def styled(line: Line) -> Text:
    text = Text(no_wrap=True, end="")
    for part, tone in line:
        text.append(part, TONES.get(tone))
    text.rstrip()
    return text


def as_json(board: Board) -> str:
    """One line. Unknown is null; durations are nanoseconds, shares are from 0 to 1."""
    entry = asdict(board)
    tasks = entry.pop("rows")
    for task in tasks:
        del task["past"], task["name"], task["contexts"]
    return json.dumps({"schema": SCHEMA, **entry, "tasks": tasks})
