"""Event records as bytes: for traces, and for the way from a daemon to whoever records it.

A record is the place of its kind in a table, and then its values, as MessagePack. The table comes
first, as a header, so what is written explains itself, and a reader of another version finds out
before it misunderstands anything.
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec

from headway.engine.events import EVENTS, Event

_MAGIC = "headway"
_VERSION = 2

Table = tuple[tuple[str, tuple[str, ...]], ...]


class RecordError(ValueError):
    """A record is not what the header says it is."""


class _Header(msgspec.Struct, array_like=True):
    magic: str
    version: int
    kinds: Table


def _names(cls: type[Event]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclass_fields(cls))


TABLE: Table = tuple((kind, _names(cls)) for kind, cls in EVENTS.items())
"""The kinds that this version writes, in the order of their numbers."""


def header() -> bytes:
    """What comes before the first record."""
    return msgspec.msgpack.encode(_Header(_MAGIC, _VERSION, TABLE))


NUMBERS: dict[Any, int] = {EVENTS[kind]: number for number, (kind, _) in enumerate(TABLE)}
"""The place of each kind in the table."""
_GETTERS: dict[type[Event], Callable[[Event], Any]] = {
    EVENTS[kind]: operator.attrgetter(*names) for kind, names in TABLE
}
_encode = msgspec.msgpack.Encoder().encode


def values_of(event: Event) -> tuple[Any, ...]:
    """The values of a record, in the order of its fields."""
    values = _GETTERS[type(event)](event)
    return values if type(values) is tuple else (values,)


def pack(number: int, values: Iterable[Any]) -> bytes:
    """A record as bytes."""
    try:
        return _encode((number, *values))
    except (OverflowError, UnicodeEncodeError):
        return _encode((number, *map(_wrapped, values)))


def _wrapped(value: object) -> object:
    """What MessagePack has no form for, in a tuple of ints or of bytes.

    Integers beyond 64 bits are ranks; strings beyond UTF-8 are names that come from the kernel.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return value >> 64, value & ((1 << 64) - 1)
    if isinstance(value, str):
        return (value.encode("utf-8", "surrogatepass"),)
    if isinstance(value, tuple):
        return tuple(map(_wrapped, value))
    return value


def _unwrapped(value: Any, hint: Any) -> Any:
    """The value of a field of this type that `_wrapped` may have changed."""
    if not isinstance(value, tuple):
        return value
    if typing.get_origin(hint) is tuple:
        return tuple(map(_unwrapped, value, _parts(hint, len(value))))
    if len(value) == 1:
        return value[0].decode("utf-8", "surrogatepass")
    return (value[0] << 64) + value[1]


def _parts(hint: Any, count: int) -> tuple[Any, ...]:
    """The types of the parts of a tuple of so many."""
    parts = typing.get_args(hint)
    return parts[:1] * count if parts[-1] is Ellipsis else parts


def _loose(hint: Any) -> Any:
    """The type of a field that may be wrapped."""
    if hint is int:
        return int | tuple[int, int]
    if hint is str:
        return str | tuple[bytes]
    if typing.get_origin(hint) is tuple:
        parts = (part if part is Ellipsis else _loose(part) for part in typing.get_args(hint))
        return types.GenericAlias(tuple, tuple(parts))
    if NoneType in typing.get_args(hint):
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not NoneType)
        return _loose(inner) | None
    return hint


def _struct(kind: str, number: int, hints: dict[str, Any]) -> type[msgspec.Struct]:
    """The form of a record as msgspec checks it."""
    return msgspec.defstruct(
        kind, list(hints.items()), array_like=True, forbid_unknown_fields=True, tag=number
    )


class Decoder:
    """Reads the records that follow a header. msgspec checks every type: no damage gets through."""

    def __init__(self, first: bytes) -> None:
        """`first` is the header."""
        try:
            found = msgspec.msgpack.decode(first, type=_Header)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordError(f"no header of Headway records ({error})") from None
        if found.magic != _MAGIC:
            raise RecordError(f"the header of something else ({found.magic[:40]!r})")
        if found.version != _VERSION:
            raise RecordError(f"format version {found.version}, expected {_VERSION}")
        known = dict(TABLE)
        strict: list[type[msgspec.Struct]] = []
        loose: list[type[msgspec.Struct]] = []
        self._classes: dict[type[msgspec.Struct], type[Event]] = {}
        self._hints: dict[type[Event], list[Any]] = {}
        for number, (kind, names) in enumerate(found.kinds):
            if known.pop(kind, None) != names:
                raise RecordError(
                    f"records {kind[:40]!r} with other fields than this version of Headway writes"
                )
            hints = typing.get_type_hints(EVENTS[kind])
            self._hints[EVENTS[kind]] = [hints[name] for name in names]
            strict.append(_struct(kind, number, {name: hints[name] for name in names}))
            loose.append(_struct(kind, number, {name: _loose(hints[name]) for name in names}))
            self._classes[strict[-1]] = self._classes[loose[-1]] = EVENTS[kind]
        if not strict:
            raise RecordError("a header without kinds of records")
        self._strict: Any = msgspec.msgpack.Decoder(typing.Union[tuple(strict)])  # noqa: UP007
        self._loose: Any = msgspec.msgpack.Decoder(typing.Union[tuple(loose)])  # noqa: UP007

    def values(self, data: bytes | bytearray | memoryview) -> tuple[type[Event], tuple[Any, ...]]:
        """The kind and the values of the record that these bytes stand for."""
        try:
            struct = self._strict.decode(data)
            return self._classes[type(struct)], msgspec.structs.astuple(struct)
        except msgspec.ValidationError:
            pass
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordError(str(error)) from None
        try:
            struct = self._loose.decode(data)
            kind = self._classes[type(struct)]
            hints = self._hints[kind]
            return kind, tuple(map(_unwrapped, msgspec.structs.astuple(struct), hints))
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordError(str(error)) from None

    def decode(self, data: bytes | bytearray | memoryview) -> Event:
        """The record that these bytes stand for."""
        kind, values = self.values(data)
        return kind(*values)


@lru_cache(maxsize=4)
def decoder(first: bytes) -> Decoder:
    """The decoder for this header; making one costs more than reading a small trace."""
    return Decoder(first)
