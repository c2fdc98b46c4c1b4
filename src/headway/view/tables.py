"""Tables of names and numbers, printed as wide as the terminal is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

LEAST_NAME = 12
"""Cells that names of tasks get in any case."""

Row = tuple[str, list[str]]
"""A name and a number for each run; without numbers it is a title."""


def new_console(**settings: Any) -> Console:
    """Prints text as it is: [red] or :bug: in a name that somebody chose mean nothing."""
    return Console(markup=False, emoji=False, highlight=False, **settings)


def new_table(title: str) -> Table:
    """Tables that fit 80 columns."""
    return Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )


def counted(number: int, what: str) -> str:
    """1 grant, 2 grants."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def side_by_side(console: Console, title: str, names: list[str], rows: list[Row]) -> Table:
    """Numbers are whole at any width; names get what room is left, and go on in the next line."""
    numbers = [
        max((cell_len(cells[place]) for _, cells in rows if cells), default=1)
        for place in range(len(names))
    ]
    words = [
        max(number, *map(cell_len, name.split() or [""]))
        for name, number in zip(names, numbers, strict=True)
    ]
    between = 2 * len(names) + 3
    longest = max(cell_len(name) for name, _ in rows)
    least = words if console.width - sum(words) - between >= LEAST_NAME else numbers
    room = console.width - sum(least) - between
    table = new_table(title)
    table.add_column("", overflow="fold", width=max(LEAST_NAME, min(longest, room)))
    for name, width in zip(names, least, strict=True):
        table.add_column(name, justify="right", min_width=width, overflow="fold")
    for name, cells in rows:
        if not cells:
            table.add_section()
        table.add_row(name, *cells, style="" if cells else "bold")
    return table


def print_rows(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    leave_out: Sequence[str] = (),
) -> None:
    """A table of names and numbers. On a terminal that is too narrow the columns in `leave_out` go,
    one by one, before a name is cut."""
    shown, lines = list(columns), list(rows)
    gone = iter(leave_out)
    while True:
        table = new_table("")
        for column in shown:
            if column == columns[0]:
                table.add_column(column, overflow="fold")
            else:
                table.add_column(column, justify="right", no_wrap=True)
        for line in lines:
            table.add_row(
                *(cell for name, cell in zip(columns, line, strict=True) if name in shown)
            )
        wide = console.options.update(max_width=sys.maxsize)
        column = next(gone, "")
        if not column or console.measure(table, options=wide).maximum <= console.width:
            break
        shown.remove(column)
    console.print(table)
