"""GPUSync's figures and table, run once for all that need the same simulations."""

from __future__ import annotations

from collections.abc import Callable

from headway.sim.gpusync.paper import synthetic, vision
from headway.sim.gpusync.results import GpuSyncResult
from headway.sim.gpusync.run import run_plan
from headway.sim.gpusync.scenario import read_gpusync
from headway.sim.papers.figure import TableFigure, TableResult

Told = Callable[[str, str], None]
"""Called with the figure and the variant that begins."""


GpuSyncFigure = TableFigure[GpuSyncResult]
FigureResult = TableResult[GpuSyncResult]


def figures() -> dict[str, GpuSyncFigure]:
    """Every figure by its id."""
    known = [
        GpuSyncFigure(
            "gpusync/fig6",
            "Allocated execution engine time",
            "How long T1 and T2 hold execution engines, beside aberrant tasks and with budgets.",
            synthetic.all_variants,
            synthetic.supply_claims,
            synthetic.supply_plot,
            ("line", "T1 or T2", "slope", "provisioned", "jobs"),
            synthetic.supply_rows,
        ),
        GpuSyncFigure(
            "gpusync/fig7",
            "Errors of the cost predictor",
            "How far predictions of token sections were off, by distance of the migration.",
            synthetic.unpoliced_variants,
            synthetic.prediction_claims,
            synthetic.prediction_plot,
            ("scheduler", "task", "distance", "predictions", "within 5 %", "within 20 %"),
            synthetic.prediction_rows,
        ),
        GpuSyncFigure(
            "gpusync/table2",
            "Migrations by distance",
            "How often a token was at home, on a neighbour and farther away.",
            synthetic.aberrant_variants,
            synthetic.migration_claims,
            synthetic.migration_plot,
            ("run", "task", "d = 0", "d = 1", "d = 2", "paper"),
            synthetic.migration_rows,
        ),
        GpuSyncFigure(
            "gpusync/fig8",
            "Response times of thirty video streams",
            "Partitions and clusters of GPUs, three queue orders, two ways to migrate.",
            vision.variants,
            vision.claims,
            vision.plot,
            ("order", "clusters", "median", "mean", "p95", "worst", "schedulable"),
            vision.rows,
        ),
    ]
    return {figure.id: figure for figure in known}


class Runs:
    """Simulates what figures ask for, each scenario once."""

    def __init__(self, *, workers: int = 1, seconds: int | None = None) -> None:
        """`seconds` shortens every run, which the paper's claims do not allow for."""
        self._workers = workers
        self._seconds = seconds
        self._done: dict[str, GpuSyncResult] = {}

    def run(self, figure: GpuSyncFigure, told: Told | None = None) -> FigureResult:
        """Simulate the variants of a figure and judge its claims."""
        results = {}
        for name, scenario in figure.variants().items():
            if self._seconds is not None:
                scenario["run"]["duration"] = f"{self._seconds}s"
            key = repr(scenario)
            if key not in self._done:
                if told is not None:
                    told(figure.id, name)
                plan = read_gpusync(scenario, f"{figure.id} {name}")
                self._done[key] = run_plan(plan, workers=self._workers)
            results[name] = self._done[key]
        return FigureResult(figure, results, figure.claims(results))
