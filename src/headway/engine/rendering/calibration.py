"""What was measured of a device, its driver and programs: the coefficients of libETP's models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from headway.engine.rendering.draw import COVERAGE, Program

_NOTHING = Program(0.0, 0.0)
MOST_NS = 1e9
"""A second for one pixel, vertex or flush: more than any device needs."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The coefficients of one device with one driver; all are 0 where nothing was measured."""

    device: str = ""
    """The renderer and the version, as the driver says them."""
    flush_ns: float = 0.0
    clear_ns: Mapping[str, float] = field(default_factory=dict)
    """For each pixel, by mask."""
    usual: Program = _NOTHING
    """Of a simple program of our own."""
    programs: Mapping[str, Program] = field(default_factory=dict)
    """By the hash of their sources."""

    def start(self) -> dict[str, float]:
        """Where the learning cost model's coefficients begin, by the names of features."""
        found = {"group": self.flush_ns}
        found |= {f"clear.{mask}.pixels": ns for mask, ns in self.clear_ns.items()}
        named = {f"draw.{name}": p for name, p in self.programs.items()} | {"draw": self.usual}
        for name, program in named.items():
            found[f"{name}.vertices"] = program.vertex_ns
            found[f"{name}.fragments"] = program.fragment_ns * COVERAGE
        return {name: ns for name, ns in found.items() if ns > 0}


def to_json(calibration: Calibration) -> dict[str, Any]:
    return asdict(calibration)


def from_json(found: Mapping[str, Any]) -> Calibration:
    """ValueError says what is wrong."""
    try:
        clears, programs = found["clear_ns"], found["programs"]
        return Calibration(
            str(found["device"]),
            _time(found["flush_ns"]),
            {str(mask): _time(ns) for mask, ns in clears.items()},
            _program(found["usual"]),
            {str(name): _program(each) for name, each in programs.items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__} {error}"
        raise ValueError(f"expected a calibration's keys, found {what}") from None


def _program(found: Mapping[str, Any]) -> Program:
    return Program(_time(found["vertex_ns"]), _time(found["fragment_ns"]))


def _time(found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"expected a number of ns, found {found!r}")
    if not isfinite(found) or not 0 <= found <= MOST_NS:
        raise ValueError(f"expected 0 to {MOST_NS:g} ns, found {found!r}")
    return float(found)
