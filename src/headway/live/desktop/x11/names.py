"""Which display, and what opens it: `:1.0`, and the cookie in an authority file."""

from __future__ import annotations

import os
import re
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from headway.live.server.files import read_plain

COOKIE = b"MIT-MAGIC-COOKIE-1"
MAX_AUTHORITY = 1 << 20
_LOCAL, _ANY = 256, 65535
"""Families of an authority entry: this machine by its name, and every machine."""
_NAME = re.compile(r"(?:unix)?:(?P<number>\d{1,5})(?:\.(?P<screen>\d{1,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Display:
    """An X server on this machine."""

    name: str
    number: int
    screen: int = 0
    authority: str = ""
    """The file with its cookie."""

    @property
    def socket(self) -> Path:
        return Path(f"/tmp/.X11-unix/X{self.number}")  # noqa: S108 - where X servers listen


def parse_display(name: str, authority: str | None = None) -> Display:
    """ValueError says what was expected."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"found {name[:100]!r}, expected one of this machine, such as :0")
    file = authority or os.environ.get("XAUTHORITY") or os.path.expanduser("~/.Xauthority")  # noqa: PTH111
    return Display(name, int(match["number"]), int(match["screen"] or 0), file)


def cookie_for(display: Display) -> tuple[bytes, bytes]:
    """Name and data of what opens a display; both empty where no file has anything, because an X
    server may let its own user in without."""
    try:
        entries = _entries(read_plain(display.authority, MAX_AUTHORITY))
    except (OSError, ValueError):
        return b"", b""
    host = socket.gethostname().encode()
    number = str(display.number).encode()
    for family, address, entry_number, name, data in entries:
        here = family == _ANY or (family == _LOCAL and address == host)
        if here and entry_number in (number, b"") and name == COOKIE:
            return name, data
    return b"", b""


def _entries(data: bytes) -> list[tuple[int, bytes, bytes, bytes, bytes]]:
    """What an authority file holds, as far as it is whole. It is big-endian everywhere."""
    entries, place = [], 0
    try:
        while place < len(data):
            (family,) = struct.unpack_from(">H", data, place)
            place += 2
            fields = []
            for _ in range(4):
                (size,) = struct.unpack_from(">H", data, place)
                place += 2 + size
                fields.append(data[place - size : place])
            if place > len(data):
                break
            address, number, name, value = fields
            entries.append((family, address, number, name, value))
    except struct.error:
        pass
    return entries
