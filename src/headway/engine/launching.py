"""Launches of kernels and copies, as the interposer measures them, and the names of their features.

launch.2f0c.items, .block, .shared, .buffers   a kernel: threads in all and of a block, bytes
copy.h.bytes                                   a copy, by its way: h to the device, d from there
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headway.engine.shares import WHOLE_PERMILLE

MOST_NS: Final = 1 << 50
"""Two weeks: more than any launch takes."""


class Launch(NamedTuple):
    """Launches of one kernel in one shape that were measured together (layout.py, `launched`)."""

    kernel: int
    items: int
    buffers: int
    took_ns: int
    block: int
    shared: int
    works: int
    share: int

    @property
    def share_permille(self) -> int:
        """Whatever a client wrote is a share."""
        return self.share if 0 < self.share < WHOLE_PERMILLE else WHOLE_PERMILLE

    @property
    def each_ns(self) -> int:
        """What one of them took; 0: nothing that can be."""
        return self.took_ns // max(1, self.works) if self.took_ns < MOST_NS else 0

    @property
    def features(self) -> dict[str, int]:
        """Of one of them; amounts of zero are left out."""
        if not self.block:
            way = chr(self.kernel) if 32 < self.kernel < 127 else f"{self.kernel:x}"
            return {f"copy.{'dot' if way == '.' else way}.bytes": self.items}
        name = f"launch.{self.kernel:x}"
        amounts = {
            "items": self.items,
            "block": self.block,
            "shared": self.shared,
            "buffers": self.buffers,
        }
        return {f"{name}.{amount}": value for amount, value in amounts.items() if value}


class Shape(NamedTuple):
    """What a cost model goes by: all of it but which kernel."""

    items: int
    buffers: int = 0
    block: int = 0
    shared: int = 0


def shape_of(features: Mapping[str, int]) -> tuple[str, Shape] | None:
    """The kernel, or the way of a copy, and its shape; None: these are no launch's features."""
    if not features:
        return None
    what, _, rest = next(iter(features)).partition(".")
    kernel = f"{what}.{rest.partition('.')[0]}"
    if what == "copy":
        return kernel, Shape(features.get(f"{kernel}.bytes", 0))
    if what != "launch":
        return None
    amounts = (features.get(f"{kernel}.{amount}", 0) for amount in Shape._fields)
    return kernel, Shape(*amounts)
