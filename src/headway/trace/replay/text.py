"""A scenario made from a recording, as the text of a scenario file."""

from __future__ import annotations

import json
from typing import Any


def scenario_text(data: dict[str, Any], comment: str) -> str:
    """TOML with a group a line, where a person may want to change one."""
    lines = [f"# {comment}", ""]
    for key, value in data.items():
        if isinstance(value, list):
            for item in value:
                lines += [f"[[{key}]]", *_pairs(item), ""]
        elif key == "policy":
            for name, settings in value.items():
                lines += [f"[{key}.{name}]", *_pairs(settings), ""]
        else:
            lines += [f"[{key}]", *_pairs(value), ""]
    return "\n".join(lines)


def _pairs(table: dict[str, Any]) -> list[str]:
    lines = []
    for key, value in table.items():
        if key == "recorded":
            lines += [f"recorded.{inner} = {_value(item)}" for inner, item in value.items()]
        else:
            lines.append(f"{key} = {_value(value)}")
    return lines


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
    # JSON's strings, numbers and booleans are TOML's too.
    return json.dumps(value, ensure_ascii=True)
