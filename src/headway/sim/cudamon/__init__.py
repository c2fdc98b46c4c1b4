"""CudaMon's experiments by command: its figures, its manual partitions, and controllers compared.

What several figures share is simulated once. The same figures can be drawn from runs on a real
device (`Measured`): they need what a run came to, and not where that ran.
"""

from __future__ import annotations

from headway.sim.cudamon.figures import CudaMonFigure, FigureResult, Runs, figures
from headway.sim.cudamon.runs import Measured, Series

__all__ = ["CudaMonFigure", "FigureResult", "Measured", "Runs", "Series", "figures"]
