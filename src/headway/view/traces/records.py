"""How the event records themselves are kept in a trace, so that they can be read back exactly.

A drawing for people loses things: it clips, rounds and leaves out. So each record is also stored in
a packet of its own, in a field that Perfetto's schema does not have and that Perfetto therefore
skips. The first packet holds a header with the kinds of records and their fields; a record is the
place of its kind in that list and then its values. So the file explains itself, and a reader of
another version finds out before it misunderstands anything.
"""

from __future__ import annotations

import operator
import typing
from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from types import NoneType
from typing import Any

import msgspec

from headway.engine.events import EVENTS, Event
from headway.view.errors import UserError
from headway.view.traces import protobuf

PACKET = 1
"""The field of a Perfetto trace that holds a packet; there is no other."""
RECORD = 0x4857
"""The field of a packet that holds a record. "HW"; outside what Perfetto defines or reserves, and
below 2**16, above which old versions of its decoder warn."""
SEAL = RECORD + 1
"""The field, after the last record, that holds the CRC-32 of everything before it."""
RECORD_KEY = protobuf.key(RECORD, protobuf.BYTES)
"""A packet with a record begins with this; no other packet does."""

_MAGIC = "headway"
_VERSION = 1

Table = tuple[tuple[str, tuple[str, ...]], ...]


class TraceError(UserError, ValueError):
    """A trace cannot be written or read; one line that says which, what was found and why."""


class CutOffTrace(TraceError):
    """A trace ends before its last record; what came before that is whole."""


def reason(error: Exception) -> str:
    """Why the system refused, in a few words."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


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


def _packed(number: int, value: object) -> bytes:
    return protobuf.message(number, msgspec.msgpack.encode(value))


def header() -> bytes:
    """The field that the first packet holds."""
    return _packed(RECORD, _Header(_MAGIC, _VERSION, TABLE))


_CODERS: dict[type[Event], tuple[int, Callable[[Event], tuple[Any, ...]]]] = {
    EVENTS[kind]: (number, operator.attrgetter(*names))
    for number, (kind, names) in enumerate(TABLE)
}
_encode = msgspec.msgpack.Encoder().encode


def encode(event: Event) -> bytes:
    """The record as bytes."""
    number, values_of = _CODERS[type(event)]
    try:
        return _encode((number, *values_of(event)))
    except (OverflowError, UnicodeEncodeError):
        return _encode((number, *map(_wrapped, values_of(event))))


def _wrapped(value: object) -> object:
    """What MessagePack has no form for, in a tuple of ints or of bytes.

    Integers beyond 64 bits are ranks; strings beyond UTF-8 are names that come from the kernel.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return value >> 64, value & ((1 << 64) - 1)
    if isinstance(value, str):
        return (value.encode("utf-8", "surrogatepass"),)
    return value


def _unwrapped(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    if len(value) == 1:
        return value[0].decode("utf-8", "surrogatepass")
    return (value[0] << 64) + value[1]


def _loose(hint: Any) -> Any:
    """The type of a field that may be wrapped."""
    if hint is int:
        return int | tuple[int, int]
    if hint is str:
        return str | tuple[bytes]
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
    """Reads the records of one file. msgspec checks every type, so damage cannot get through."""

    def __init__(self, first: bytes) -> None:
        """`first` is the record in the first packet."""
        try:
            found = msgspec.msgpack.decode(first, type=_Header)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordError(f"no header of a Headway trace ({error})") from None
        if found.magic != _MAGIC:
            raise RecordError(f"the header of something else ({found.magic[:40]!r})")
        if found.version != _VERSION:
            raise RecordError(f"format version {found.version}, expected {_VERSION}")
        known = dict(TABLE)
        strict: list[type[msgspec.Struct]] = []
        loose: list[type[msgspec.Struct]] = []
        self._classes: dict[type[msgspec.Struct], type[Event]] = {}
        for number, (kind, names) in enumerate(found.kinds):
            if known.pop(kind, None) != names:
                raise RecordError(
                    f"records {kind[:40]!r} with other fields than this version of Headway writes"
                )
            hints = typing.get_type_hints(EVENTS[kind])
            strict.append(_struct(kind, number, {name: hints[name] for name in names}))
            loose.append(_struct(kind, number, {name: _loose(hints[name]) for name in names}))
            self._classes[strict[-1]] = self._classes[loose[-1]] = EVENTS[kind]
        if not strict:
            raise RecordError("a header without kinds of records")
        self._strict: Any = msgspec.msgpack.Decoder(typing.Union[tuple(strict)])  # noqa: UP007
        self._loose: Any = msgspec.msgpack.Decoder(typing.Union[tuple(loose)])  # noqa: UP007

    def decode(self, data: bytes | bytearray) -> Event:
        """The record that these bytes stand for."""
        try:
            struct = self._strict.decode(data)
            return self._classes[type(struct)](*msgspec.structs.astuple(struct))
        except msgspec.ValidationError:
            pass
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordError(str(error)) from None
        try:
            struct = self._loose.decode(data)
            values = map(_unwrapped, msgspec.structs.astuple(struct))
            return self._classes[type(struct)](*values)
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordError(str(error)) from None


@lru_cache(maxsize=4)
def decoder(first: bytes) -> Decoder:
    """The decoder for files with this header; making one costs more than reading a small trace."""
    return Decoder(first)
