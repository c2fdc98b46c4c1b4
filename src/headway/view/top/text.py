"""Text of a known width: names that cannot break a line, numbers that line up, bars, sparklines."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from headway.engine.units import NS_PER, format_ns

Part = tuple[str, str]
"""Some text, and its tone: what it means, not how it looks."""
Cell = list[Part]
Line = list[Part]
UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What a terminal can draw."""

    ramp: str
    """Bars from nothing to all; not the full height, or the rows would run into each other."""
    arrow: str
    more: str
    down: str
    up: str


UNICODE = Glyphs("▁▂▃▄▅▆▇", "→", "…", "▽", "△")
ASCII = Glyphs("_.-=+*#", ">", "~", "v", "^")


def clean(text: object, *, ascii_only: bool = False) -> str:
    """Text from elsewhere, safe to put between other text: one line, no escapes, only characters
    whose width all terminals agree on (so no marks that combine with others)."""
    plain = unicodedata.normalize("NFC", str(text))
    kept = (c for c in plain if not unicodedata.category(c).startswith("M"))
    return "".join(c if c.isprintable() and not (ascii_only and c > "~") else "?" for c in kept)


def fit(text: str, width: int, glyphs: Glyphs = UNICODE, *, left: bool = True) -> str:
    """Exactly this many cells; what does not fit is cut, and one sees that it was."""
    if width <= 0:
        return ""
    room = width - cell_len(text)
    if room < 0:
        return set_cell_size(text, width - 1) + glyphs.more
    return text + " " * room if left else " " * room + text


def duration(value_ns: int | None) -> str:
    """Two or three digits and the unit: a column of these can be read downwards."""
    if not value_ns:
        return UNKNOWN if value_ns is None else "0"
    unit = next((u for u in ("s", "ms", "us") if value_ns >= NS_PER[u]), "ns")
    number = value_ns / NS_PER[unit]
    return f"{number:.1f}{unit}" if number < 9.95 and unit != "ns" else f"{number:.0f}{unit}"


def count(value: int | None) -> str:
    """A whole number in four cells or so."""
    if value is None:
        return UNKNOWN
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= 10 * size:
            return f"{value // size}{unit}"
    return str(value)


def rate(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 99.95 else count(round(value))


def percent(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{100 * value:.1f}" if value < 0.9995 else "100"


def clock(seconds: float | None) -> str:
    """How long something runs: 2d 03:04:05."""
    if seconds is None:
        return UNKNOWN
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}d " if days else "") + f"{hour:02}:{minute:02}:{second:02}"


def meter(fraction: float, label: str, width: int, tone: str) -> Cell:
    """htop's meter: [|||||     label], the label over the bar where both need the room."""
    inside = max(0, width - 2)
    label = label if cell_len(label) <= inside else ""
    filled = round(min(1.0, max(0.0, fraction)) * inside)
    start = inside - cell_len(label)
    bar = "|" * min(filled, start)
    over = label[: max(0, filled - start)]
    return [
        ("[", "frame"),
        (bar, tone),
        (" " * (start - len(bar)), ""),
        (over, tone),
        (label[len(over) :], tone),
        ("]", "frame"),
    ]


def budget_label(budget_ns: int, capacity_ns: int) -> str:
    """What is left of what: 3.1/5ms, in the unit of the capacity."""
    whole = format_ns(capacity_ns)
    unit = whole.lstrip("0123456789.")
    left = f"{budget_ns / NS_PER[unit]:.1f}"
    return f"{'0.0' if left == '-0.0' else left}/{whole}"


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs) -> str:
    """The last values as a row of bars; the largest of them has full height."""
    shown = list(values)[-width:] if width > 0 else []
    top = max(shown, default=0.0)
    last = len(glyphs.ramp) - 1
    # Only nothing is the lowest bar: a task that does a little must not look idle.
    bars = [glyphs.ramp[0 if v <= 0 else max(1, round(v / top * last))] for v in shown]
    return " " * (width - len(bars)) + "".join(bars)


def size(count: int) -> str:
    """Bytes as people say them: 812 MiB, 71.2 GiB."""
    if count < 1 << 30:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count / (1 << 30):.1f} GiB"
