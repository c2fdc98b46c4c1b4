"""The part of protobuf's wire format that a trace needs.

A trace uses a dozen fields of Perfetto's schema, always in the same shapes, and a long run writes
millions of them. Spelling the bytes out is faster than building messages, and it keeps a large
dependency out of the program that people install.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack, unpack_from

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types: how long a value is."""

_MASK = (1 << 64) - 1
_LONGEST_VARINT = 10
_ONE = [bytes((n,)) for n in range(0x80)]
_TWO = [bytes((low, high)) for high in range(0x80, 0x100) for low in range(0x80, 0x100)]
"""Every pair of bytes that a longer number begins with: two at a time is twice as fast."""

Value = int | bytes


class WireError(ValueError):
    """Bytes that are not protobuf."""


class CutOffError(WireError):
    """Bytes that stop in the middle of a value."""


def varint(n: int) -> bytes:
    """A number that is not negative, seven bits to the byte, the lowest first."""
    if n < 0x80:
        return _ONE[n]
    out = b""
    while n > 0x3FFF:
        out += _TWO[n & 0x3FFF]
        n >>= 14
    return out + (_ONE[n] if n < 0x80 else bytes((n & 0x7F | 0x80, n >> 7)))


def key(number: int, wire: int) -> bytes:
    """What stands before a field's value."""
    return varint(number << 3 | wire)


def integer(number: int, value: int) -> bytes:
    """An integer or bool field; a negative value takes ten bytes, as in protobuf's int64."""
    return key(number, VARINT) + varint(value & _MASK)


def fixed32(number: int, value: int) -> bytes:
    """A field of always four bytes."""
    return key(number, FIXED32) + pack("<I", value)


def message(number: int, *parts: bytes | bytearray) -> bytes:
    """A field that holds bytes or the fields of a nested message."""
    body = b"".join(parts)
    return key(number, BYTES) + varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    """A string field. Names of programs may hold bytes that are not UTF-8; those become `?`."""
    return message(number, value.encode("utf-8", "replace"))


def read_varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at `at` and the place behind it."""
    if at < len(data) and data[at] < 0x80:  # nearly all of them
        return data[at], at + 1
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        if at >= len(data):
            raise CutOffError("the data end within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, at
    raise WireError(f"a number of more than {_LONGEST_VARINT} bytes")


def fields(data: bytes | bytearray) -> Iterator[tuple[int, int, Value]]:
    """Number, wire type and value of each field; fixed-size values come as unsigned integers."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Value
        if not number:
            raise WireError("a field with the number 0")
        if wire == VARINT:
            value, at = read_varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise WireError(f"a field of the unknown wire type {wire}")
        if at + size > len(data):
            raise CutOffError("the data end within a field")
        if wire == BYTES:
            value = bytes(data[at : at + size])
        else:
            value = unpack_from("<Q" if wire == FIXED64 else "<I", data, at)[0]
        at += size
        yield number, wire, value
