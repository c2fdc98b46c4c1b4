"""The simulated GPU beside the real one: W1 to W4, simulated, and as measured on an H200.

`python -m benchmarks.gpu.twin` prints the tables; with `--write` they take their place in
docs/twin.md. Measured numbers are read from the result file that was committed with them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.results import ROOT, Table
from headway.sim.outcome import Outcome, simulate
from headway.sim.scenario import parse_scenario, parse_variants

MEASURED = ROOT / "benchmarks" / "gpu" / "results" / "2026-11-17-torch-pairs.md"
SECTION, MEDIANS = "HP p99 in us / LP's share of the GPU", "HP p50 in us"
PAGE = ROOT / "docs" / "twin.md"
WORKS = ("W1", "W2", "W3", "W4")
WITHIN = 0.15
BEGIN, END = "<!-- begin: {} -->\n", "<!-- end: {} -->\n"


@dataclass(frozen=True)
class Cell:
    """What came of a pair in one way: HP's p99, LP's share of the GPU, and HP's median."""

    p99_us: float
    share: float
    p50_us: float

    def __str__(self) -> str:
        return f"{self.p99_us:.0f} / {self.share:.2f}"


Cells = dict[tuple[str, str], Cell]
"""By way and pair."""


def rows_of(text: str, heading: str) -> Iterator[list[str]]:
    """The first table's rows behind a heading, cell by cell."""
    _, _, after = text.partition(heading + "\n")
    found = False
    for line in after.splitlines():
        if line.startswith("|"):
            found = True
            yield [cell.strip() for cell in line.strip("|").split("|")]
        elif found:
            return


def measured(path: Path = MEASURED) -> Cells:
    """From the result file of a run on a GPU."""
    text = path.read_text(encoding="utf-8")
    rows = list(rows_of(text, SECTION))
    works, cells = rows[0][1:], {}
    medians = {way: values for way, *values in rows_of(text, MEDIANS)}
    for way, *values in rows[2:]:
        for place, (work, value) in enumerate(zip(works, values, strict=True)):
            p99_us, slash, share = value.partition(" / ")
            if slash and not way.startswith("("):
                cells[way, work] = Cell(float(p99_us), float(share), float(medians[way][place]))
    return cells


def simulated() -> Cells:
    """From the examples, in the ways that they describe."""
    cells = {}
    for work in WORKS:
        file = ROOT / "examples" / f"{work.lower()}.toml"
        text = file.read_text(encoding="utf-8")
        for variant in parse_variants(text, file.name):
            scenario = parse_scenario(text, file.name, overrides=variant.overrides)
            cells[variant.name, work] = cell_of(simulate(scenario))
    return cells


def cell_of(outcome: Outcome) -> Cell:
    statistics = outcome.statistics
    tasks = statistics.by_name()
    p99_ns, p50_ns = tasks["hp"].responses.at(0.99, 0.5)
    return Cell(p99_ns / 1000, tasks["lp"].gpu_ns / statistics.end_ns, p50_ns / 1000)


def differences(one: Cells, other: Cells) -> dict[tuple[str, str], tuple[float, float]]:
    """By which part the one's p99 and share are more than the other's."""
    return {
        key: (one[key].p99_us / there.p99_us - 1, one[key].share / there.share - 1)
        for key, there in other.items()
        if key in one
    }


def far(one: Cells, other: Cells) -> list[str]:
    """Cells that differ by more than `WITHIN`."""
    return [
        f"{work}, {way}"
        for (way, work), parts in differences(one, other).items()
        if max(map(abs, parts)) > WITHIN
    ]


def table(here: Cells, there: Cells) -> Table:
    """Simulated, measured and the difference of each, way by way."""
    lines = []
    apart = differences(here, there)
    for way in dict.fromkeys(way for way, _ in here):
        if (way, WORKS[0]) not in there:
            continue
        lines.append([f"{way}: simulated", *(str(here[way, work]) for work in WORKS)])
        lines.append(["measured", *(str(there[way, work]) for work in WORKS)])
        parts = (apart[way, work] for work in WORKS)
        lines.append(["difference", *(f"{p:+.1%} / {s:+.1%}" for p, s in parts)])
    return Table("", ["HP p99 in us / LP's share", *WORKS], lines)


def medians(here: Cells, there: Cells) -> Table:
    """HP's medians, simulated and measured."""
    lines = []
    for way in dict.fromkeys(way for way, _ in here):
        if (way, WORKS[0]) not in there:
            continue
        pairs = [(here[way, work].p50_us, there[way, work].p50_us) for work in WORKS]
        lines.append([way, *(f"{s:.0f} / {m:.0f} ({s / m - 1:+.1%})" for s, m in pairs)])
    return Table("", ["HP p50 in us: simulated / measured", *WORKS], lines)


def page_with(page: str, here: Cells, there: Cells) -> str:
    """The page with these tables in their places."""
    page = replaced(page, "pairs", table(here, there).markdown())
    return replaced(page, "medians", medians(here, there).markdown())


def replaced(page: str, name: str, body: str) -> str:
    """A page with another body between two of its marks."""
    begin, end = BEGIN.format(name), END.format(name)
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"there is no place called {name} in the page")
    return pattern.sub(lambda _: f"{begin}{body}\n{end}", page)


def main(arguments: list[str]) -> int:
    here, there = simulated(), measured()
    print(table(here, there).markdown(), medians(here, there).markdown(), sep="\n\n")
    if "--write" in arguments:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page_with(page, here, there), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
