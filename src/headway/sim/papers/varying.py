"""How much of a score is the choice of parameters? The papers give few of their workloads' numbers;
the others were chosen (workloads.py). Here they are counted, and moved at random."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from headway.engine.units import DurationError, format_ns, parse_duration
from headway.sim.papers.results import Scenario

PROGRAMS = ("game", "widget", "video", "bomb", "xclient", "serves", "greedy")
DEVICE = ("decide", "switch")
GIVEN = frozenset({"fps", "count", "ahead", "order", "pix", "rix"})
"""What the papers say, or what says how a program works."""
Place = tuple[dict[str, Any], str, str]
"""A table, a key in it, and what the number belongs to."""


def _places(scenario: Scenario) -> Iterator[Place]:
    if "seed" not in scenario.get("run", {}):
        return  # a worked example: its numbers are drawn in the paper
    for key in DEVICE:
        if key in scenario.get("device", {}):
            yield scenario["device"], key, "device"
    for task in scenario["task"]:
        for kind in PROGRAMS:
            for key in task.get(kind, {}):
                if key not in GIVEN:
                    yield task[kind], key, kind


def chosen(scenarios: dict[str, Scenario]) -> set[tuple[str, ...]]:
    """The chosen numbers behind these variants: each once, wherever it is used."""
    found: set[tuple[str, ...]] = set()
    for scenario in scenarios.values():
        for table, key, owner in _places(scenario):
            values = table[key] if isinstance(table[key], list) else [table[key]]
            found |= {(owner, key, str(place), str(v)) for place, v in enumerate(values)}
    return found


def vary(scenario: Scenario, paper: str, fraction: float, seed: int) -> Scenario:
    """The same with every chosen number moved by up to this fraction: a number that several figures
    of a paper share is moved alike in all of them."""
    made = copy.deepcopy(scenario)
    for table, key, owner in _places(made):
        source = random.Random(f"{seed} {paper} {owner} {key} {table[key]}")
        factor = source.uniform(1 - fraction, 1 + fraction)
        value = table[key]
        table[key] = (
            [_moved(v, factor) for v in value]
            if isinstance(value, list)
            else (_moved(value, factor))
        )
    return made


def _moved(value: Any, factor: float) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return max(1, round(value * factor))
    try:
        return format_ns(max(1, round(parse_duration(value) * factor)))
    except DurationError:
        return value
