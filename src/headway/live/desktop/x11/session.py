"""One connection to an X server from its first byte on, without a socket: bytes in, bytes out.

After the set-up it asks to hear of changes of the root window's properties; from then on it asks a
question only when the active window changed. `_NET_ACTIVE_WINDOW` passes through 0 while the focus
moves, and a window may be gone before it was asked about: both mean nothing.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from headway.live.desktop.x11 import wire
from headway.live.desktop.x11.wire import Broken, Request

XRES, WM_PID = "XRes", "_NET_WM_PID"
MAX_PID = (1 << 31) - 1

Answers = list[bytes | None]
"""In the order of the questions; None: the server could not answer that."""
Dialogue = Generator[list[Request], Answers, None]


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose window is in the foreground."""

    window: int
    pid: int | None = None
    """None: nobody knows, or a program on another machine."""
    by: str = ""
    """How the pid was learned."""


class Session:
    """Tells `found` about every window that becomes the active one."""

    def __init__(
        self, screen: int, found: Callable[[Owner], None], host: str | None = None
    ) -> None:
        self._screen = screen
        self._found = found
        self._host = socket.gethostname() if host is None else host
        self._stream = wire.Stream()
        self._dialogue: Dialogue | None = None
        self._numbers = 0
        self._expected: deque[int] = deque()
        self._answers: Answers = []
        self._active_atom = 0
        self.follows = False
        """The server said all that is needed to hear of changes."""
        self.changed = False
        """The active window is another one than last time; `look` asks which."""

    @property
    def waits(self) -> bool:
        """The server has to say something now."""
        return self._dialogue is None or bool(self._expected)

    def hear(self, data: bytes) -> bytes:
        """What to send after these bytes came; Broken if there is no use in going on."""
        out = b""
        for message in self._stream.feed(data):
            if self._dialogue is None:
                self._dialogue = self._follow(wire.root_window(message, self._screen))
                out += self._send(next(self._dialogue))
            else:
                out += self._take(message)
        return out

    def look(self) -> bytes:
        """Ask which window is active, if that changed and nothing else is being asked."""
        if not self.changed or self.waits:
            return b""
        return self._go_on([])

    def _take(self, message: bytes) -> bytes:
        kind, number = wire.kind_of(message)
        if kind == wire.PROPERTY_NOTIFY:
            self.changed |= wire.changed_atom(message) == self._active_atom
        if kind not in (wire.ERROR, wire.REPLY):
            return b""
        if not self._expected or number != self._expected[0]:
            raise Broken("it answered what was not asked")
        self._expected.popleft()
        self._answers.append(message if kind == wire.REPLY else None)
        if self._expected:
            return b""
        answers, self._answers = self._answers, []
        return self._go_on(answers)

    def _go_on(self, answers: Answers) -> bytes:
        assert self._dialogue is not None
        return self._send(self._dialogue.send(answers))

    def _send(self, requests: list[Request]) -> bytes:
        for request in requests:
            self._numbers = (self._numbers + 1) & 0xFFFF
            if request.answered:
                self._expected.append(self._numbers)
        return b"".join(request.data for request in requests)

    # -- the conversation --------------------------------------------------------------------

    def _follow(self, root: int) -> Dialogue:
        """Each yield asks some questions and gets their answers; one without questions waits for
        `look`."""
        first = [
            wire.intern_atom(b"_NET_ACTIVE_WINDOW"),
            wire.intern_atom(b"_NET_WM_PID"),
            wire.query_extension(b"X-Resource"),
        ]
        answers = yield [*first, wire.watch_properties(root)]
        active, pid, extension = (_certain(answer) for answer in answers)
        self._active_atom = wire.atom(active)
        opcode = wire.extension_opcode(extension)
        if opcode is not None:
            (version,) = yield [wire.resource_version(opcode)]
            if version is None or not wire.knows_pids(version):
                opcode = None
        self.follows = self.changed = True
        while True:
            yield []
            self.changed = False
            (answer,) = yield [wire.get_property(root, self._active_atom, wire.WINDOW)]
            window = None if answer is None else wire.property_number(answer)
            if window:
                yield from self._ask_owner(window, wire.atom(pid), opcode)

    def _ask_owner(self, window: int, pid_atom: int, opcode: int | None) -> Dialogue:
        """The extension's word comes from the kernel and goes first; the property is written by
        the program itself, and means something only on the machine where it runs."""
        questions = [
            wire.get_property(window, pid_atom, wire.CARDINAL),
            wire.get_property(window, wire.WM_CLIENT_MACHINE, wire.ANY_TYPE),
        ]
        if opcode is not None:
            questions.append(wire.resource_pid(opcode, window))
        said, machine, *known = yield questions
        if said is None or machine is None:  # the window is gone
            return
        pids = [(wire.client_pid(answer), XRES) for answer in known if answer is not None]
        if wire.property_text(machine) in (None, self._host):
            pids.append((wire.property_number(said), WM_PID))
        for pid, by in pids:
            if pid is not None and 0 < pid <= MAX_PID:
                self._found(Owner(window, pid, by))
                return
        self._found(Owner(window))


def _certain(answer: bytes | None) -> bytes:
    if answer is None:
        raise Broken("it does not answer what every X server answers")
    return answer
