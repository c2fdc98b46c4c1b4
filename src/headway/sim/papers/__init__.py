"""The papers by command: every figure as scenarios, claims and a plot.

`figures()` lists them, `run_figure` simulates one and judges what its paper claims, `report` turns
the result into rows, and `scenario_file` shows a variant as the scenario file that it is.
"""

from __future__ import annotations

from headway.sim.papers.claims import Claim
from headway.sim.papers.figure import Curve, Figure, Plot
from headway.sim.papers.figures import SEEDS, FigureResult, figures, run_figure
from headway.sim.papers.report import (
    CLAIM_HEADER,
    NUMBER_HEADER,
    as_dict,
    claim_rows,
    number_rows,
    plot_data,
    scenario_file,
)
from headway.sim.papers.results import Results, Scenario, VariantResult
from headway.sim.papers.text import to_toml

__all__ = [
    "CLAIM_HEADER",
    "NUMBER_HEADER",
    "SEEDS",
    "Claim",
    "Curve",
    "Figure",
    "FigureResult",
    "Plot",
    "Results",
    "Scenario",
    "VariantResult",
    "as_dict",
    "claim_rows",
    "figures",
    "number_rows",
    "plot_data",
    "run_figure",
    "scenario_file",
    "to_toml",
]
