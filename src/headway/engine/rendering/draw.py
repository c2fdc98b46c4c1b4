"""A draw costs time for each vertex and each fragment, by its program (libETP, section IV-E)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COVERAGE: Final = 0.5
"""The part of the bounding box's projection that is drawn on, as the paper has it (section V)."""


@dataclass(frozen=True, slots=True)
class Program:
    """What a program's vertex and fragment shaders cost, for each vertex and each fragment."""

    vertex_ns: float
    fragment_ns: float


@dataclass(frozen=True, slots=True)
class Draw:
    """t_draw = t_VS(n_V) + t_FS(n_F) (equation IV-E.1), both linear; n_F is the bounding box's
    projected area, in pixels, times a coverage factor."""

    programs: Mapping[str, Program]
    usual: Program
    """What a program counts as that was not calibrated."""
    coverage: float = COVERAGE

    def vertices_ns(self, program: str, vertices: int) -> float:
        return self.programs.get(program, self.usual).vertex_ns * vertices

    def fragments_ns(self, program: str, area: int) -> float:
        return self.programs.get(program, self.usual).fragment_ns * area * self.coverage
