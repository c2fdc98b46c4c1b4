"""What a program or library says of itself in its file: its machine, its loader, the libraries it
names. `ldd` would be shorter, and may run what it looks at."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct("<16sHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<QQ")
_LOAD, _DYNAMIC_SEGMENT, _INTERPRETER = 1, 2, 3
_NEEDED, _STRINGS = 1, 5
MAX_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class Elf:
    """What was found."""

    bits: int
    machine: int = 0
    """The kind of processor, as the file numbers it."""
    loader: str = ""
    """The dynamic loader that a program asks for."""
    is_static: bool = False
    needed: tuple[str, ...] = ()


def read_elf(path: Path) -> Elf | None:
    """None if this is no ELF file; ValueError or struct.error if it is a broken one."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data)


def _read(data: mmap.mmap) -> Elf:
    if len(data) < _HEADER.size:
        raise ValueError("it is cut off")
    if data[4] != 2 or data[5] != 1:
        return Elf(32 if data[4] == 1 else 64)
    values = _HEADER.unpack_from(data)
    machine, table, size, count = values[2], values[5], values[9], values[10]
    segments = [_SEGMENT.unpack_from(data, table + i * size) for i in range(count)]
    loads = [s for s in segments if s[0] == _LOAD]
    dynamic = next((s for s in segments if s[0] == _DYNAMIC_SEGMENT), None)
    loader = next((_text(data, s[2]) for s in segments if s[0] == _INTERPRETER), "")
    if dynamic is None or not loader:
        return Elf(64, machine, is_static=True)
    return Elf(64, machine, loader, needed=_needed(data, dynamic, loads))


def _needed(
    data: mmap.mmap, dynamic: tuple[int, ...], loads: list[tuple[int, ...]]
) -> tuple[str, ...]:
    names: list[int] = []
    strings = 0
    for place in range(dynamic[2], dynamic[2] + dynamic[5], _DYNAMIC.size)[:MAX_ENTRIES]:
        tag, value = _DYNAMIC.unpack_from(data, place)
        if tag == 0:
            break
        if tag == _NEEDED:
            names.append(value)
        elif tag == _STRINGS:
            strings = _place_of(value, loads)
    return tuple(_text(data, strings + name) for name in names)


def _place_of(address: int, loads: list[tuple[int, ...]]) -> int:
    """Where in the file something is that has this address in memory."""
    for _, _, offset, start, _, length, _, _ in loads:
        if start <= address < start + length:
            return address - start + offset
    raise ValueError("its names are nowhere in the file")


def _text(data: mmap.mmap, place: int) -> str:
    return data[place : data.find(b"\0", place)].decode(errors="replace")
