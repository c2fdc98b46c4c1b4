"""An X server for tests: a few windows and properties, and answers in pieces of any size.

It is written from the protocol's own description (X11 Protocol, appendix B; X-Resource 1.2), not
from the client under test, and speaks little-endian only.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from dataclasses import dataclass, field

ATOMS = {"PRIMARY": 1, "CARDINAL": 6, "STRING": 31, "WINDOW": 33, "WM_CLIENT_MACHINE": 36}
BAD_WINDOW = 3
XRES_OPCODE = 142
EVERYTHING = 1 << 30


def screen(root: int, depths: int) -> bytes:
    """A screen with some depths of three visuals each."""
    data = struct.pack("<5I6HIBBBB", root, 1, 2, 3, 0, 640, 480, 9, 9, 1, 1, 5, 0, 0, 24, depths)
    return data + depths * (struct.pack("<BxHxxxx", 24, 3) + bytes(3 * 24))


def welcome(roots: list[int], vendor: bytes = b"nobody") -> bytes:
    """The answer to the set-up of a connection."""
    body = struct.pack("<IIIIHHBB", 1, 0x200000, 0x1FFFFF, 0, len(vendor), 65535, len(roots), 2)
    body += struct.pack("<6B4x", 0, 0, 32, 32, 8, 255) + vendor + bytes(-len(vendor) % 4)
    body += 2 * struct.pack("<BBB5x", 24, 32, 32)
    body += b"".join(screen(root, number + 1) for number, root in enumerate(roots))
    return struct.pack("<BxHHH", 1, 11, 0, len(body) // 4) + body


def refusal(reason: bytes) -> bytes:
    padded = reason + bytes(-len(reason) % 4)
    return struct.pack("<BBHHH", 0, len(reason), 11, 0, len(padded) // 4) + padded


@dataclass
class Server:
    """One connection's view of a display."""

    end: socket.socket
    roots: list[int] = field(default_factory=lambda: [0x11D])
    resources: tuple[int, int] | None = (1, 2)
    """The version of the X-Resource extension."""
    properties: dict[tuple[int, str], tuple[str, int, bytes]] = field(default_factory=dict)
    """(window, name): type, bits, value"""
    pids: dict[int, int] = field(default_factory=dict)
    """The windows, and the process behind each; 0: on another machine."""
    chunk: int = EVERYTHING
    asked: list[str] = field(default_factory=list)
    """The requests that came."""
    auth: tuple[bytes, bytes] = (b"", b"")
    """Name and data with which the client came."""

    def __post_init__(self) -> None:
        self.end.setblocking(False)
        self.atoms = dict(ATOMS)
        self.number = 0
        self.watched: set[int] = set()
        self.said = bytearray()
        self._heard = bytearray()
        self._out: deque[bytes] = deque()
        self._is_set_up = False

    # -- what a test does --------------------------------------------------------------------

    def set_active(self, window: int, *, root: int | None = None) -> None:
        """As a window manager does when the focus moves."""
        root = self.roots[0] if root is None else root
        value = struct.pack("<I", window)
        self.set_property(root, "_NET_ACTIVE_WINDOW", "WINDOW", 32, value)

    def set_property(self, window: int, name: str, kind: str, bits: int, value: bytes) -> None:
        self.properties[window, name] = kind, bits, value
        if window in self.watched:
            self.notify(window, name)

    def notify(self, window: int, name: str) -> None:
        """Property `name` of a window changed."""
        event = struct.pack("<BxHIIIB15x", 28, self.number & 0xFFFF, window, self.atom(name), 0, 0)
        self._out.append(event)

    def atom(self, name: str) -> int:
        return self.atoms.setdefault(name, 300 + len(self.atoms))

    def work(self) -> bool:
        """Answer what came, and send a piece of what is due; False if there was nothing to do."""
        try:
            data = self.end.recv(65536)
        except OSError:
            data = b""
        self._heard += data
        while self._take():
            pass
        return self.send() or bool(data)

    def say(self, data: bytes) -> None:
        self._out.append(data)

    def send(self) -> bool:
        if not self._out or not self.chunk:
            return False
        whole = b"".join(self._out)
        self._out.clear()
        try:
            sent = self.end.send(whole[: self.chunk])
        except OSError:
            return False
        self.said += whole[:sent]
        if sent < len(whole):
            self._out.append(whole[sent:])
        return True

    # -- the protocol ------------------------------------------------------------------------

    def _take(self) -> bool:
        if not self._is_set_up:
            return self._set_up()
        if len(self._heard) < 4:
            return False
        opcode, detail, words = struct.unpack_from("<BBH", self._heard)
        if len(self._heard) < 4 * words:
            return False
        body = bytes(self._heard[4 : 4 * words])
        del self._heard[: 4 * words]
        self.number += 1
        self._answer(opcode, detail, body)
        return True

    def _set_up(self) -> bool:
        if len(self._heard) < 12:
            return False
        order, major, _, name_size, data_size = struct.unpack_from("<cxHHHH", self._heard)
        assert (order, major) == (b"l", 11)
        data_at = 12 + name_size + -name_size % 4
        size = data_at + data_size + -data_size % 4
        if len(self._heard) < size:
            return False
        name, data = self._heard[12 : 12 + name_size], self._heard[data_at : data_at + data_size]
        self.auth = bytes(name), bytes(data)
        del self._heard[:size]
        self._is_set_up = True
        self.say(welcome(self.roots))
        return True

    def _answer(self, opcode: int, detail: int, body: bytes) -> None:
        if opcode == 16:
            self.asked.append("InternAtom")
            self._reply(struct.pack("<I", self.atom(self._name(body))))
        elif opcode == 98:
            self.asked.append("QueryExtension")
            here = self._name(body) == "X-Resource" and self.resources is not None
            self._reply(struct.pack("<BBBB", here, XRES_OPCODE, 0, 0))
        elif opcode == 2:
            self.asked.append("ChangeWindowAttributes")
            window, mask, value = struct.unpack("<III", body)
            assert (mask, value) == (0x800, 0x400000)
            self.watched.add(window)
        elif opcode == 20:
            self.asked.append("GetProperty")
            self._get_property(*struct.unpack("<IIIII", body), delete=detail)
        elif opcode == XRES_OPCODE and detail == 0:
            self.asked.append("XResQueryVersion")
            assert self.resources is not None
            self._reply(struct.pack("<HH", *self.resources))
        elif opcode == XRES_OPCODE and detail == 4 and self.resources and self.resources >= (1, 2):
            self.asked.append("XResQueryClientIds")
            self._client_ids(body)
        else:
            raise AssertionError(f"a request {opcode}.{detail} that the server does not have")

    def _get_property(
        self, window: int, atom: int, kind: int, start: int, words: int, *, delete: int
    ) -> None:
        assert (start, delete) == (0, 0)
        if window not in self.pids and window not in self.roots:
            self.say(struct.pack("<BBHIHB21x", 0, BAD_WINDOW, self.number & 0xFFFF, window, 0, 20))
            return
        name = next(n for n, a in self.atoms.items() if a == atom)
        found, bits, value = self.properties.get((window, name), ("", 0, b""))
        if not found:
            self._reply(struct.pack("<III", 0, 0, 0))
        elif kind not in (0, self.atoms[found]):  # another type: no value, but its length
            self._reply(struct.pack("<III", self.atoms[found], len(value), 0), detail=bits)
        else:
            part = value[: 4 * words]
            head = struct.pack(
                "<III", self.atoms[found], len(value) - len(part), len(part) * 8 // bits
            )
            self._reply(head, part, detail=bits)

    def _client_ids(self, body: bytes) -> None:
        count, window, mask = struct.unpack("<III", body)
        assert (count, mask) == (1, 2)
        pid = self.pids.get(window, 0)
        if pid:
            value = struct.pack("<IIII", window & ~0x1FFFFF, 2, 4, pid)
            self._reply(struct.pack("<I", 1), value)
        else:
            self._reply(struct.pack("<I", 0))

    def _reply(self, head: bytes, extra: bytes = b"", *, detail: int = 0) -> None:
        extra += bytes(-len(extra) % 4)
        start = struct.pack("<BBHI", 1, detail, self.number & 0xFFFF, len(extra) // 4)
        self.say(start + head.ljust(24, b"\0") + extra)

    def _name(self, body: bytes) -> str:
        (size,) = struct.unpack_from("<H", body)
        return body[4 : 4 + size].decode()
