"""The screen of `headway top`, with the keys that htop taught people's fingers."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label

from headway.engine.model import MAX_LEVEL
from headway.engine.policies import policies
from headway.engine.priorities import PriorityRule, parse_priority
from headway.live.identity.options import parse_reserve
from headway.view.top.columns import (
    BY_TITLE,
    COLUMNS,
    Column,
    Layout,
    arrange,
    column_at,
    neighbour,
    ordered,
    reserve_text,
    titles,
)
from headway.view.top.dialogs import NO_KILL, Help, Question, SortBy
from headway.view.top.folding import fold
from headway.view.top.link import Answer, Ask, Gone, Link, News, Status
from headway.view.top.look import Look
from headway.view.top.rows import Board, Past, Row, matching
from headway.view.top.summary import about, cut, header
from headway.view.top.text import ASCII, Glyphs, Line, clean, fit
from headway.view.top.widgets import Lines, Tasks, Typed

MESSAGE_S = 6.0
"""How long the answer to a change stays."""
FOOTER = (
    ("F1", "Help", "help"),
    ("F3", "Search", "search"),
    ("F4", "Filter", "filter"),
    ("F6", "Sort", "sort"),
    ("F7", "Prio-", "priority_by(-1)"),
    ("F8", "Prio+", "priority_by(1)"),
    ("p", "Prio", "priority"),
    ("r", "Reserve", "reserve"),
    ("F10", "Quit", "quit"),
)
CSS = """
Screen { layout: vertical; background: ansi_default; }
#header { height: 2; }
#titles, #about, #footer { height: 1; }
#tasks { height: 1fr; scrollbar-size: 0 0; background: ansi_default; }
#prompt { height: 1; display: none; }
#prompt Label { width: auto; max-width: 60%; text-style: bold; padding: 0 1 0 0; }
#prompt Input { width: 1fr; background: ansi_default; }
Help, SortBy { align: center middle; background: transparent; }
#help {
    width: 82; max-width: 100%; height: auto; max-height: 100%; padding: 0 1;
    border: round ansi_cyan; background: ansi_default; scrollbar-size: 0 0;
}
#sort {
    width: 24; height: auto; max-height: 100%;
    border: round ansi_cyan; background: ansi_default;
}
#sort > .option-list--option-highlighted { color: ansi_black; background: ansi_cyan; }
#sort:nocolor > .option-list--option-highlighted { text-style: bold underline; }
.-ascii #help, .-ascii #sort { border: ascii ansi_cyan; }
Input > .input--cursor { color: ansi_default; background: ansi_default; text-style: reverse; }
"""


def _key(keys: str, action: str) -> Binding:
    """At once, before the next key is looked at: over a slow line several come together, and what
    F8 changes must be what the arrow before it chose."""
    return Binding(keys, action, show=False, priority=True)


class Heard(Message):
    """The thread that talks to the daemon has something."""

    def __init__(self, news: News) -> None:
        super().__init__()
        self.news = news


class Top(App[None]):
    """Tasks, one a row, and the GPU above them."""

    CSS = CSS
    TITLE = "headway top"
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False
    BINDINGS: ClassVar = [
        _key("f10,q,ctrl+c", "quit"),
        _key("ctrl+z", "suspend_process"),
        _key("f1,h,question_mark", "help"),
        _key("f3,slash", "search"),
        _key("f4,backslash", "filter"),
        _key("f6", "sort"),
        _key("less_than_sign", "sort_by(-1)"),
        _key("greater_than_sign", "sort_by(1)"),
        _key("I", "invert"),
        _key("P", "sort_column('GPU%')"),
        _key("M", "sort_column('MISS')"),
        _key("T", "sort_column('P99')"),
        _key("N", "sort_column('PID')"),
        _key("f7,minus", "priority_by(-1)"),
        _key("f8,plus,equals_sign", "priority_by(1)"),
        _key("f9,k", "kill"),
        _key("p", "priority"),
        _key("r", "reserve"),
        _key("y", "policy"),
        _key("t,f5", "unfold"),
    ]

    def __init__(
        self, ask: Ask, *, interval_s: float, glyphs: Glyphs, colour: bool, board: Board
    ) -> None:
        super().__init__(ansi_color=True)
        self.set_class(glyphs is ASCII, "-ascii")
        self.look = Look(colour=colour)
        self.glyphs = glyphs
        self.board = board
        self.past = Past()
        self.sorted_by: Column = BY_TITLE["PRIO"]
        self.inverted = False
        self.pattern = ""
        self.skipped = 0
        self.unfolded = False
        """Contexts of one process have a row each."""
        self.gone = ""
        self._question: Question | None = None
        self._error = ""
        """What is wrong with what was typed."""
        self._message: tuple[str, bool] = ("", True)
        self._message_ends: object = None
        self._wanted: dict[str, PriorityRule] = {}
        """Priorities that were asked for and not seen yet: two keys in a row are two steps."""
        self._unanswered = 0
        self.tasks = Tasks(self.look, glyphs, id="tasks")
        self._line = Typed(compact=True, select_on_focus=False)
        self._link = Link(ask, interval_s, lambda news: self.post_message(Heard(news)))

    # -- what is on the screen ---------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Lines(self.look, lambda width: header(self.board, width, self.glyphs), id="header")
        yield Lines(self.look, self._titles, id="titles")
        yield self.tasks
        yield Lines(self.look, self._about, id="about")
        yield Lines(self.look, lambda width: [self._footer(width)], id="footer")
        with Horizontal(id="prompt"):
            yield Label("", markup=False)
            yield self._line

    def on_mount(self) -> None:
        if threading.current_thread() is threading.main_thread():
            ended = 128 + signal.SIGTERM
            asyncio.get_running_loop().add_signal_handler(
                signal.SIGTERM, lambda: self.exit(return_code=ended)
            )
        self.tasks.focus()
        self._update()
        self._link.start()

    def on_unmount(self) -> None:
        self._link.stop()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._update)

    def _layout(self) -> Layout:
        return arrange(self.size.width, self.skipped)

    def _update(self) -> None:
        """Everything that may have changed is drawn anew."""
        if not self.tasks.is_attached:  # the end has begun, and this is late
            return
        rows = self.board.rows if self.unfolded else fold(self.board.rows)
        rows = ordered(matching(rows, self.pattern), self.sorted_by, inverted=self.inverted)
        self.query_one("#header").styles.height = 2 + len(self.board.devices)
        self.tasks.faded = bool(self.gone)
        self.tasks.show(rows, self._layout())
        for lines in self.query(Lines):
            lines.refresh()

    def _titles(self, width: int) -> list[Line]:
        line = titles(self._layout(), self.sorted_by, self.glyphs, inverted=self.inverted)
        return [[*line, (" " * width, "title")]]

    def _about(self, width: int) -> list[Line]:
        """One line, by urgency: a mistake, no daemon, an answer, the chosen task."""
        text, done = self._message
        row = self.tasks.chosen
        if self._error:
            line: Line = [(self._error, "error")]
        elif text:
            line = [(text, "ok" if done else "error")]
        elif self.gone:
            line = [(f"waiting for a daemon: {self.gone}", "error")]
        elif row is None:
            nobody = "no task matches the filter" if self.board.rows else "no task yet"
            line = [(f"{nobody}; headway run -- PROGRAM starts one", "dim")]
        else:
            line = [(about(row), "dim")]
        place = f" {self.tasks.index + 1}/{len(self.tasks.rows)}" if row else ""
        if self.pattern:
            place = f" filter: {clean(self.pattern, ascii_only=self.glyphs is ASCII)} {place}"
        line = [(clean(part, ascii_only=self.glyphs is ASCII), tone) for part, tone in line]
        return [[*cut(line, max(0, width - cell_len(place)), self.glyphs), (place, "dim")]]

    def _footer(self, width: int) -> Line:
        line: Line = []
        for key, word, _ in FOOTER:
            line += [(key, "key"), (f"{word:<5}", "word"), (" ", "")]
        return cut(line, width, self.glyphs)

    # -- what the daemon says ----------------------------------------------------------------

    def on_heard(self, event: Heard) -> None:
        match event.news:
            case Status(status):
                self.gone = ""
                self.board = self.past.read(status)
                if not self._unanswered:
                    self._wanted.clear()
            case Gone(why):
                self.gone = why
            case Answer(text, done):
                self._unanswered -= 1
                self.say(text, done=done)
        self._update()

    def say(self, text: str, *, done: bool = True) -> None:
        """Show a line for some seconds."""
        self._message = (text, done)
        self._message_ends = ends = object()

        def end() -> None:
            if self._message_ends is ends:
                self._message = ("", True)
                self._update()

        self.set_timer(MESSAGE_S, end)
        self._update()

    def _change(self, row: Row, **changes: str) -> None:
        if not row.is_served:
            self.say(f"{row.name} is {row.state}: the daemon does not know it", done=False)
            return
        self._unanswered += 1
        self._link.send({"task": row.task if row.contexts == 1 else str(row.pid), **changes})

    # -- keys --------------------------------------------------------------------------------

    def action_help(self) -> None:
        self.push_screen(Help(self.glyphs))

    def action_kill(self) -> None:
        self.say(NO_KILL, done=False)

    def action_skip(self, step: int) -> None:
        fits_all = len(self._layout()) == len(COLUMNS) - self.skipped
        if step < 0 or not fits_all:
            self.skipped = max(0, self.skipped + step)
        self._update()

    def action_sort(self) -> None:
        def chosen(column: Column | None) -> None:
            if column is not None:
                self._sort(column)

        self.push_screen(SortBy(self.sorted_by), chosen)

    def action_sort_by(self, step: int) -> None:
        self._sort(neighbour(self.sorted_by, self._layout(), step))

    def action_sort_column(self, title: str) -> None:
        self._sort(BY_TITLE[title])

    def action_unfold(self) -> None:
        self.unfolded = not self.unfolded
        self._update()

    def action_invert(self) -> None:
        self.inverted = not self.inverted
        self._update()

    def _sort(self, column: Column) -> None:
        self.sorted_by, self.inverted = column, False
        self._update()

    def on_tasks_moved(self) -> None:
        self._update()

    async def on_lines_clicked(self, event: Lines.Clicked) -> None:
        if event.lines.id == "titles":
            column = column_at(self._layout(), event.x)
            if column is self.sorted_by:
                self.action_invert()
            elif column is not None:
                self._sort(column)
        elif event.lines.id == "footer":
            x = event.x
            for key, word, action in FOOTER:
                x -= len(key) + max(5, len(word)) + 1
                if x < 0:
                    await self.run_action(action)
                    break

    # -- changes -----------------------------------------------------------------------------

    def action_priority_by(self, step: int) -> None:
        """One level up or down, whatever the rule: 5 becomes 6, rm becomes rm@1."""
        row = self.tasks.chosen
        if row is None:
            return
        if row.lowest:
            self.say(f"{row.name} is Background and has none: p gives it one", done=False)
            return
        try:
            rule = self._wanted.get(row.task) or parse_priority(row.priority)
        except ValueError as error:
            self.say(f"{row.name}: expected {error}", done=False)
            return
        wanted = type(rule)(min(MAX_LEVEL, max(-MAX_LEVEL, rule.level + step)))
        self._wanted[row.task] = wanted
        self._change(row, priority=str(wanted))

    def action_priority(self) -> None:
        def check(text: str) -> None:
            try:
                parse_priority(text)
            except ValueError as error:
                raise ValueError(f"priority: found {text!r}, expected {error}") from None

        row = self.tasks.chosen
        now = "" if row is None or row.lowest else row.priority
        self._ask_change("priority", "Priority", now, "a number, larger first, or * rm edf", check)

    def action_reserve(self) -> None:
        row = self.tasks.chosen
        now = "none" if row is None or row.capacity_ns is None else reserve_text(row)
        # Not filled in: whether it is PE or AE is not known here, and must not change unnoticed.
        hint = f"now {now}; C/T or C/T:ae, such as 5ms/20ms"
        self._ask_change("reserve", "Reserve", "", hint, parse_reserve)

    def action_policy(self) -> None:
        def check(text: str) -> None:
            if text not in policies():
                expected = ", ".join(sorted(policies()))
                raise ValueError(f"policy: found {text!r}, expected one of {expected}")

        row = self.tasks.chosen
        now = "" if row is None else row.policy
        self._ask_change("policy", "Policy", now, ", ".join(sorted(policies())), check)

    def _ask_change(
        self, key: str, word: str, now: str, hint: str, check: Callable[[str], object]
    ) -> None:
        """Ask for a value for the task that is chosen now, whatever is chosen by then."""
        row = self.tasks.chosen
        if row is None:
            return

        def entered(text: str) -> None:
            check(text)
            self._change(row, **{key: text})

        self._ask(Question(f"{word} of {row.name}:", now, hint, lambda t: None, entered, _nothing))

    def action_search(self) -> None:
        def typed(text: str) -> None:
            self._find(text, 0)

        self._ask(Question("Search:", "", "part of a name", typed, lambda t: None, _nothing))

    def _find(self, text: str, step: int) -> None:
        """The next row from here that matches."""
        rows, start = self.tasks.rows, self.tasks.index + step
        order = [*range(start, len(rows)), *range(min(start, len(rows)))]
        found = next((i for i in order if matching([rows[i]], text)), None)
        self._error = "" if found is not None or not rows else f"no name with {text!r} in it"
        if found is not None and text:
            self.tasks.choose(found)
        self._update()

    def action_filter(self) -> None:
        def typed(text: str) -> None:
            self.pattern = text
            self._update()

        self._ask(
            Question(
                "Filter:", self.pattern, "part of a name; Esc: all", typed, typed, lambda: typed("")
            )
        )

    # -- the line one types into -------------------------------------------------------------

    def _ask(self, question: Question) -> None:
        self._question = question
        self._show_prompt(True)
        # The label may not push out what is typed.
        room = min(cell_len(question.label), self.size.width // 2)
        self.query_one("#prompt Label", Label).update(fit(question.label, room, self.glyphs))
        self._line.placeholder = question.hint
        self._line.value = question.value
        self._line.cursor_position = len(question.value)
        self.screen.set_focus(self._line)

    def _show_prompt(self, shown: bool) -> None:
        self._error = ""
        self.query_one("#prompt").display = shown
        self.query_one("#footer").display = not shown

    def _close_prompt(self) -> None:
        self._question = None
        self._show_prompt(False)
        self.screen.set_focus(self.tasks)
        self._update()

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._question is not None:
            self._error = ""
            self._question.typed(event.value)
            self._update()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._question is None:
            return
        try:
            self._question.entered(event.value.strip())
        except ValueError as error:
            self._error = " ".join(str(error).split())
            self._update()
        else:
            self._close_prompt()

    def on_typed_left(self) -> None:
        if self._question is not None:
            self._question.cancelled()
            self._close_prompt()

    def on_typed_next(self) -> None:
        if self._question is not None and self._question.label == "Search:":
            self._find(self._line.value, 1)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the table mean nothing in a question or a window."""
        if action == "suspend_process":
            return True
        return self._question is None and len(self.screen_stack) < 2


def _nothing() -> None:
    pass
