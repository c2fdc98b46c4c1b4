"""Coefficients as the interposer looks for them: a table by a hash of the kind and the mesh.

The interposer adds up what a group costs while the program makes it, from this table alone
(shim/gl/rows.c): the dot product of the group's features with the model's coefficients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from headway.engine.rendering.names import Row, kind_name

SCALE: Final = 1024
"""Costs are told in 1/1024 ns: a pixel takes less than one."""
MOST: Final = 1 << 40
"""A second, in 1/1024 ns."""
PROBES: Final = 4
"""Places in which an entry may stand, one after the other."""
_WORD: Final = (1 << 64) - 1


@runtime_checkable
class Linear(Protocol):
    """A cost model whose predictions are linear in features."""

    def coefficients(self, names: Iterable[str]) -> Mapping[str, float]:
        """Nanoseconds per unit of these features, of those that are known; `group` is the constant
        part of every group."""


class Published(NamedTuple):
    """What commands of one kind cost, in 1/1024 ns: each, by the vertex and by the fragment."""

    kind: int
    mesh: int
    each: int
    vertex: int
    fragment: int


def place_of(kind: int, mesh: int, places: int) -> int:
    """Where the interposer looks first."""
    mixed = (kind ^ (mesh * 0x9E3779B97F4A7C15 & _WORD)) * 0xFF51AFD7ED558CCD & _WORD
    return (mixed >> 32) % places


def publish(
    model: Linear, rows: Iterable[Row], places: list[Published | None]
) -> tuple[int, Sequence[Published | None]]:
    """The constant part of a group's cost, and the table with these rows' costs up to date.

    A kind that finds no place takes another's, which the next group of its program takes back.
    """
    for row in rows:
        name = kind_name(row.kind, row.mesh)
        amounts = [f"{name}.{amount}" for amount in ("count", "vertices", "fragments")]
        if name.startswith("clear."):
            amounts[2] = f"{name}.pixels"
        elif name.startswith("method."):
            amounts[1] = f"{name}.size"
        known = model.coefficients(amounts)
        found = Published(row.kind, row.mesh, *(_scaled(known.get(a, 0.0)) for a in amounts))
        first = place_of(row.kind, row.mesh, len(places))
        way = [(first + i) % len(places) for i in range(PROBES)]
        mine = [at for at in way if _is(places[at], row)] or [at for at in way if not places[at]]
        places[(mine or way)[0]] = found
    return _scaled(model.coefficients(["group"]).get("group", 0.0)) or 1, places


def _is(found: Published | None, row: Row) -> bool:
    return found is not None and (found.kind, found.mesh) == (row.kind, row.mesh)


def _scaled(cost_ns: float) -> int:
    return min(MOST, round(cost_ns * SCALE))
