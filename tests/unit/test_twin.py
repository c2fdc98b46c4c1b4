"""The simulated H200 beside the measured one: what the page says is what comes out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu import twin
from benchmarks.gpu.twin import Cell, Cells


@pytest.fixture(scope="module")
def here() -> Cells:
    return twin.simulated()


def test_the_page_shows_what_is_simulated_now_beside_what_was_measured(here: Cells) -> None:
    page = twin.PAGE.read_text(encoding="utf-8")
    assert page == twin.page_with(page, here, twin.measured()), "make twin writes it anew"


def test_p99_and_share_agree_to_15_percent_on_every_pair_in_every_way(here: Cells) -> None:
    there = twin.measured()
    assert set(here) <= set(there)
    assert len(here) == 16
    assert twin.far(here, there) == []


def test_what_was_measured_is_read_from_the_result_file(tmp_path: Path) -> None:
    file = tmp_path / "results.md"
    file.write_text(
        "## pairs\n\nHP p99 in us / LP's share of the GPU\n\n|  | W1 | W2 |\n| --- | --- | --- |\n"
        "| alone | 10 | 20 |\n| MPS | 15 / 0.88 | 38 / 0.80 |\n"
        "| (the prototype: x) | 1 / 0.1 | 2 / 0.2 |\n"
        "\nHP p50 in us\n\n|  | W1 | W2 |\n| --- | --- | --- |\n"
        "| alone | 9 | 19 |\n| MPS | 12 | 37 |\n"
    )
    assert twin.measured(file) == {
        ("MPS", "W1"): Cell(15, 0.88, 12),
        ("MPS", "W2"): Cell(38, 0.80, 37),
    }


def test_cells_that_differ_by_more_are_named() -> None:
    there = {("MPS", "W1"): Cell(100, 0.5, 50), ("MPS", "W2"): Cell(100, 0.5, 50)}
    here = {("MPS", "W1"): Cell(114, 0.44, 50), ("MPS", "W2"): Cell(100, 0.42, 50)}
    assert twin.far(here, there) == ["W2, MPS"]
