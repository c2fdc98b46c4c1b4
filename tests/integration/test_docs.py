"""The documents tell the truth: their commands run, their files exist, the tutorial works."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from benchmarks.compat.programs import PROGRAMS
from headway.engine.reading import Table
from headway.engine.spec import parse_spec
from headway.view.cli import headway as group
from headway.view.settings import daemon_options
from tests.integration.command import HEADWAY, ROOT, headway

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(document: Path) -> list[str]:
    """The lines after a `$` in the console blocks."""
    blocks = [body for kind, body in BLOCK.findall(document.read_text()) if kind == "console"]
    return [line[2:] for body in blocks for line in body.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_the_commands_of_a_document_run(document: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    script = "\n".join(["set -e", *commands(document)])
    result = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": f"{HEADWAY.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert result.returncode == 0, result.stderr


SHELL = re.compile(r"(?:^|[;&|]|\$\()\s*(?:sudo )?headway((?: [^;&|\n#]+)?)")


def written(document: Path) -> list[list[str]]:
    """The words of every headway command that a document shows, run by a test or not."""
    found = []
    for kind, body in BLOCK.findall(document.read_text()):
        if kind in ("sh", "console"):
            body = body.replace("\\\n", " ").replace("$ headway", "headway")
            for line in body.splitlines():
                found += [words.split() for words in SHELL.findall(line)]
    return found


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_commands_that_a_document_shows_exist_with_their_options(document: Path) -> None:
    for words in written(document):
        command: click.Command = group
        while words and isinstance(command, click.Group) and not words[0].startswith("-"):
            found = command.get_command(click.Context(command), words[0])
            assert found is not None, (document.name, words)
            command, words = found, words[1:]
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        own = words[: words.index("--")] if "--" in words else words
        for word in own:
            option = word.partition("=")[0].strip("'\"")
            if option.startswith("--"):
                assert option in known, (document.name, words)


def anchors(document: Path) -> set[str]:
    """Of the headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {re.sub(r"[ ]+", "-", heading.strip()) for heading in plain}


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_links_to_headings_lead_somewhere(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text()):
        page = document.parent / target if target else document
        assert anchor in anchors(page), (target, anchor)


def test_the_spec_page_has_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key that the reader takes, in the part of the page about its table."""
    asked: set[tuple[str, str]] = set()
    take = Table.take

    def noting(table: Table, key: str) -> object:
        names = [str(part) for part in table.path if isinstance(part, str)]
        asked.add((names[-1] if names else "", key))
        return take(table, key)

    monkeypatch.setattr(Table, "take", noting)
    example = (ROOT / "examples" / "headway.toml").read_text()
    parse_spec(re.sub(r"^# (?=\[|[a-z-]+ = )", "", example, flags=re.MULTILINE))
    page = (ROOT / "docs" / "spec.md").read_text()
    parts = re.split(r"^## ", page, flags=re.MULTILINE)
    about = {part.split("`")[1].strip("[]").split(".")[0]: part for part in parts if "`" in part}
    for table, key in asked:
        part = about["task" if table == "reserve" else table] if table in about else page
        assert f"`{key}" in part or f"[{key}" in page, (table, key)
    for option in daemon_options():
        assert f"| `{option}` |" in about["daemon"]


def test_every_page_has_a_place_on_the_site() -> None:
    code = "import docs; print(*sum(docs.NAV.values(), []))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "scripts",
        check=True,
        capture_output=True,
        text=True,
    )
    there = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {*done.stdout.split()} <= there
    assert (ROOT / "docs" / "index.md").exists()


def test_the_table_of_programs_is_of_those_that_are_tried() -> None:
    rows = re.findall(r"^\| (\S+) .*\| `(.*)` \|$", (ROOT / "docs/programs.md").read_text(), re.M)
    tried = [(program.package, program.command.replace("|", "\\|")) for program in PROGRAMS]
    assert rows == tried
    assert len(rows) >= 10


def test_the_readme_shows_commands() -> None:
    assert len(commands(ROOT / "README.md")) >= 5


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_links_and_pictures_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_map_of_the_architecture_matches_the_tree() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:src|tests|benchmarks|examples|shim|scripts)/[\w./-]*)`", text))
    for path in named:
        assert (ROOT / path).exists(), f"{path} is on the map but not in the tree"
    for layer in ("engine", "trace", "sim", "live", "view"):
        for entry in (ROOT / "src" / "headway" / layer).iterdir():
            if entry.name in ("__init__.py", "__pycache__", "libheadway.so"):
                continue
            path = str(entry.relative_to(ROOT)) + ("/" if entry.is_dir() else "")
            assert path in named, f"{path} is in the tree but not on the map"


def test_every_toml_block_of_the_scenario_page_is_valid(tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / "scenarios.md").read_text())
    texts = [body for kind, body in blocks if kind == "toml"]
    assert len(texts) == 3
    whole = "\n".join(texts)  # the parts of one file: tasks, a server, events and variants
    whole = whole.replace("*.reserve", "video.reserve")
    file = tmp_path / "page.toml"
    file.write_text(whole)
    result = headway("sim", file, "--json", "--set", "run.duration=3s")
    assert result.returncode == 0, result.stderr


def test_the_tutorial_policy_is_the_example_and_shares_by_weight() -> None:
    page = (ROOT / "docs" / "write-a-policy.md").read_text()
    example = ROOT / "examples" / "policies" / "wfq.py"
    blocks = BLOCK.findall(page)
    assert blocks[0] == ("python", example.read_text())
    assert blocks[1] == ("toml", (ROOT / "examples" / "wfq.toml").read_text())
    assert len(example.read_text().splitlines()) < 60
    result = headway(
        "compare", "examples/fair.toml", "--json", "--load", example,
        "--policy", "prt", "--policy", "wfq", "--policy", "wfq:weight=7",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    shares = {
        name: {task: entry["gpu_share"] for task, entry in variant["tasks"].items()}
        for name, variant in json.loads(result.stdout)["variants"].items()
    }
    # Groups of 3 ms and 1 ms in turn would be 75 % and 25 %; equal weights make it half and half.
    assert shares["prt"]["long"] == pytest.approx(0.75, abs=0.01)
    for equal in ("wfq", "wfq:weight=7"):
        assert shares[equal]["long"] == pytest.approx(0.50, abs=0.01)
        assert shares[equal]["short"] == pytest.approx(0.50, abs=0.01)


def test_both_forms_of_the_example_spec_say_the_same() -> None:
    result = headway("config", "check", "examples/desktop.spec", "examples/desktop.toml")
    assert result.returncode == 0, result.stderr
    first, second = re.findall(r"entries\n((?:  .*\n)+)", result.stdout)
    assert first == second


def test_the_benchmark_agrees_with_simpy_on_every_job() -> None:
    # The speed is for `make bench`; that both simulators say the same is checked here.
    command = ["benchmarks/simulator.py", "--rounds", "1", "--jobs", "5000"]
    result = subprocess.run(
        [HEADWAY.with_name("python"), *command, "--memory-groups", "1000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "ratio to SimPy" in result.stdout, result.stderr
    assert "disagree" not in result.stderr


def test_the_tests_that_the_threat_model_names_exist() -> None:
    named = set(re.findall(r"`(test_\w+\.py)`", (ROOT / "docs/threat-model.md").read_text()))
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 5
    assert named <= there
