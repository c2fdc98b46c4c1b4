"""A program with windows, by way of libX11: sets properties as programs and window managers do."""

from __future__ import annotations

import ctypes
import ctypes.util
from types import TracebackType

_REPLACE = 0
CARDINAL, STRING, WINDOW = 6, 31, 33


class XClient:
    """A connection to a display."""

    def __init__(self, display: str) -> None:
        self._x = ctypes.CDLL(ctypes.util.find_library("X11"))
        for name in ("XOpenDisplay", "XDefaultRootWindow", "XCreateSimpleWindow", "XInternAtom"):
            getattr(self._x, name).restype = ctypes.c_void_p
        self._display = ctypes.c_void_p(self._x.XOpenDisplay(display.encode()))
        assert self._display, f"no X server on {display}"
        self.root = int(self._x.XDefaultRootWindow(self._display))

    def __enter__(self) -> XClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._x.XCloseDisplay(self._display)

    def window(self) -> int:
        root = ctypes.c_ulong(self.root)
        made = self._x.XCreateSimpleWindow(self._display, root, 0, 0, 9, 9, 0, 0, 0)
        self._x.XSync(self._display, 0)
        return int(made)

    def set_number(self, window: int, name: str, kind: int, value: int) -> None:
        self._set(window, name, kind, 32, bytes(ctypes.c_long(value)), 1)

    def set_text(self, window: int, name: str, value: bytes) -> None:
        self._set(window, name, STRING, 8, value, len(value))

    def _set(self, window: int, name: str, kind: int, bits: int, data: bytes, count: int) -> None:
        atom = ctypes.c_ulong(self._x.XInternAtom(self._display, name.encode(), 0))
        where, of = ctypes.c_ulong(window), ctypes.c_ulong(kind)
        self._x.XChangeProperty(self._display, where, atom, of, bits, _REPLACE, data, count)
        self._x.XSync(self._display, 0)

    def activate(self, window: int) -> None:
        """What a window manager does when the focus moves."""
        self.set_number(self.root, "_NET_ACTIVE_WINDOW", WINDOW, window)
