"""What the screen is made of. Every line is drawn from its parts: no text is read as markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from headway.view.top.columns import Layout, cells
from headway.view.top.look import Look
from headway.view.top.rows import Row
from headway.view.top.text import Glyphs, Line


class Lines(Widget):
    """A few lines that are made anew whenever they are drawn."""

    class Clicked(Message):
        """Somebody clicked into one of these."""

        def __init__(self, lines: Lines, x: int) -> None:
            super().__init__()
            self.lines = lines
            self.x = x

        @property
        def control(self) -> Lines:
            return self.lines

    def __init__(self, look: Look, make: Callable[[int], Sequence[Line]], *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._look = look
        self._make = make

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        lines = self._make(width)
        return self._look.strip(lines[y] if y < len(lines) else [], width)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Clicked(self, event.x))


class Typed(Input):
    """A line that takes its keys in the order in which they come. Textual's own takes letters at
    once and the others by a detour, which turns them round when several come together."""

    class Left(Message):
        """A key or click that this widget leaves to others."""

    class Next(Message):
        """F3: again."""

    async def _on_key(self, event: events.Key) -> None:
        edits = {
            "backspace": self.action_delete_left,
            "delete": self.action_delete_right,
            "left": self.action_cursor_left,
            "right": self.action_cursor_right,
            "home": self.action_home,
            "end": self.action_end,
            "ctrl+u": self.action_delete_left_all,
        }
        if event.key in edits:
            edits[event.key]()
        elif event.key == "enter":
            await self.action_submit()
        elif event.key in ("escape", "f10", "ctrl+c"):
            self.post_message(self.Left())
        elif event.key == "f3":
            self.post_message(self.Next())
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()


class Tasks(ScrollView, can_focus=True):
    """The rows. Only those that one sees are drawn; the chosen task stays chosen when rows move."""

    BINDINGS = [  # here, because a view that scrolls has its own idea of these keys
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move_page(-1)", show=False, priority=True),
        Binding("pagedown", "move_page(1)", show=False, priority=True),
        Binding("home", "first", show=False, priority=True),
        Binding("end", "last", show=False, priority=True),
        Binding("left", "app.skip(-1)", show=False, priority=True),
        Binding("right", "app.skip(1)", show=False, priority=True),
    ]

    class Moved(Message):
        """Another task is chosen."""

    def __init__(self, look: Look, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._look = look
        self._glyphs = glyphs
        self._layout: Layout = []
        self.rows: list[Row] = []
        self.faded = False
        """What is shown is from before the daemon went."""
        self._chosen: str | None = None

    @property
    def index(self) -> int:
        """Where the chosen task is now."""
        return next((i for i, row in enumerate(self.rows) if row.task == self._chosen), 0)

    @property
    def chosen(self) -> Row | None:
        return self.rows[self.index] if self.rows else None

    def show(self, rows: list[Row], layout: Layout) -> None:
        before = self.index
        self.rows = rows
        self._layout = layout
        if self._chosen not in {row.task for row in rows}:
            # It is gone: the one that took its place is next.
            self._chosen = rows[min(before, len(rows) - 1)].task if rows else None
        self.virtual_size = Size(self.size.width, len(rows))
        if self.index != before:  # else the view stays where the mouse wheel left it
            self._reveal()
        self.refresh()

    def choose(self, index: int) -> None:
        if self.rows:
            self._chosen = self.rows[min(max(0, index), len(self.rows) - 1)].task
            self._reveal()
            self.refresh()
            self.post_message(self.Moved())

    def action_move(self, step: int) -> None:
        self.choose(self.index + step)

    def action_move_page(self, step: int) -> None:
        self.action_move(step * max(1, self.size.height))

    def action_first(self) -> None:
        self.choose(0)

    def action_last(self) -> None:
        self.choose(len(self.rows) - 1)

    def _reveal(self) -> None:
        self.scroll_to_region(
            Region(0, self.index, 1, 1), animate=False, force=True, x_axis=False, immediate=True
        )

    def on_resize(self) -> None:
        self._reveal()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        index = y + self.scroll_offset.y
        if index >= len(self.rows):
            return Strip.blank(width)
        row = self.rows[index]
        line = cells(row, self._layout, self._glyphs)
        if index == self.index:
            return self._look.cursor(line, width)
        if self.faded:
            line = [(text, "dim") for text, _ in line]
        return self._look.strip(line, width)

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y
        if index < len(self.rows):
            self.choose(index)
