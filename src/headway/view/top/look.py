"""From tones to styles: the terminal's own colours, or none at all."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from headway.view.top.text import Line

COLOURED = {
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "dim": "bright_black",
    "title": "black on green",
    "sorted": "black on cyan",
    "label": "cyan",
    "spark": "cyan",
    "frame": "bold",
    "front": "bold bright_white",
    "cursor": "black on cyan",
    "key": "bold",
    "word": "black on cyan",
    "error": "bold red",
    "ok": "green",
}
PLAIN = {
    "bad": "bold",
    "dim": "dim",
    "title": "bold underline",
    "sorted": "bold reverse",
    "frame": "bold",
    "front": "bold",
    "cursor": "reverse",
    "key": "bold",
    "word": "reverse",
    "error": "bold",
}


class Look:
    """How tones look on this terminal."""

    def __init__(self, *, colour: bool) -> None:
        self._styles = {
            tone: Style.parse(style) for tone, style in (COLOURED if colour else PLAIN).items()
        }
        self._none = Style.null()

    def style(self, tone: str) -> Style:
        return self._styles.get(tone, self._none)

    def strip(self, line: Line, width: int, fill: str = "") -> Strip:
        """A line as the screen takes it, the rest of it filled."""
        segments = [Segment(text, self.style(tone)) for text, tone in line if text]
        return Strip(segments).adjust_cell_length(width, self.style(fill))

    def cursor(self, line: Line, width: int) -> Strip:
        """The chosen row: one style from end to end, so that it is readable on any terminal."""
        return self.strip([(text, "cursor") for text, _ in line], width, "cursor")
