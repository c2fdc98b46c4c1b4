"""Scenarios as text, so that what a figure runs can be read, changed and run again."""

from __future__ import annotations

import json
import re
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
WIDTH = 96


def to_toml(scenario: dict[str, Any]) -> str:
    """A scenario file; `tomllib` reads the same dictionary back from it."""
    plain = [f"{_key(k)} = {_value(v)}" for k, v in scenario.items() if not _is_nested(v)]
    parts = ["\n".join(plain)] if plain else []
    for key, value in scenario.items():
        if isinstance(value, dict):
            parts += _table(_key(key), value)
        elif _is_nested(value):
            parts += [f"[[{_key(key)}]]\n{_lines(item)}" for item in value]
    return "\n\n".join(parts) + "\n"


def _is_nested(value: Any) -> bool:
    """Whether it is written as a table or tables of its own."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, dict) for item in value)
    return isinstance(value, dict)


def _table(path: str, table: dict[str, Any]) -> list[str]:
    """[path], and the tables in it as [path.key]."""
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    own = {key: value for key, value in table.items() if key not in inner}
    parts = [f"[{path}]\n{_lines(own)}".rstrip()] if own or not inner else []
    for key, value in inner.items():
        parts += _table(f"{path}.{_key(key)}", value)
    return parts


def _lines(table: dict[str, Any]) -> str:
    return "\n".join(f"{_key(key)} = {_wrapped(_key(key), value)}" for key, value in table.items())


def _wrapped(key: str, value: Any) -> str:
    """A long list takes a line per item."""
    line = _value(value)
    if not isinstance(value, list) or len(key) + len(line) <= WIDTH:
        return line
    return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise TypeError(f"found {value!r}, expected what a scenario file can hold")
