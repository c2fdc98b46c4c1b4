"""Reading what people write: every mistake is collected, with its line and key.

A `Table` wraps one TOML table. Its methods take a key out, check it and return a usable value in
any case, so that reading goes on and the next mistake is found too; `Report.problems` decides
afterwards whether the result may be used. `locate` finds the line of a key, which `tomllib` does
not tell.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.engine.units import DurationError, parse_duration

Path = tuple[str | int, ...]
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, what was found, what was expected."""

    line: int | None
    key: str
    found: str
    expected: str

    def describe(self, file: str) -> str:
        """The one line a person sees."""
        where = f"{file}:{self.line}" if self.line is not None else file
        key = f"{self.key}: " if self.key else ""
        return f"{where}: {key}found {self.found}, expected {self.expected}"


class BadInput(ValueError):
    """Input that was refused as a whole."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(problem.describe(file) for problem in problems))
        self.file = file
        self.problems = list(problems)


class Report:
    """Collects problems while a file is read."""

    def __init__(
        self, lines: Mapping[Path, int] | None = None, problems: Iterable[Problem] = ()
    ) -> None:
        self.problems = list(problems)
        self._lines = lines or {}

    def line_of(self, path: Path) -> int | None:
        """The line of this key, or of the nearest one around it."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None

    def add(self, path: Path, found: str, expected: str) -> None:
        self.problems.append(Problem(self.line_of(path), dotted(path), found, expected))

    def add_at(self, line: int, key: str, found: str, expected: str) -> None:
        """Report a mistake whose line is known already."""
        self.problems.append(Problem(line, key, found, expected))

    def raise_if_any(self, file: str) -> None:
        if self.problems:
            raise BadInput(file, sorted(self.problems, key=lambda p: p.line or 0))


def dotted(path: Path) -> str:
    """A path as people write it: task[0].reserve.period."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """A found value, short enough for one line."""
    if value is None:
        return "nothing"
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    text = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
    return text.replace("\n", " ")


def one_of(names: Iterable[str]) -> str:
    """A list of choices for the expected part of a message."""
    *head, last = sorted(names)
    return f"{', '.join(head)} or {last}" if head else last


class Table:
    """One table of a file; take its keys out one by one, then call `close`."""

    def __init__(self, data: Mapping[str, Any], path: Path, report: Report) -> None:
        self._data = dict(data)
        self._known: list[str] = []
        self.path = path
        self.report = report

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def items(self) -> Iterable[tuple[str, Any]]:
        """What nobody took yet."""
        return self._data.items()

    def bad(self, key: str, found: object, expected: str) -> None:
        """Report a value of this table."""
        path = (*self.path, key) if key else self.path
        self.report.add(path, found if isinstance(found, str) else shown(found), expected)

    def peek(self, key: str) -> Any:
        """The raw value, left where it is."""
        return self._data.get(key)

    def take(self, key: str) -> Any:
        """The raw value, or None."""
        self._known.append(key)
        return self._data.pop(key, None)

    def duration(
        self, key: str, default: int | None = None, *, least: int = 0, required: bool = False
    ) -> int:
        """A duration in ns of at least `least` (1: more than zero)."""
        value = self.take(key)
        fallback = default if default is not None else max(least, 1)
        if value is None:
            if required:
                self.bad(key, "nothing", 'a duration, such as "5ms"')
            return fallback
        try:
            duration_ns = parse_duration(value)
        except DurationError as error:
            self.bad(key, shown(value), str(error))
            return fallback
        if duration_ns < least:
            self.bad(key, shown(value), "more than zero" if least == 1 else f"at least {least}ns")
            return fallback
        return duration_ns

    def durations(self, key: str, default: tuple[int, int], *, least: int = 0) -> tuple[int, int]:
        """A duration, or a pair [least, most] between which values vary."""
        value = self.peek(key)
        if not isinstance(value, list):
            single = self.duration(key, None if value is not None else default[0], least=least)
            return (single, single) if value is not None else default
        self.take(key)
        pair = Table(dict(enumerate_keys(value)), (*self.path, key), self.report)
        low = pair.duration("0", required=True, least=least)
        high = pair.duration("1", required=True, least=least)
        if len(value) != 2 or low > high:
            self.bad(key, shown(value), 'a duration or a pair such as ["1ms", "2ms"]')
            return default
        return low, high

    def integer(
        self, key: str, default: int, *, least: int | None = None, most: int | None = None
    ) -> int:
        value = self.take(key)
        if value is None:
            return default
        inside = (
            isinstance(value, int)
            and not isinstance(value, bool)
            and (least is None or value >= least)
            and (most is None or value <= most)
        )
        if not inside:
            low = "" if least is None else f" from {least}"
            high = "" if most is None else f" to {most}"
            self.bad(key, shown(value), f"a whole number{low}{high}")
            return default
        return int(value)

    def integers(
        self, key: str, default: tuple[int, int], *, least: int, most: int
    ) -> tuple[int, int]:
        """A whole number, or a pair [least, most] between which values vary."""
        value = self.peek(key)
        if not isinstance(value, list):
            if value is None:
                self.take(key)
                return default
            single = self.integer(key, default[0], least=least, most=most)
            return single, single
        self.take(key)
        numbers = [v for v in value if isinstance(v, int) and least <= v <= most]
        if len(value) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
            self.bad(key, shown(value), f"a whole number from {least} to {most}, or a pair of them")
            return default
        return numbers[0], numbers[1]

    def number(self, key: str, default: float, *, least: float, most: float) -> float:
        value = self.take(key)
        if value is None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            self.bad(key, shown(value), f"a number from {least:g} to {most:g}")
            return default
        return float(value)

    def boolean(self, key: str, default: bool) -> bool:
        value = self.take(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.bad(key, shown(value), "true or false")
        return default

    def string(self, key: str, default: str = "", *, required: bool = False) -> str:
        """Text of one line; names end up in tables and traces."""
        value = self.take(key)
        if value is None:
            if required:
                self.bad(key, "nothing", "a name in quotes")
            return default
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            self.bad(key, shown(value), "printable text in quotes")
            return default
        return value

    def choice(self, key: str, names: Iterable[str], default: str) -> str:
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, str) or value not in set(names):
            self.bad(key, shown(value), one_of(names) + _did_you_mean(value, names))
            return default
        return value

    def table(self, key: str) -> Table | None:
        """A sub-table, or None where there is none."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.bad(key, shown(value), "a table { ... }")
            return None
        return Table(value, (*self.path, key), self.report)

    def tables(self, key: str) -> list[Table]:
        """An array of tables."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            self.bad(key, shown(value), f"tables, each headed [[{key}]]")
            return []
        path = (*self.path, key)
        return [Table(item, (*path, i), self.report) for i, item in enumerate(value)]

    def close(self) -> None:
        """Every key that nobody took is a mistake."""
        for key in self._data:
            known = one_of(set(self._known)) if self._known else "no key"
            self.report.add(
                (*self.path, key),
                f"the unknown key {shown(key)}",
                known + _did_you_mean(key, self._known),
            )


def enumerate_keys(values: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    """List items as table items, so that one set of readers serves both."""
    return ((str(index), value) for index, value in enumerate(values))


def _did_you_mean(found: object, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(found), list(names), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """TOML text as a dictionary; BadInput with the line where it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+)", str(error))
        line = int(match[1]) if match else None
        what = re.sub(r"\s*\(at .*\)$", "", str(error))
        raise BadInput(
            file, [Problem(line, "", f"text that is not TOML ({what})", "TOML")]
        ) from None
    except RecursionError:
        problem = Problem(None, "", "tables nested too deeply", "TOML of a few levels")
        raise BadInput(file, [problem]) from None


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)
    |(?P<string>\"\"\"(?:\\.|[^\\])*?\"\"\"(?!\")|'''.*?'''(?!')|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<bare>[^\s\#\[\]{},=."']+)|(?P<mark>[\[\]{},=.])""",
    re.VERBOSE | re.DOTALL,
)


def locate(text: str) -> dict[Path, int]:
    """Line numbers of the keys of a text that is known to be TOML."""
    return _Locator(text).run()


class _Locator:
    """Walks the tokens of a valid TOML text and notes on which line each key stands."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, int]] = []
        line = 1
        for match in _TOKEN.finditer(text):
            token = match[0]
            if match["newline"]:
                self.tokens.append(("\n", line))
            elif not match["space"]:
                self.tokens.append((token, line))
            line += token.count("\n")
        self.place = 0
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}

    def run(self) -> dict[Path, int]:
        base: Path = ()
        while self.place < len(self.tokens):
            token, line = self.tokens[self.place]
            if token == "\n":
                self.place += 1
            elif token == "[":
                base = self._header(line)
            else:
                self._pair(base)
        return self.lines

    def _next(self) -> tuple[str, int]:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def _peek(self) -> str:
        return self.tokens[self.place][0] if self.place < len(self.tokens) else "\n"

    def _keys(self) -> list[str]:
        keys = [_unquoted(self._next()[0])]
        while self._peek() == ".":
            self._next()
            keys.append(_unquoted(self._next()[0]))
        return keys

    def _header(self, line: int) -> Path:
        self._next()
        is_array = self._peek() == "["
        if is_array:
            self._next()
        path: Path = ()
        keys = self._keys()
        for key in keys[:-1]:
            path = (*path, key)
            if path in self.counts:  # below an array of tables: its latest element
                path = (*path, self.counts[path] - 1)
        path = (*path, keys[-1])
        if is_array:
            self.counts[path] = self.counts.get(path, 0) + 1
            self.lines.setdefault(path, line)
            path = (*path, self.counts[path] - 1)
        self.lines[path] = line
        while self._peek() == "]":
            self._next()
        return path

    def _pair(self, base: Path) -> None:
        line = self.tokens[self.place][1]
        path = (*base, *self._keys())
        self.lines[path] = line
        self._next()  # =
        self._value(path)

    def _value(self, path: Path) -> None:
        token, _ = self._next()
        if token not in ("[", "{"):
            while self._peek() not in ("\n", ",", "]", "}"):  # 1.5, dates
                self._next()
            return
        index = 0
        while True:
            while self._peek() in ("\n", ","):
                self._next()
            if self._peek() in ("]", "}"):
                self._next()
                return
            if token == "{":
                self._pair(path)
            else:
                self.lines[(*path, index)] = self.tokens[self.place][1]
                self._value((*path, index))
                index += 1


def _unquoted(token: str) -> str:
    if token.startswith('"'):
        return str(tomllib.loads(f"k = {token}")["k"])
    return token.strip("'")
