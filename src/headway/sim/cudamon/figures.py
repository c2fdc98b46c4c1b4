"""CudaMon's figures and its manual partitions, and what each of them claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headway.sim.cudamon import controlling, partitions
from headway.sim.cudamon.runs import Measured, run
from headway.sim.papers.figure import TableFigure, TableResult

CudaMonFigure = TableFigure[Measured]
FigureResult = TableResult[Measured]
Results = Mapping[str, Measured]
Told = Callable[[str, str], None]
"""Called with the figure and the variant that begins."""


def figures() -> dict[str, CudaMonFigure]:
    """Every figure by its id."""
    known = [
        CudaMonFigure(
            "cudamon/fig4",
            "Response of a kernel against threads in one multiprocessor",
            "Up to 128 threads run at once; each further 128 interleave with them.",
            partitions.fig4_variants,
            partitions.fig4_claims,
            partitions.fig4_plot,
            ("threads", "response"),
            partitions.staircase_rows,
        ),
        CudaMonFigure(
            "cudamon/fig5",
            "Response of a kernel against blocks",
            "A stair for each block that every multiprocessor has: 80 blocks on 80.",
            partitions.fig5_variants,
            partitions.fig5_claims,
            partitions.fig5_plot,
            ("blocks", "response"),
            partitions.staircase_rows,
        ),
        CudaMonFigure(
            "cudamon/manual",
            "Partitions by hand: two PRNG kernels, and a detector beside one",
            "A share of 20 % for the less important task lets the other one meet its deadline.",
            partitions.manual_variants,
            partitions.manual_claims,
            partitions.manual_plot,
            ("set-up", "task", "jobs", "response", "missed"),
            partitions.manual_rows,
        ),
        CudaMonFigure(
            "cudamon/fig6",
            "Response of both kernels over time",
            "Both miss at first; then the important one meets its deadline, but for each tooth.",
            controlling.variants,
            controlling.response_claims,
            controlling.response_plot,
            ("controller", "task", "jobs", "response", "missed"),
            partitions.manual_rows,
        ),
        CudaMonFigure(
            "cudamon/fig7",
            "Share of both kernels over time",
            "Halved until the important task is in time, then 1 % more a job, and again.",
            controlling.variants,
            controlling.share_claims,
            controlling.share_plot,
            ("controller", "changes", "least", "most", "mean share"),
            controlling.share_rows,
        ),
        CudaMonFigure(
            "cudamon/controllers",
            "The report's controller beside one that remembers, with restarts and without",
            "How long misses go on, and what the less important task gets done meanwhile.",
            controlling.all_variants,
            controlling.comparison_claims,
            controlling.comparison_plot,
            ("controller", "missed", "first to last", "low's jobs a second", "against the report"),
            controlling.comparison_rows,
        ),
    ]
    return {figure.id: figure for figure in known}


class Runs:
    """Simulates what figures ask for, each scenario once."""

    def __init__(self, *, part: float = 1.0) -> None:
        """`part` shortens every run of a controller to that part of it."""
        self._part = part
        self._done: dict[str, Measured] = {}

    def run(self, figure: CudaMonFigure, told: Told | None = None) -> FigureResult:
        """Simulate the variants of a figure and judge its claims."""
        results = {}
        for name, scenario in figure.variants().items():
            duration_s = float(scenario["run"]["duration"].removesuffix("s"))
            scenario["run"]["duration"] = f"{round(1e6 * duration_s * self._part)}us"
            key = repr(scenario)
            if key not in self._done:
                if told is not None:
                    told(figure.id, name)
                self._done[key] = run(scenario, f"{figure.id} {name}")
            results[name] = self._done[key]
        return FigureResult(figure, results, figure.claims(results))
