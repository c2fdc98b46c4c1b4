"""What opens over the table: the help, the choice of a column, and the line one types into."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from headway.view.top.columns import COLUMNS, Column
from headway.view.top.text import Glyphs

KEYS = (
    ("Arrows PgUp PgDn Home End", "choose a task; Left, Right: more columns"),
    ("F1 h ?", "this help"),
    ("F3 /", "search a name; F3 goes to the next one"),
    ("F4 \\", "show only names with this in them; a|b: either"),
    ("F6", "choose the column to sort by"),
    ("< >", "sort by the column to the left, to the right"),
    ("I", "invert the order"),
    ("P M T N", "sort by GPU share, misses, wait (p99), pid"),
    ("F7 -   F8 +", "lower or raise the priority by one"),
    ("p", "set the priority: a number, *, rm, edf, rm@5"),
    ("r", "set the reserve: 5ms/20ms, 5ms/20ms:ae"),
    ("F5 t", "a row for each context of a program, or one for all"),
    ("y", "set the policy: prt, ht, ..."),
    ("F10 q Ctrl-C", "quit"),
)
NO_KILL = "Headway ends no programs, so F9 and k do nothing: kill PID does."


def _two_columns(entries: Iterable[tuple[str, str]]) -> Table:
    """Words and their meanings; a meaning that is too long goes on below itself."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for word, meaning in entries:
        table.add_row(Text(word), Text(meaning))
    return table


class Closing(ModalScreen[Column | None]):
    """A window that the usual keys close."""

    BINDINGS = [Binding("escape,q,f10,ctrl+c", "close", show=False)]

    def action_close(self) -> None:
        self.dismiss(None)


class Help(Closing):
    """Keys and columns."""

    BINDINGS = [Binding("f1,h,question_mark,enter,space", "close", show=False)]

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._arrow = glyphs.arrow

    def compose(self) -> ComposeResult:
        columns = [(column.title, column.help.replace("→", self._arrow)) for column in COLUMNS]
        with VerticalScroll(id="help") as window:
            window.border_title = "Help: Esc closes it, Up and Down scroll it"
            yield Static(_two_columns(KEYS))
            yield Static(f"{NO_KILL}\n", markup=False)
            yield Static(_two_columns(columns))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class SortBy(Closing):
    """htop's F6: the columns as a list."""

    BINDINGS = [Binding("f6", "close", show=False)]

    def __init__(self, column: Column) -> None:
        super().__init__()
        self._column = column

    def compose(self) -> ComposeResult:
        options = [Option(column.title, id=column.title) for column in COLUMNS]
        menu = OptionList(*options, id="sort", markup=False, compact=True)
        menu.border_title = "Sort by"
        menu.highlighted = COLUMNS.index(self._column)
        yield menu

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(COLUMNS[event.option_index])


@dataclass(frozen=True, slots=True)
class Question:
    """What the line at the bottom asks for, and what is done with what is typed."""

    label: str
    value: str
    hint: str
    typed: Callable[[str], None]
    """With every key."""
    entered: Callable[[str], None]
    """ValueError, in one line: the question stays open."""
    cancelled: Callable[[], None]
