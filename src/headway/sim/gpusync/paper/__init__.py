"""GPUSync's evaluation by command: its figures and its table, with the thirteen observations.

These runs take a minute where the other papers' take a second, so they have a registry of their
own; what several figures share is simulated once.
"""

from __future__ import annotations

from headway.sim.gpusync.paper.figures import FigureResult, GpuSyncFigure, Runs, figures

__all__ = ["FigureResult", "GpuSyncFigure", "Runs", "figures"]
