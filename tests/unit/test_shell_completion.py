"""What the prompt of `headway shell` offers where a person types."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headway.view.shell import Shell, completions

SHELL = cast(
    Shell,
    SimpleNamespace(
        commands=["launch", "ls", "set", "kill", "quit"], names=lambda: ["camera", "night"]
    ),
)


@pytest.mark.parametrize(
    ("before", "text", "found"),
    [
        ("", "l", ["launch ", "ls "]),
        ("", "x", []),
        ("kill ", "", ["camera ", "night "]),
        ("set ", "n", ["night "]),
        ("set night ", "--", ["--priority ", "--share "]),
        ("launch 5 ", "--n", ["--name "]),
        ("kill camera ", "-", ["--force "]),
        ("launch ", "5", []),
        ("ls ", "x", []),
        ("launch 5 ", "a", ["a.out ", "art/"]),
        ("launch 5 ", "art/", ["art/piece "]),
        ("launch 5 ", "nowhere/", []),
    ],
)
def test_commands_tasks_options_and_files_are_offered(
    before: str, text: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.out").touch()
    (tmp_path / "art").mkdir()
    (tmp_path / "art" / "piece").touch()
    monkeypatch.chdir(tmp_path)
    assert completions(SHELL, before, text) == found
