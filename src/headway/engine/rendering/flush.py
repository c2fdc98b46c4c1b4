"""A flush costs the same always (libETP, section IV-C)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flush:
    """t_flush = c_flush (equation IV-C.1)."""

    each_ns: float

    def cost_ns(self) -> float:
        """What the one flush costs that ends a group."""
        return self.each_ns
