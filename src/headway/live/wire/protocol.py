"""What a program and the daemon say to each other; shim/core/protocol.h says the same in C.

Nothing that a client writes is trusted: messages have one fixed size each, numbers are checked
where they are used, and the page a client writes is read as a hint.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from headway.engine.turns.jobs import TOLD
from headway.engine.turns.pauses import BINS
from headway.engine.turns.port import JobReport

MAGIC: Final = 0x59574448
VERSION: Final = 3
PAGE: Final = 4096

SUBMIT, COMPLETE, RELEASE, WITHDRAW, ENTER, LEAVE, TURNS = 1, 2, 3, 4, 5, 6, 7
GRANT = 16
AWAIT, TELL, YIELD = 1, 2, 4
"""What a client does around a swap; what they mean is said in shim/core/protocol.h."""
ITS_END, ITS_MARK = 1, 2
"""What is wanted of a turn that others wait for: to be told its end, and that by a mark before."""

_HELLO = struct.Struct("<II64s64s")
_WELCOME = struct.Struct("<IIII")
_MESSAGE = struct.Struct("<IIQQQQQII")
_CLIENT_PAGE = struct.Struct("<IIIIQQQQQQQ")
_TURNS = struct.Struct("<QQII")
_TURNS_AT = 584
"""Behind the matrix."""
PAUSED_AT: Final = _TURNS_AT
UNMARKED_AT: Final = _TURNS_AT + 16
_LANES = 64
_MARKS = struct.Struct(f"<{_LANES}I")
MARKS_AT: Final = _TURNS_AT + _TURNS.size
_PIECES = struct.Struct("<IIQ")
_PIECES_AT = _TURNS_AT + _TURNS.size + 2 * _MARKS.size
GATED_AT: Final = _PIECES_AT
OPEN_AT: Final = _PIECES_AT + 4
"""The one word of the client's page that the daemon writes: the GPU waits for it."""
PIECE_NS_AT: Final = _PIECES_AT + 8
GIVEN_AT: Final = _PIECES_AT + _PIECES.size
OPENED_AT: Final = GIVEN_AT + 2 * _MARKS.size
CLOSED_AT: Final = OPENED_AT + _MARKS.size
MARKS_SIZE: Final = _MARKS.size
_WAITING = struct.Struct("<IIII")
WAITING_AT: Final = _PIECES_AT + _PIECES.size + 4 * _MARKS.size
NEARS_AT: Final = WAITING_AT + 4
NEAR_AT: Final = WAITING_AT + 8
JOBS_AT: Final = WAITING_AT + 12
"""How many jobs have begun; after this the records of the last ones."""
JOB: Final = struct.Struct("<QQQIIIIII")
JOB_AT: Final = WAITING_AT + _WAITING.size
PAUSES_AT: Final = JOB_AT + TOLD * JOB.size
CLIENT_PAGE_SIZE: Final = PAUSES_AT + 4 * BINS

HELLO_SIZE: Final = _HELLO.size
MESSAGE_SIZE: Final = _MESSAGE.size


class ProtocolError(ValueError):
    """A client said something that is not of the protocol."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client."""

    name: str
    token: str


class Message(NamedTuple):
    """Any later one."""

    type: int
    seq: int
    signature: int = 0
    submit_ns: int = 0
    start_ns: int = 0
    finish_ns: int = 0
    units: int = 0
    frame: bool = False
    passed: int = 0


def _text(raw: bytes) -> str:
    """Text of a fixed field, safe to print."""
    text = raw.split(b"\0", 1)[0].decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def parse_hello(data: bytes) -> Hello:
    if len(data) != _HELLO.size:
        raise ProtocolError(f"a hello of {len(data)} bytes instead of {_HELLO.size}")
    magic, version, name, token = _HELLO.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(f"a hello of version {version} instead of {VERSION}")
    return Hello(_text(name) or "unnamed", _text(token))


def build_hello(name: str, token: str = "") -> bytes:
    return _HELLO.pack(MAGIC, VERSION, name.encode()[:63], token.encode()[:63])


def build_welcome(channel: int) -> bytes:
    return _WELCOME.pack(MAGIC, VERSION, channel & 0xFFFFFFFF, 0)


def parse_message(data: bytes) -> Message:
    if len(data) != _MESSAGE.size:
        raise ProtocolError(f"a message of {len(data)} bytes instead of {_MESSAGE.size}")
    kind, seq, signature, submit, start, finish, units, frame, passed = _MESSAGE.unpack(data)
    return Message(kind, seq, signature, submit, start, finish, units, bool(frame), passed)


def build_message(message: Message) -> bytes:
    return _MESSAGE.pack(*message)


@dataclass(frozen=True, slots=True)
class ClientPage:
    """What a client says of itself."""

    busy: bool
    passed: int
    frames: int
    used_ns: int
    last_ns: int
    free_groups: int
    implicit: int
    methods: int
    paused: int = 0
    unmarked: bool = False
    unknown: int = 0
    """Functions for GPU work that it found and that are not hooked."""
    marked: bool = False
    """Marks are on their way that the GPU has not written yet."""
    gated: bool = False
    """Its work waits on the GPU for the gate to open."""
    piece_ns: int = 0
    waiting: bool = False
    """It waits for the GPU."""
    pieces: bytes = b""
    """Of each stream how many pieces were given and ended, and how many the GPU began and did."""

    @property
    def drains(self) -> bool:
        """It uses the GPU, or may."""
        return self.busy and (self.unmarked or self.marked or self.trails)

    @property
    def runs(self) -> bool:
        """Pieces are on the GPU, to which nothing more is added."""
        return any(
            opened != closed and (given != opened or given == ended)
            for given, ended, opened, closed in self._lanes()
        )

    @property
    def trails(self) -> bool:
        """Pieces are on the GPU, or may be: no mark will tell before the program goes on."""
        return any(opened != closed for _, _, opened, closed in self._lanes())

    def _lanes(self) -> zip[tuple[int, int, int, int]]:
        size = _MARKS.size
        parts = (self.pieces[i : i + size] for i in range(0, 4 * size, size))
        return zip(*(_MARKS.unpack(part) for part in parts), strict=True)


def parse_client_page(data: bytes) -> ClientPage:
    """A copy of the page a client writes, whatever it holds."""
    _, _, busy, _, *counts = _CLIENT_PAGE.unpack_from(data)
    passed, frames, used_ns, last_ns, free_groups, implicit, methods = counts
    paused, _, unmarked, unknown = _TURNS.unpack_from(data, _TURNS_AT)
    marks = MARKS_AT
    gated, _, piece_ns = _PIECES.unpack_from(data, _PIECES_AT)
    issued, done = data[marks : marks + _MARKS.size], data[marks + _MARKS.size :]
    return ClientPage(
        busy=bool(busy),
        passed=passed,
        frames=frames,
        used_ns=used_ns,
        last_ns=last_ns,
        free_groups=free_groups,
        implicit=implicit,
        methods=methods,
        paused=paused,
        unmarked=bool(unmarked),
        unknown=unknown,
        marked=issued != done[: _MARKS.size],
        gated=bool(gated),
        piece_ns=piece_ns,
        pieces=data[_PIECES_AT + _PIECES.size : WAITING_AT],
        waiting=bool(_WAITING.unpack_from(data, WAITING_AT)[0]),
    )


def parse_job(data: bytes) -> JobReport:
    """A copy of the record of a job, whatever it holds."""
    begun, ended, deadline, waited, held, groups, pauses, closed, _ = JOB.unpack(data)
    return JobReport(begun, ended, deadline, waited, held, groups, pauses, bool(closed))


def build_job(job: JobReport) -> bytes:
    numbers = (job.waited_ns, job.held_ns, job.groups, job.pauses, int(job.closed), 0)
    return JOB.pack(job.begun_ns, job.ended_ns, job.deadline_ns, *numbers)
