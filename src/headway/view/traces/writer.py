"""Writes a run to a trace file while it happens.

Records are collected into blocks, drawn, compressed and written. A trace that looks whole is whole:
they go to a file beside the target that gets the target's
name only in `close`, after the last record, `Ended`. A run that was interrupted also sends that one
(with `complete=False`), so what was recorded of it is kept, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from errno import EDQUOT, EFBIG, ENOSPC
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self
from zlib import compress, crc32

from headway.engine.events import Ended, Event, TakenUp
from headway.view import targets
from headway.view.traces import clocks, protobuf, records
from headway.view.traces.drawing import Drawing
from headway.view.traces.records import TraceError, reason

_BLOCK = 1024
"""Events in a block: little to keep in memory, enough to compress well."""
_LEVEL = 6
_SPARE = 256
"""Bytes that the end may take: so much of the file is kept for it."""
_FULL = (ENOSPC, EDQUOT, EFBIG)


class TraceWriter:
    """A sink for events: `Recorder(writer.write)`. Use it in a `with` statement.

    After an error the partial file is gone, and each further `write` raises `TraceError` again.
    With `keep`, for what cannot be repeated, a disk that fills up is no error: what was written
    stays, what follows is dropped and counted, and the trace says so at its end.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: bool = False,
        shows: Callable[[str], bool] | None = None,
    ) -> None:
        """`shows` says which tasks have a track; the records are of all of them."""
        self.path = Path(path)
        self.dropped = 0
        """Events that found no room."""
        self.lost = 0
        """Events that never came here, as the stream says."""
        self.events = 0
        self._keep = keep
        self._crc = 0
        self._size = 0
        """How much of the file counts."""
        self._ended = False
        self._problem = ""
        """Why nothing more can be written, if that is so."""
        self._records = records.RecordWriter()
        self._encoded = bytearray()
        """The records of this block."""
        self._waiting = 0
        """How many they are."""
        self._drawing = Drawing(shows)
        try:
            self._target = targets.resolve(self.path)
            self._part, self._file = targets.open_beside(self._target)
        except (OSError, ValueError) as error:
            raise TraceError(f"{self.path}: cannot be written ({reason(error)})") from error
        header = protobuf.message(records.RECORD, records.header())
        self._put(protobuf.message(records.PACKET, header))
        if keep:  # a live run
            self._put(clocks.packet())

    def write(self, event: Event) -> None:
        """Add a record; the last one is `Ended`."""
        if self._problem or self._ended:
            raise TraceError(self._problem or f"{self.path}: got {event!r} after the last record")
        if type(event) is Ended:
            self._end(event)
            return
        self.events += 1
        if type(event) is TakenUp:
            self.lost += event.dropped
        if self.dropped:
            self.dropped += 1
            return
        self._encoded += self._encode(event)
        self._drawing.draw(event)
        self._waiting += 1
        if self._waiting >= _BLOCK:
            self._end_block()

    def _encode(self, event: Event) -> bytes:
        try:
            return self._records.encode(event)
        except (KeyError, OverflowError, TypeError) as error:
            raise self._give_up(f"cannot hold {event!r} ({error})") from error

    def _end_block(self) -> None:
        """Compress what was collected, and write it."""
        inner = bytearray()
        if self._encoded:
            held = protobuf.message(records.RECORD, self._encoded)
            inner += protobuf.message(records.PACKET, held)
        inner += self._drawing.take()
        block = protobuf.message(records.COMPRESSED, compress(inner, _LEVEL))
        if self._put(protobuf.message(records.PACKET, block)):
            self._records.stored()
        else:
            self.dropped += self._waiting
        self._encoded.clear()
        self._waiting = 0

    def _end(self, event: Ended) -> None:
        """The last packet: the record and a checksum of every byte before the checksum."""
        if not self.dropped:
            self._drawing.draw(event)
            self._end_block()
        last = b""
        if self.dropped:
            self._records.back_to_stored()
            last = self._encode(TakenUp(event.ns, self.dropped))
        held = protobuf.message(records.RECORD, last + self._encode(event))
        seal_size = len(protobuf.fixed32(records.SEAL, 0))
        packet = records.PACKET_KEY + protobuf.varint(len(held) + seal_size) + held
        seal = protobuf.fixed32(records.SEAL, crc32(packet, self._crc))
        self._put(packet + seal, last=True)
        self._ended = True

    def _put(self, data: bytes, *, last: bool = False) -> bool:
        """Write, or say that the disk is full, if that is no error. The room for the end is taken
        with every block, and given up by the last packet only."""
        spare = bytes(_SPARE) if self._keep and not last else b""
        try:
            self._file.seek(self._size)
            _write_all(self._file, data + spare)
            if last:
                self._file.truncate()
        except OSError as error:
            if self._keep and not last and self._size and error.errno in _FULL:
                self._file.truncate(self._size + _SPARE)
                return False
            raise self._give_up(f"cannot be written ({reason(error)})") from error
        except BaseException:  # an interrupt here: nobody knows what was written
            self._give_up("was given up (interrupted in the middle of a write)")
            raise
        self._crc = crc32(data, self._crc)
        self._size += len(data)
        return True

    def close(self) -> None:
        """Give the file its name if the last record arrived; else remove it and say so."""
        if self._file.closed:
            return
        if not self._ended:
            raise self._give_up("was not written (the run stopped without its last record)")
        try:
            self._file.close()
            self._part.replace(self._target)
        except OSError as error:
            raise self._give_up(f"cannot be written ({reason(error)})") from error

    def discard(self) -> None:
        """Remove what was written so far."""
        if not self._file.closed:
            self._give_up("was given up")

    def _give_up(self, why: str) -> TraceError:
        self._problem = f"{self.path}: {why}"
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()
        return TraceError(self._problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Keep the trace if it is whole, also when an interrupt goes on its way after that."""
        if kind is None or self._ended:
            self.close()
        else:
            self.discard()


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
