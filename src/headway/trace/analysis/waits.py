"""What waited for what."""

from __future__ import annotations

from collections.abc import Iterator

from headway.trace.analysis.facts import SHORT
from headway.trace.analysis.history import History
from headway.trace.analysis.occupancy import BUDGET, Occupancy

Wait = tuple[int, int, int, int]
"""Who waited, for what (a task, or a cause below zero), from when, until when."""


class Waits:
    """Every wait of a run, in pieces with one cause each."""

    def __init__(self, history: History, occupancy: Occupancy) -> None:
        self._history = history
        self._occupancy = occupancy

    def within(self, from_ns: int, to_ns: int) -> Iterator[Wait]:
        """The pieces in a stretch of time, clipped to it. A group that its budget does not let
        through waits for that, whoever executes meanwhile."""
        segments = self._history.segments
        pieces = self._occupancy.pieces
        for task, kind, gpu, start_ns, end_ns in zip(
            segments.tasks,
            segments.kinds,
            segments.gpus,
            segments.starts_ns,
            segments.ends_ns,
            strict=True,
        ):
            start_ns, end_ns = max(start_ns, from_ns), min(end_ns, to_ns)
            if start_ns >= end_ns:
                continue
            if kind == SHORT:
                yield task, BUDGET, start_ns, end_ns
            else:
                for cause, begin_ns, until_ns in pieces(task, gpu, start_ns, end_ns):
                    yield task, cause, begin_ns, until_ns
