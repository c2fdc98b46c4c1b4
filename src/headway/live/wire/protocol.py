"""What a program and the daemon say to each other, as Python has it; layout.py describes the bytes.

Nothing that a client writes is trusted: messages have one fixed size each, numbers are checked
where they are used, and the page a client writes is read as a hint.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields
from typing import Final, NamedTuple

from headway.engine.turns.port import JobReport
from headway.live.wire.layout import (
    CLIENT_PAGE,
    HELLO,
    JOB,
    LANES,
    MAGIC,
    MESSAGE,
    NAME,
    TOKEN,
    UUID,
    VERSION,
    WELCOME,
    Server,
    Type,
    Wanted,
)
from headway.live.wire.layout import PAGE as PAGE

SUBMIT: Final = Type.SUBMIT.value
COMPLETE: Final = Type.COMPLETE.value
RELEASE: Final = Type.RELEASE.value
WITHDRAW: Final = Type.WITHDRAW.value
ENTER: Final = Type.ENTER.value
LEAVE: Final = Type.LEAVE.value
TURNS: Final = Type.TURNS.value
GRANT: Final = Type.GRANT.value
AWAIT: Final = Server.AWAIT.value
TELL: Final = Server.TELL.value
YIELD: Final = Server.YIELD.value
ITS_END: Final = Wanted.ITS_END.value
ITS_MARK: Final = Wanted.ITS_MARK.value

HELLO_SIZE: Final = HELLO.size
MESSAGE_SIZE: Final = MESSAGE.size
CLIENT_PAGE_SIZE: Final = CLIENT_PAGE.size


class ProtocolError(ValueError):
    """A client said something that is not of the protocol."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a client."""

    name: str
    token: str
    model: str = ""
    uuid: str = ""
    pci: str = ""
    """Of the GPU that its work goes to, as far as it can say."""


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


_MESSAGE: Final = MESSAGE.select(*Message._fields)


def _text(raw: bytes) -> str:
    """Text of a fixed field, safe to print."""
    text = raw.split(b"\0", 1)[0].decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def parse_hello(data: bytes) -> Hello:
    if len(data) != HELLO.size:
        raise ProtocolError(f"a hello of {len(data)} bytes instead of {HELLO.size}")
    magic, version, name, token, *gpu = HELLO.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise ProtocolError(f"a hello of version {version:x} instead of {VERSION:x}")
    return Hello(_text(name) or "unnamed", _text(token), *map(_text, gpu))


def build_hello(name: str, token: str = "", uuid: str = "") -> bytes:
    texts = (name.encode()[: NAME - 1], token.encode()[: TOKEN - 1], b"", uuid.encode()[: UUID - 1])
    return HELLO.pack(MAGIC, VERSION, *texts, b"")


def build_welcome(channel: int) -> bytes:
    return WELCOME.pack(MAGIC, VERSION, channel & 0xFFFFFFFF, 0)


def parse_message(data: bytes) -> Message:
    if len(data) != MESSAGE.size:
        raise ProtocolError(f"a message of {len(data)} bytes instead of {MESSAGE.size}")
    return Message._make(_MESSAGE.unpack(data))


def build_message(message: Message) -> bytes:
    return _MESSAGE.pack(*message)


@dataclass(frozen=True, slots=True)
class ClientPage:
    """What a client says of itself, by the names of the layout."""

    busy: bool
    passed: int
    frames: int
    used_ns: int
    last_ns: int
    free_groups: int
    implicit: int
    methods: int
    paused: int
    unmarked: bool
    unknown: int
    gated: bool
    piece_ns: int
    waiting: bool
    """It waits for the GPU."""
    marked: bool
    """Marks are on their way that the GPU has not written yet."""
    pieces: bytes
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

    def _lanes(self) -> zip[tuple[int, ...]]:
        counts = struct.unpack(f"<{len(self.pieces) // 4}I", self.pieces)
        return zip(*(counts[i : i + LANES] for i in range(0, len(counts), LANES)), strict=True)


_REPORT: Final = CLIENT_PAGE.select(*(f.name for f in fields(ClientPage)[:-2]))
_ISSUED, _DONE = CLIENT_PAGE.slice("issued"), CLIENT_PAGE.slice("done")
_PIECES: Final = CLIENT_PAGE.slice("given", "closed")
_JOB: Final = JOB.select(*(f.name for f in fields(JobReport)))


def parse_client_page(data: bytes) -> ClientPage:
    """A copy of the page a client writes, whatever it holds."""
    *said, waiting = _REPORT.unpack_from(data)
    said += [bool(waiting), data[_ISSUED] != data[_DONE], data[_PIECES]]
    return ClientPage(*said)


def parse_job(data: bytes) -> JobReport:
    """A copy of the record of a job, whatever it holds."""
    return JobReport(*_JOB.unpack_from(data))


def build_job(job: JobReport) -> bytes:
    return _JOB.pack(*astuple(job)).ljust(JOB.size, b"\0")
