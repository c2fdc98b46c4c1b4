"""Reads the event records back from a trace.

The file is read in pieces, so a trace may be larger than memory. What is wrong with a file is often
known only at its end, after most of its events were handed out: who reads must be ready for a
`TraceError` at any point, and must not show a result before the iteration is over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32, decompressobj
from zlib import error as zlib_error

from headway.engine.events import Ended, Event
from headway.trace.records import decoder
from headway.view.traces import protobuf, records
from headway.view.traces.records import CutOffTrace, TraceError, reason

_PIECE = 256 * 1024
_LARGEST_PACKET = 16 * 1024 * 1024
"""Ours are far below a kilobyte. Larger ones are damage, and must not become a huge allocation."""
_PACKET_KEY = records.PACKET_KEY[0]
_EXPECTED = "expected a trace written by Headway"


def read_events(path: str | os.PathLike[str]) -> Iterator[Event]:
    """The events of a trace, in order; the last is `Ended`. Raises `TraceError`, also late."""
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - what the `with` body raises is not ours
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read ({reason(error)})") from error
    with file:
        yield from _Reading(str(path), file).events()


class _Reading:
    """One pass through a file; knows where it is, for the messages."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name = name
        self._file = file
        self._buffer = bytearray()
        self._offset = 0
        """Where in the file the buffer begins."""
        self._crc = 0
        """Of everything before the buffer."""
        self._records: records.RecordReader | None = None
        self._ended = False

    def events(self) -> Iterator[Event]:
        buffer = self._buffer
        while self._read_more():
            at = 0
            while True:
                start = at
                try:
                    end, at = self._packet(start)
                except protobuf.CutOffError:
                    break
                if end > len(buffer):
                    break
                if self._ended:
                    raise self._damaged(start, "data after the last record")
                if buffer.startswith(records.RECORD_KEY, at):
                    yield from self._record(start, at, end)
                elif self._records is not None and buffer.startswith(records.COMPRESSED_KEY, at):
                    yield from self._block(start, at, end)
                elif self._records is None:
                    raise self._damaged(start, "its first packet has no header")
                at = end
            self._crc = crc32(memoryview(buffer)[:start], self._crc)
            del buffer[:start]
            self._offset += start
        self._check_end()

    def _read_more(self) -> bool:
        try:
            piece = self._file.read(_PIECE)
        except OSError as error:
            raise self._error(f"cannot be read ({reason(error)})") from error
        self._buffer += piece
        return bool(piece)

    def _packet(self, at: int) -> tuple[int, int]:
        """Where the packet at `at` ends, and where what is in it begins."""
        buffer = self._buffer
        if at >= len(buffer):
            raise protobuf.CutOffError
        if buffer[at] != _PACKET_KEY:
            if self._records is None:
                found = bytes(buffer[at : at + 8]).hex(" ")
                raise self._error(f"is no Perfetto trace (begins with {found}); {_EXPECTED}")
            raise self._damaged(at, f"byte {buffer[at]:#04x} where a packet should begin")
        try:
            size, at = protobuf.read_varint(buffer, at + 1)
        except protobuf.CutOffError:
            raise
        except protobuf.WireError as error:
            raise self._damaged(at, str(error)) from None
        if size > _LARGEST_PACKET:
            raise self._damaged(at, f"a packet of {size} bytes, expected at most {_LARGEST_PACKET}")
        return at + size, at

    def _record(self, start: int, at: int, end: int) -> list[Event]:
        """The events in the packet from `start` to `end`; none if it is the header."""
        try:
            data, behind = self._field(records.RECORD_KEY, at, end)
            if self._records is None:
                self._records = records.RecordReader(decoder(data))
                return []
            events = self._records.decode(data)
        except protobuf.WireError as error:
            raise self._damaged(start, str(error)) from None
        except records.RecordError as error:
            if self._records is None:
                raise self._error(f"cannot be used: it has {error}; {_EXPECTED}") from None
            raise self._damaged(start, str(error)) from None
        if any(type(event) is Ended for event in events):
            self._check_seal(start, behind, end)
            self._ended = True
        elif behind != end:
            raise self._damaged(start, "a record with something after it")
        return events

    def _field(self, key: bytes, at: int, end: int) -> tuple[bytes, int]:
        """What is in the field at `at`, which begins with this key, and where it ends."""
        size, at = protobuf.read_varint(self._buffer, at + len(key))
        if at + size > end:
            raise protobuf.CutOffError("a field that is longer than its packet")
        return bytes(self._buffer[at : at + size]), at + size

    def _block(self, start: int, at: int, end: int) -> list[Event]:
        """The events of a block: in its first packet, if there are any."""
        assert self._records is not None
        try:
            data, _ = self._field(records.COMPRESSED_KEY, at, end)
            inner = decompressobj().decompress(data, _LARGEST_PACKET)
            for _, _, packet in protobuf.fields(inner):
                if isinstance(packet, bytes) and packet.startswith(records.RECORD_KEY):
                    size, at = protobuf.read_varint(packet, len(records.RECORD_KEY))
                    if at + size != len(packet):
                        raise protobuf.WireError("a packet with something after its records")
                    return self._records.decode(packet[at:])
                break
        except (protobuf.WireError, records.RecordError, zlib_error) as error:
            raise self._damaged(start, str(error)) from None
        return []

    def _check_seal(self, start: int, behind: int, end: int) -> None:
        """The last packet ends with a checksum of every byte before the checksum."""
        crc = crc32(memoryview(self._buffer)[:behind], self._crc)
        if self._buffer[behind:end] != protobuf.fixed32(records.SEAL, crc):
            raise self._damaged(start, "the checksum at the end does not fit what is before it")

    def _check_end(self) -> None:
        """The file is read; say what is missing, if something is."""
        size = self._offset + len(self._buffer)
        if not size:
            raise self._error(f"is empty; {_EXPECTED}")
        if self._ended and not self._buffer:
            return
        if self._ended:
            raise self._damaged(0, "data after the last record")
        if self._records is None:
            raise self._error(f"is no trace, or one cut off after {size} bytes; {_EXPECTED}")
        problem = f"is cut off after {size} bytes; expected a last record 'ended'"
        raise CutOffTrace(f"{self._name}: {problem}")

    def _damaged(self, at: int, what: str) -> TraceError:
        if self._records is None:
            return self._error(f"is no Headway trace ({what}); {_EXPECTED}")
        return self._error(f"is damaged at byte {self._offset + at}: {what}")

    def _error(self, what: str) -> TraceError:
        return TraceError(f"{self._name}: {what}")
