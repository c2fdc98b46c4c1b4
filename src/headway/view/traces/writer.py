"""Writes a run to a trace file while it happens.

A trace that looks whole is whole: the records go to a file beside the target that gets the target's
name only in `close`, after the last record, `Ended`. A run that was interrupted also sends that one
(with `complete=False`), so what was recorded of it is kept, and says so.
"""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from errno import EEXIST, EISDIR
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from zlib import crc32

from headway.engine.events import Ended, Event
from headway.view.traces import protobuf, records
from headway.view.traces.drawing import Drawing
from headway.view.traces.records import TraceError, reason

_FLUSH_BYTES = 256 * 1024
_PACKET_KEY = protobuf.key(records.PACKET, protobuf.BYTES)


class TraceWriter:
    """A sink for events: `Recorder(writer.write)`. Use it in a `with` statement.

    After an error the partial file is gone, and each further `write` raises `TraceError` again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._crc = 0
        self._ended = False
        self._problem = ""
        """Why nothing more can be written, if that is so."""
        try:
            self._target = Path(os.path.realpath(self.path))
            _check_replaceable(self._target)
            self._part, self._file = _open_beside(self._target)
        except (OSError, ValueError) as error:
            raise TraceError(f"{self.path}: cannot be written ({reason(error)})") from error
        self._out = bytearray(protobuf.message(records.PACKET, records.header()))
        self._drawing = Drawing(self._out)

    def write(self, event: Event) -> None:
        """Add a record; the last one is `Ended`."""
        if self._problem or self._ended:
            raise TraceError(self._problem or f"{self.path}: got {event!r} after the last record")
        try:
            data = records.encode(event)
        except (KeyError, OverflowError, TypeError) as error:
            raise self._give_up(f"cannot hold {event!r} ({error})") from error
        record = records.RECORD_KEY + protobuf.varint(len(data)) + data
        if type(event) is Ended:
            self._drawing.draw(event)
            self._end(record)
            return
        out = self._out
        out += _PACKET_KEY + protobuf.varint(len(record)) + record
        self._drawing.draw(event)
        if len(out) >= _FLUSH_BYTES:
            self._flush()

    def _end(self, record: bytes) -> None:
        """The last packet: the record and a checksum of every byte before the checksum."""
        seal_size = len(protobuf.fixed32(records.SEAL, 0))
        self._out += _PACKET_KEY + protobuf.varint(len(record) + seal_size) + record
        self._flush()
        self._out += protobuf.fixed32(records.SEAL, self._crc)
        self._flush()
        self._ended = True

    def _flush(self) -> None:
        try:
            self._file.write(self._out)
            self._crc = crc32(self._out, self._crc)
            self._out.clear()
        except OSError as error:
            raise self._give_up(f"cannot be written ({reason(error)})") from error
        except BaseException:  # an interrupt here: nobody knows what was written
            self._give_up("was given up (interrupted in the middle of a write)")
            raise

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
        self._out.clear()
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


def _check_replaceable(target: Path) -> None:
    """Renaming onto a device such as /dev/null would replace it."""
    if target.is_dir():
        raise IsADirectoryError(EISDIR, "it is a directory")
    if target.exists() and not target.is_file():
        raise OSError(EEXIST, "it is not a regular file")


def _open_beside(target: Path) -> tuple[Path, BinaryIO]:
    """A new file in the target's folder.

    What a killed process of the same number left there stays: in a folder that containers share it
    may be one that is being written.
    """
    for attempt in itertools.count():
        suffix = f".{os.getpid()}.part" if not attempt else f".{os.getpid()}-{attempt}.part"
        part = target.with_name(target.name + suffix)
        with suppress(FileExistsError):
            return part, part.open("xb")
    raise AssertionError  # count() does not end
