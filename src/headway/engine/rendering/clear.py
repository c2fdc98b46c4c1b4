"""A clear costs time for each pixel, by which buffers it clears (libETP, section IV-D)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clear:
    """t_clear(mask, s_rb) = c_mask s_rb (equation IV-D.1), of seven masks; none costs nothing."""

    pixel_ns: Mapping[str, float]
    """By the mask's name, such as `color+depth`."""

    def cost_ns(self, mask: str, pixels: int) -> float:
        """A mask that was not calibrated counts as the dearest one that was."""
        if mask == "nothing":
            return 0.0
        dearest = max(self.pixel_ns.values(), default=0.0)
        return self.pixel_ns.get(mask, dearest) * pixels
