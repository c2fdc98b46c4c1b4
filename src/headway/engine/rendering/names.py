"""The names of a group's features: what the interposer counted, for people and for cost models.

clear.color+depth.pixels                a clear of two buffers: 90000 pixels
clear.color.part.pixels                 a clear within a scissor
draw.3d84b9b1c2581b.0a.10000000005.vertices   a program, the state, a mesh
method.453.size                         anything else, by its number in the interposer
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

BUFFERS: Final = ("color", "depth", "stencil")
"""By bit in a clear's mask."""
_CLEARS: Final = 16
"""Kinds below that are clears: of a mask, and of a part of the buffers if 8 is set."""
_A_DRAW: Final = 1 << 63


class Row(NamedTuple):
    """Commands of one kind in one group, as the interposer adds them up (shim/gl/rows.h)."""

    kind: int
    mesh: int
    commands: int
    vertices: int
    fragments: int


def mask_name(mask: int) -> str:
    """`color+depth` is mask 3."""
    return "+".join(name for bit, name in enumerate(BUFFERS) if mask >> bit & 1) or "nothing"


def kind_name(kind: int, mesh: int = 0) -> str:
    """Whatever a client wrote has a name."""
    if kind < _CLEARS:
        return f"clear.{mask_name(kind & 7)}{'.part' if kind & 8 else ''}"
    if kind < _A_DRAW:
        return f"method.{kind - 256}"
    return f"draw.{program_name(kind)}.{kind & 255:02x}.{mesh:x}"


def program_name(kind: int) -> str:
    """What identifies a program: the hash of its shaders' sources, less the byte of the state."""
    return f"{(kind & ~_A_DRAW) >> 8:014x}"


def features_of(rows: Iterable[Row]) -> dict[str, int]:
    """The features of a group; amounts of zero are left out."""
    found: dict[str, int] = {}
    for kind, mesh, commands, vertices, fragments in rows:
        name = kind_name(kind, mesh)
        if kind < _CLEARS:
            amounts = [("count", commands), ("pixels", fragments)]
        elif kind < _A_DRAW:
            amounts = [("count", commands), ("size", vertices)]
        else:
            amounts = [("count", commands), ("vertices", vertices), ("fragments", fragments)]
        for amount, value in amounts:
            if value:
                found[f"{name}.{amount}"] = found.get(f"{name}.{amount}", 0) + value
    return found


class Command(NamedTuple):
    """What a feature's name says: `draw`, then its program and so on, and the amount's name."""

    what: str
    which: str
    amount: str
    value: int


def commands_of(features: Mapping[str, int]) -> Iterator[Command]:
    """The features that are of OpenGL; `which` is a clear's buffers or a draw's program."""
    for name, value in features.items():
        what, _, rest = name.partition(".")
        which, _, _ = rest.partition(".")
        if what in ("clear", "draw", "method") and which != rest:
            yield Command(what, which, name.rpartition(".")[2], value)
