"""What is installed beside the package: man pages and the dashboard say what there really is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from headway.live.watch.metrics import METRICS
from headway.view.cli import COMMANDS
from headway.view.cli import headway as group
from headway.view.fleet.metrics import METRICS as FLEET
from tests.integration.command import ROOT

ESCAPE = re.compile(r"\\f[BR]|\\&")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "scripts" / "manual.py", folder], check=True)
    return folder


def test_every_command_has_a_page_with_all_its_options(pages: Path) -> None:
    names = {"headway.1", *(f"headway-{name}.1" for name in COMMANDS)}
    assert {path.name for path in pages.iterdir()} == names
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        parts = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        text = ESCAPE.sub("", (pages / f"headway-{name}.1").read_text()).replace("\\-", "-")
        for part in parts:
            for parameter in part.params:
                if isinstance(parameter, click.Option) and not parameter.hidden:
                    assert all(option in text for option in parameter.opts), (name, parameter.opts)


def test_pages_are_what_man_understands(pages: Path) -> None:
    for page in sorted(pages.iterdir()):
        done = subprocess.run(
            ["groff", "-man", "-Tascii", "-ww", "-P-cbou", page],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stderr == "", page.name
        assert done.stdout.split()[3:6] == ["NAME", page.stem, "-"]
        assert "EXIT STATUS" in done.stdout


@pytest.mark.parametrize(
    ("file", "metrics", "may_be_asked"),
    [
        ("grafana.json", METRICS, {"task", "pid", "channel", "quantile", "reserve"}),
        ("grafana-fleet.json", FLEET, {"node", "gpu", "model", "state", "task", "pid"}),
    ],
)
def test_a_dashboard_asks_for_metrics_that_there_are(
    file: str, metrics: Sequence[Any], may_be_asked: set[str]
) -> None:
    board = json.loads((ROOT / "packaging" / file).read_text())
    kinds = {metric.name: metric.kind for metric in metrics}
    targets = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    variables = [v["definition"] for v in board["templating"]["list"] if "definition" in v]
    for expression in (*targets, *variables):
        named = re.findall(r"headway_\w+", expression)
        assert named
        assert {*named} <= {*kinds}, expression
        # Counters only ever grow: nobody wants to see them as they are.
        counters = [name for name in named if kinds[name] == "counter"]
        if not expression.startswith("label_values"):
            assert not counters or re.search(r"rate\(|increase\(", expression), expression
        labels = set(re.findall(r"(\w+)=~?\"", expression))
        assert labels <= may_be_asked
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in board["panels"]]
    assert all(x + w <= 24 for x, _, w, _ in places)
    assert len({place[:2] for place in places}) == len(places)
