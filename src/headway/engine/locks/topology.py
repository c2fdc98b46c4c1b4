"""Distances between devices: how many links to their nearest common switch or hub."""

from __future__ import annotations

from collections.abc import Sequence

FARTHEST = 3
"""Beyond a common hub; also what larger numbers of a table are cut to."""
DISTANCES = FARTHEST + 1
PEERS_WITHIN = 2
"""Devices copy to each other directly only below a common hub."""


class Topology:
    """Distances from a table (NVML's common ancestors) or, without one, of a binary tree: devices
    0 and 1 are neighbours, 0 and 2 are two links apart."""

    def __init__(self, devices: int, table: Sequence[Sequence[int]] | None = None) -> None:
        if table is None:
            table = [[_binary(a, b) for b in range(devices)] for a in range(devices)]
        square = len(table) == devices and all(len(row) == devices for row in table)
        if not square:
            raise ValueError(f"distances: expected a row and a column for each of {devices} GPUs")
        for a in range(devices):
            for b in range(devices):
                here, there = table[a][b], table[b][a]
                if here < 0 or here != there or (here == 0) != (a == b):
                    raise ValueError(
                        f"distances[{a}][{b}]: found {here}, expected the same as [{b}][{a}], "
                        "0 between a GPU and itself and more between two"
                    )
        self._table = [[min(distance, FARTHEST) for distance in row] for row in table]

    def distance(self, a: int | None, b: int) -> int:
        """From a task's home to a device; a task without a home is at home everywhere."""
        return 0 if a is None else self._table[a][b]

    def are_peers(self, a: int, b: int) -> bool:
        """Whether two devices can copy to each other directly."""
        return self._table[a][b] <= PEERS_WITHIN


def _binary(a: int, b: int) -> int:
    return (a ^ b).bit_length()
