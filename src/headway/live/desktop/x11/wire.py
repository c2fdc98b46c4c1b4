"""What goes over the wire to an X server and back, as bytes; no socket here.

Only what is needed to follow one property of the root window: the X11 protocol's connection set-up
and four requests, and two of the X-Resource extension (version 1.2). Nothing that a server sends is
trusted: lengths are bounded before anything is kept, and whatever does not fit is `Broken`.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from typing import Final

BYTE_ORDER: Final = b"l" if sys.byteorder == "little" else b"B"
ERROR, REPLY, PROPERTY_NOTIFY, GENERIC_EVENT = 0, 1, 28, 35
UNIT: Final = 32
"""Every message after the set-up has at least so many bytes."""
MAX_EXTRA: Final = 4096
"""No answer to what is asked here is longer; more is not kept."""
MAX_WORDS: Final = 64
"""How much of a property is asked for, in four bytes each."""

ANY_TYPE, CARDINAL, WINDOW, WM_CLIENT_MACHINE = 0, 6, 33, 36
"""Atoms that are the same on every server."""

_SETUP = struct.Struct("=cxHHHHxx")
_SETUP_HEAD = struct.Struct("=BBHHH")
_SETUP_BODY = struct.Struct("=16xHxxBB10x")
_SCREEN = struct.Struct("=I35xB")
_DEPTH = struct.Struct("=xxH4x")
_HEAD = struct.Struct("=BxHI")
_PROPERTY = struct.Struct("=16xI")
_WORD = struct.Struct("=I")
_CLIENT_ID = struct.Struct("=III")
_VISUAL_SIZE, _FORMAT_SIZE = 24, 8
_PROPERTY_CHANGES, _EVENT_MASK = 1 << 22, 1 << 11
_PID = 1 << 1


class Broken(ConnectionError):
    """The other side is no X server that can be worked with; one line says why."""


@dataclass(frozen=True, slots=True)
class Request:
    """Something to send."""

    data: bytes
    answered: bool = True
    """Whether a reply comes, or an error in its place; of the others only failures are heard."""


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _request(opcode: int, detail: int, body: bytes, *, answered: bool = True) -> Request:
    head = struct.pack("=BBH", opcode, detail, 1 + len(body) // 4)
    return Request(head + body, answered)


# -- what is said --------------------------------------------------------------------------------


def setup(name: bytes, data: bytes) -> bytes:
    """The first bytes of a connection, with who vouches for us."""
    head = _SETUP.pack(BYTE_ORDER, 11, 0, len(name), len(data))
    return head + _padded(name) + _padded(data)


def intern_atom(name: bytes) -> Request:
    return _request(16, 0, struct.pack("=Hxx", len(name)) + _padded(name))


def query_extension(name: bytes) -> Request:
    return _request(98, 0, struct.pack("=Hxx", len(name)) + _padded(name))


def watch_properties(window: int) -> Request:
    """Ask for an event whenever a property of this window changes."""
    body = struct.pack("=III", window, _EVENT_MASK, _PROPERTY_CHANGES)
    return _request(2, 0, body, answered=False)


def get_property(window: int, atom: int, kind: int) -> Request:
    return _request(20, 0, struct.pack("=IIIII", window, atom, kind, 0, MAX_WORDS))


def resource_version(opcode: int) -> Request:
    return _request(opcode, 0, struct.pack("=BBxx", 1, 2))


def resource_pid(opcode: int, window: int) -> Request:
    """Which process made this window? The server knows it from the kernel."""
    return _request(opcode, 4, struct.pack("=III", 1, window, _PID))


# -- what is heard -------------------------------------------------------------------------------


class Stream:
    """Cuts what comes into messages, however it is divided on the way."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_set_up = False

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now; the first one of all is the answer to the set-up."""
        self._data += data
        messages, start = [], 0
        while (size := self._size(start)) is not None and start + size <= len(self._data):
            messages.append(bytes(self._data[start : start + size]))
            start += size
            self._is_set_up = True
        del self._data[:start]
        return messages

    def _size(self, start: int) -> int | None:
        """Bytes of the message that begins there, if that can be told yet."""
        if len(self._data) - start < 8:
            return None
        if not self._is_set_up:  # 256 KiB at most: its length has 16 bits
            status, _, _, _, words = _SETUP_HEAD.unpack_from(self._data, start)
            if status > 2:
                raise Broken("it does not speak the X protocol")
            return _SETUP_HEAD.size + 4 * int(words)
        kind, _, words = _HEAD.unpack_from(self._data, start)
        if kind & 0x7F not in (REPLY, GENERIC_EVENT):
            return UNIT
        if 4 * words > MAX_EXTRA:
            raise Broken(f"it sent a message of {UNIT + 4 * words} bytes")
        return UNIT + 4 * int(words)


def kind_of(message: bytes) -> tuple[int, int]:
    """What it is, and to which request it belongs (the last 16 bits of its number)."""
    kind, sequence, _ = _HEAD.unpack_from(message)
    return kind, sequence


def root_window(message: bytes, screen: int) -> int:
    """The root window of a screen, from the answer to the set-up."""
    status, reason_size, _, _, _ = _SETUP_HEAD.unpack_from(message)
    if status != 1:
        reason = message[8 : 8 + reason_size] if status == 0 else message[8:]
        raise Broken(f"it refused: {printable(reason) or 'without a reason'}")
    try:
        vendor_size, screens, formats = _SETUP_BODY.unpack_from(message, 8)
        place = 8 + _SETUP_BODY.size + vendor_size + -vendor_size % 4 + _FORMAT_SIZE * formats
        for _ in range(min(screen, screens)):
            place = _after_screen(message, place)
        if screen < screens:
            return int(_SCREEN.unpack_from(message, place)[0])
    except struct.error:
        raise Broken("it described itself in too few bytes") from None
    raise Broken(f"it has {screens} screens, and no number {screen}")


def _after_screen(message: bytes, place: int) -> int:
    _, depths = _SCREEN.unpack_from(message, place)
    place += _SCREEN.size
    for _ in range(depths):
        (visuals,) = _DEPTH.unpack_from(message, place)
        place += _DEPTH.size + _VISUAL_SIZE * visuals
    return place


def atom(reply: bytes) -> int:
    """The number of a name."""
    return int(_WORD.unpack_from(reply, 8)[0])


def extension_opcode(reply: bytes) -> int | None:
    """None: the server has no such extension."""
    present, opcode = struct.unpack_from("=BB", reply, 8)
    return int(opcode) if present else None


def knows_pids(reply: bytes) -> bool:
    """X-Resource tells pids since version 1.2."""
    return tuple(struct.unpack_from("=HH", reply, 8)) >= (1, 2)


def property_number(reply: bytes) -> int | None:
    """The first value of a property of 32-bit numbers; None: there is no such property."""
    return _word(reply, UNIT) if reply[1] == 32 and _count(reply) else None


def property_text(reply: bytes) -> str | None:
    """A property of bytes, as text that is safe to print; None: there is no such property."""
    return printable(reply[UNIT : UNIT + _count(reply)]) if reply[1] == 8 else None


def _count(reply: bytes) -> int:
    """How many values the property has."""
    return int(_PROPERTY.unpack_from(reply)[0])


def client_pid(reply: bytes) -> int | None:
    """The process behind a window; None: the server does not know, or it is on another machine."""
    if not _word(reply, 8) or len(reply) < UNIT + _CLIENT_ID.size:
        return None
    _, mask, size = _CLIENT_ID.unpack_from(reply, UNIT)
    return _word(reply, UNIT + _CLIENT_ID.size) if mask == _PID and size >= 4 else None


def _word(reply: bytes, place: int) -> int | None:
    if len(reply) < place + _WORD.size:
        return None
    return int(_WORD.unpack_from(reply, place)[0])


def changed_atom(event: bytes) -> int:
    """Which property changed; it is where a reply has its atom."""
    return atom(event)


def printable(data: bytes) -> str:
    """What somebody else wrote, in a form that a log or a terminal can take."""
    text = data.decode("latin-1").strip()
    return "".join(c if c.isprintable() else "?" for c in text)[:200]
