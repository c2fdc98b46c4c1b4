"""Records: fields at fixed places, as C has them and as Python reads and writes them.

A record is little-endian, and each of its fields stands at a multiple of its own size, so every
compiler puts it in the same place without padding; a record that would need padding is refused.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

U32: Final = "u32"
U64: Final = "u64"
FLAG: Final = "flag"
"""32 bits of which the first byte counts: 0 or not."""
TEXT: Final = "text"
"""Bytes, as many as the field counts, of which the last is 0."""

Word = ctypes.c_uint32 | ctypes.c_uint64
"""A field in memory that two sides use at once: its `value` is read and written whole."""

_FORMATS: Final = {U32: "I", U64: "Q", FLAG: "?3x"}
_WORDS: Final[dict[str, type[Word]]] = {
    U32: ctypes.c_uint32,
    U64: ctypes.c_uint64,
    FLAG: ctypes.c_uint32,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A name, a type, a meaning, and how many of them there are: 0 is one that is no array."""

    name: str
    type: str | Record
    doc: str = ""
    count: int = 0

    @property
    def format(self) -> str:
        """As the module `struct` has it, for one element; a text is one element."""
        if isinstance(self.type, Record):
            return f"{self.type.size}s"
        return f"{self.count}s" if self.type == TEXT else _FORMATS[self.type]

    @property
    def size(self) -> int:
        elements = 1 if self.type == TEXT else max(self.count, 1)
        return elements * struct.calcsize(f"<{self.format}")

    @property
    def alignment(self) -> int:
        if isinstance(self.type, Record):
            return max(part.alignment for part in self.type.fields)
        return 1 if self.type == TEXT else struct.calcsize(f"<{self.format}")


@dataclass(frozen=True)
class Record:
    """Fields one after the other."""

    name: str
    doc: str
    fields: Sequence[Field]
    shared: bool = False
    """Two sides use it at the same time: in C no plain access to it compiles."""

    def __post_init__(self) -> None:
        at = 0
        for part in self.fields:
            if at % part.alignment:
                raise ValueError(f"{self.name}.{part.name} would stand at {at}, unaligned")
            at += part.size
        if at % max(part.alignment for part in self.fields):
            raise ValueError(f"{self.name} ends at {at}, unaligned")
        if len(set(self.names)) != len(self.fields):
            raise ValueError(f"{self.name} has two fields of one name")

    @cached_property
    def size(self) -> int:
        return sum(part.size for part in self.fields)

    @cached_property
    def _places(self) -> dict[str, tuple[int, Field]]:
        ends = accumulate(part.size for part in self.fields)
        return {f.name: (end - f.size, f) for end, f in zip(ends, self.fields, strict=True)}

    @cached_property
    def _whole(self) -> struct.Struct:
        return self.select(*self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.fields)

    def pack(self, *values: Any) -> bytes:
        """The record as bytes, from a value for each field, in their order."""
        return self._whole.pack(*values)

    def unpack(self, data: bytes) -> tuple[Any, ...]:
        return self._whole.unpack(data)

    def at(self, name: str, index: int = 0) -> int:
        """Where a field, or an element of an array, stands."""
        place, part = self._places[name]
        return place + index * (part.size // max(part.count, 1))

    def slice(self, first: str, last: str = "") -> slice:
        """Where a field stands, and those behind it up to another."""
        place, part = self._places[last or first]
        return slice(self.at(first), place + part.size)

    def select(self, *names: str) -> struct.Struct:
        """Unpacks these fields, which are in their order in the record; none may be an array."""
        layout, end = "<", 0
        for name in names:
            place, part = self._places[name]
            if part.count and part.type != TEXT:
                raise ValueError(f"{self.name}.{name} is an array")
            layout += f"{place - end}x{part.format}"
            end = place + part.size
        return struct.Struct(layout)

    def word(self, address: int, name: str) -> Word:
        """A field of a record at an address."""
        return self._word(name).from_address(address + self.at(name))

    def words(self, address: int, name: str) -> ctypes.Array[Any]:
        """The same of an array."""
        count = self._places[name][1].count
        return (self._word(name) * count).from_address(address + self.at(name))

    def write(self, memory: Any, name: str, value: int, index: int = 0) -> None:
        """Into a record that begins where a buffer does."""
        self._struct(name).pack_into(memory, self.at(name, index), value)

    def read(self, memory: Any, name: str, index: int = 0) -> int:
        (value,) = self._struct(name).unpack_from(memory, self.at(name, index))
        return int(value)

    def _word(self, name: str) -> type[Word]:
        kind = self._places[name][1].type
        assert isinstance(kind, str)
        return _WORDS[kind]

    def _struct(self, name: str) -> struct.Struct:
        return struct.Struct(f"<{self._places[name][1].format}")
