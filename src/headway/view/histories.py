"""From a trace file to the history of its run, for whoever shows it to people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from headway.engine.units import DurationError, format_ns, parse_duration
from headway.trace.analysis import History
from headway.view.errors import UserError
from headway.view.traces.reader import read_events
from headway.view.traces.records import CutOffTrace


@dataclass(frozen=True, slots=True)
class Part:
    """A history and the stretch of it that a person wants to see."""

    history: History
    from_ns: int
    to_ns: int
    problem: str
    """Why the trace does not hold the whole run, if that is so."""


def from_to(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose a part of a run."""
    for name, what in (("to", "Only until then."), ("from", "Only from then on, e.g. 1.5s.")):
        option = click.option(f"--{name}", f"{name}_text", metavar="TIME", help=what)
        command = option(command)
    return command


def load(trace: str, from_text: str | None = None, to_text: str | None = None) -> Part:
    """Read a trace. One that is cut off is shown as far as it goes; damage is an error."""
    bounds = [_time(name, text) for name, text in (("--from", from_text), ("--to", to_text))]
    history, problem = History(), ""
    try:
        for event in read_events(trace):
            history.feed(event)
    except CutOffTrace as error:
        if not history.events:
            raise
        problem = str(error)
    history.close()
    if history.complete is False:
        problem = f"{trace}: the run was interrupted"
    whole_ns = history.end_ns - history.begin_ns
    from_ns = 0 if bounds[0] is None else bounds[0]
    to_ns = whole_ns if bounds[1] is None else min(bounds[1], whole_ns)
    if from_ns > to_ns or (from_ns == to_ns and whole_ns):
        found = f"{format_ns(from_ns)} to {format_ns(to_ns)}"
        raise UserError(f"--from, --to: found {found}, expected a part of {format_ns(whole_ns)}")
    return Part(history, history.begin_ns + from_ns, history.begin_ns + to_ns, problem)


def _time(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except DurationError as error:
        raise UserError(f"{option}: found {text!r}, expected {error}") from None
