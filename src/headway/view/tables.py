"""Tables of names and numbers, printed as wide as the terminal is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


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
