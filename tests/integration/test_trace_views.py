"""`headway plot` and `headway report`: what they write, and what they say of mistakes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headway.engine.events import Began, Completed, Ended, TaskAdded
from headway.view.traces import TraceWriter
from tests.integration.command import ROOT, headway

ORACLES = ROOT / "tests" / "data" / "oracles"
MS = 1_000_000
ALL = {"timeline", "frames", "responses", "shares", "budgets", "waits"}


def trace_of(folder: Path, oracle: str) -> Path:
    trace = folder / f"{oracle}.pftrace"
    result = headway("sim", ORACLES / f"{oracle}.toml", "--trace", trace)
    assert result.returncode == 0, result.stderr
    return trace


def plotted(trace: Path, output: Path, *options: str) -> None:
    result = headway("plot", trace, "-o", output, *options)
    assert result.returncode == 0, result.stderr


def beside(picture: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(picture.with_suffix(".json").read_text())
    return found


def test_a_folder_gets_a_picture_of_each_with_its_data_and_command(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, "pe-four-groups")
    plotted(trace, tmp_path / "new" / "plots")
    pictures = sorted((tmp_path / "new" / "plots").glob("*.svg"))
    assert {path.stem for path in pictures} == ALL
    for path in pictures:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert beside(path)["command"].startswith(f"headway plot {trace} -o ")
    folder = tmp_path / "new" / "plots"
    # As worked out by hand: 13 ms for the budget, 1 ms behind its own group.
    waits = beside(folder / "waits.svg")["waits"]
    assert waits["causes"] == ["a", "own budget"]
    assert waits["waited_ns"] == [[1 * MS, 13 * MS]]
    assert beside(folder / "shares.svg")["shares"]["gpu_ns"] == {"a": 8 * MS}
    responses = beside(folder / "responses.svg")["responses"]["responses"]["a"]
    assert (responses["p50_ns"], responses["p99_ns"]) == (3 * MS, 10 * MS)  # 2, 3, 7 and 10 ms
    assert responses["cdf"] == [[2 * MS, 0.25], [3 * MS, 0.5], [7 * MS, 0.75], [10 * MS, 1.0]]
    groups = beside(folder / "timeline.svg")["timeline"]["groups"]
    expected = json.loads((ORACLES / "pe-four-groups.json").read_text())["groups"]
    assert groups == [{k: v for k, v in group.items() if k != "index"} for group in expected]
    # 3 ms at first; 1 left at 2 ms, debt of 2 at 5 ms, one paid back at 10 ms.
    budget = beside(folder / "budgets.svg")["budgets"]["reserves"]["a"]["budget"]
    assert budget[:4] == [[0, 3 * MS], [2 * MS, MS], [5 * MS, -2 * MS], [10 * MS, MS]]


def test_one_file_gets_what_was_asked_for(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, "ht-three-priorities")
    plotted(trace, tmp_path / "some.pdf", "--what", "shares,waits", "--from", "6ms", "--to", "10ms")
    assert (tmp_path / "some.pdf").read_bytes().startswith(b"%PDF")
    data = beside(tmp_path / "some.pdf")
    assert "shares" in data
    assert "frames" not in data
    assert data["shares"]["gpu_ns"] == {"hp": 4 * MS, "mp": 0, "lp": 0}


def test_names_that_mean_something_to_the_plotter_are_only_names(tmp_path: Path) -> None:
    trace = tmp_path / "names.pftrace"
    with TraceWriter(trace) as writer:
        writer.write(Began(0, 1))
        for name in ("$x_{", "_hidden", "a\nb\x00", "\ud800", "<svg>", "名前"):
            writer.write(TaskAdded(0, name, "prt", "0", 0))
            writer.write(Completed(MS, name, 0, 0, 0, 0, None, 0, True, None))
        writer.write(Ended(2 * MS, True))
    plotted(trace, tmp_path / "names.svg")
    text = (tmp_path / "names.svg").read_text()
    ElementTree.fromstring(text)
    assert "<!-- $x_{ -->" in text


@pytest.mark.parametrize("command", ["report", "plot"])
def test_a_trace_with_nothing_in_it_is_drawn_all_the_same(tmp_path: Path, command: str) -> None:
    trace = tmp_path / "empty.pftrace"
    with TraceWriter(trace) as writer:
        writer.write(Began(0, 1))
        writer.write(Ended(0, True))
    output = tmp_path / ("page.html" if command == "report" else "all.svg")
    result = headway(command, trace, "-o", output)
    assert result.returncode == 0, result.stderr
    assert output.stat().st_size > 1000


def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError\n")
    trace = trace_of(tmp_path, "pe-four-groups")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = headway("plot", trace, "-o", tmp_path / "x.svg", env=env)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "pip install 'headway[plot]'" in result.stderr
    assert headway("report", trace, "-o", tmp_path / "x.html", env=env).returncode == 0


BAD = {
    "no such trace": (("report", "nothing.pftrace", "-o", "x.html"), "nothing.pftrace"),
    "no output": (("plot", "good.pftrace"), "-o"),
    "not a trace": (("report", "good.toml", "-o", "x.html"), "expected a trace"),
    "a damaged trace": (("report", "damaged.pftrace", "-o", "x.html"), "damaged at byte"),
    "an empty file": (("plot", "empty.pftrace", "-o", "x.svg"), "is empty"),
    "the trace itself": (("report", "good.pftrace", "-o", "good.pftrace"), "the trace itself"),
    "a folder": (("report", "good.pftrace", "-o", "."), "found a folder"),
    "no such folder": (("report", "good.pftrace", "-o", "no/x.html"), "no/x.html"),
    "a time that is none": (("report", "good.pftrace", "-o", "x", "--from", "5"), "--from"),
    "a part that is none": (
        ("plot", "good.pftrace", "-o", "x.svg", "--from", "9s"),
        "a part of 21ms",
    ),
    "an unknown picture": (("plot", "good.pftrace", "-o", "x.svg", "--what", "pie"), "'pie'"),
    "no picture": (("plot", "good.pftrace", "-o", "x.svg", "--what", ","), "expected some of"),
    "a picture of another kind": (("plot", "good.pftrace", "-o", "x.bmp"), ".svg"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    good = trace_of(folder, "pe-four-groups")
    good.rename(folder / "good.pftrace")
    data = bytearray((folder / "good.pftrace").read_bytes())
    data[len(data) * 4 // 5] ^= 0xFF
    (folder / "damaged.pftrace").write_bytes(data)
    (folder / "empty.pftrace").touch()
    (folder / "good.toml").write_text("[[task]]\n")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_line_and_leaves_nothing(folder: Path, name: str) -> None:
    arguments, expected = BAD[name]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = headway(*arguments, cwd=folder)
    assert result.returncode == 2
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
