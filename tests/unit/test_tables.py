"""Tables of runs side by side: a number is whole or not there, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest

from headway.view.tables import Row, new_console, side_by_side

NAMES = ["without Headway", "priorities", "priorities and a reserve"]
ROWS: list[Row] = [
    ("p99 response of a group, ms", []),
    ("  game", ["87.5", "102.2", "1234.56"]),
    ("  a-task-with-quite-a-long-name.12345", ["1", "2", "9999.99"]),
]


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 100, 200])
def test_numbers_and_names_are_whole_at_any_width(width: int) -> None:
    out = io.StringIO()
    console = new_console(file=out, width=width)
    console.print(side_by_side(console, "file.toml", NAMES, ROWS))
    lines = [line.split() for line in out.getvalue().splitlines() if line.strip()]
    assert all(len(line.rstrip()) <= width for line in out.getvalue().splitlines())
    assert [words[1:] for words in lines if words[0] == "game"] == [ROWS[1][1]]
    (long,) = [words[1:] for words in lines if words[0].startswith("a-task")]
    assert long == ROWS[2][1]
    assert "a-task-with-quite-a-long-name.12345" in "".join(words[0] for words in lines)
