"""Histories of scenarios."""

from __future__ import annotations

from headway.engine.events import (
    Event,
    Recorder,
)
from headway.sim.outcome import simulate
from headway.sim.scenario import parse_scenario
from headway.trace.analysis import (
    History,
    read_history,
)


def history_of(text: str) -> History:
    """Simulate a scenario and analyse its events."""
    events: list[Event] = []
    simulate(parse_scenario(text), observers=[Recorder(events.append)])
    return read_history(events)
