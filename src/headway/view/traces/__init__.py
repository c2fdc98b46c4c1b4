"""Traces: one file that ui.perfetto.dev draws and that gives the event records back exactly."""

from headway.view.traces.reader import read_events
from headway.view.traces.records import TraceError
from headway.view.traces.writer import TraceWriter

__all__ = ["TraceError", "TraceWriter", "read_events"]
