"""One Perfetto file of the traces of many daemons, with their clocks aligned.

Each daemon's packets get a sequence and tracks of their own, below a track with the names of its
node and GPU, and times by one clock. Records are left out: they are of one daemon each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import compress, decompress

from headway.fleet.asking import GpuTrace
from headway.view import targets
from headway.view.traces import protobuf
from headway.view.traces.protobuf import BYTES, VARINT, Value, integer, message, text
from headway.view.traces.records import COMPRESSED, PACKET, RECORD, SEAL

# Fields and values of Perfetto's messages (protos/perfetto/trace).
CLOCKS, TIMESTAMP, SEQUENCE, EVENT, CLOCK_ID, DEFAULTS, DESCRIPTOR = 6, 8, 10, 11, 58, 59, 60
UUID, NAME, PARENT, TRACK = 1, 2, 5, 11
BOOTTIME = 6
ROOT = 0xFFFF_FFFF
"""The number of a daemon's own track among its tracks."""
BLOCK = 1 << 20
Field = tuple[int, int, Value]


def merge(path: str, traces: Sequence[GpuTrace]) -> int:
    """Write the file; its size."""
    target = targets.resolve(Path(path))
    part, file = targets.open_beside(target)
    with file:
        for number, trace in enumerate(traces, 1):
            block = bytearray()
            for packet in _packets_of(number, trace):
                block += message(PACKET, packet)
                if len(block) >= BLOCK:
                    _put(file, block)
            _put(file, block)
        size = file.tell()
    part.replace(target)
    return size


def _put(file: object, block: bytearray) -> None:
    if block:
        packed = message(PACKET, message(COMPRESSED, compress(bytes(block))))
        file.write(packed)  # type: ignore[attr-defined]
        block.clear()


def _packets_of(number: int, trace: GpuTrace) -> Iterator[bytes]:
    """The packets of one daemon as they stand in the file of all."""
    named = [integer(UUID, _track(number, ROOT)), text(NAME, f"{trace.node}, GPU {trace.gpu}")]
    yield integer(SEQUENCE, number) + message(DESCRIPTOR, *named)
    now_ns = 0
    for packet in _opened(trace.data):
        found = list(protobuf.fields(packet))
        keys = {key for key, _, _ in found}
        if keys & {RECORD, SEAL, CLOCKS}:
            continue
        out = bytearray()
        stamp = next((value for key, _, value in found if key == TIMESTAMP), None)
        if isinstance(stamp, int):
            if CLOCK_ID in keys:  # by itself; the others are differences
                at_ns = stamp
            else:
                at_ns = now_ns = now_ns + stamp
            out += integer(TIMESTAMP, at_ns + trace.difference_ns) + integer(CLOCK_ID, BOOTTIME)
        for key, wire, value in found:
            if key == SEQUENCE:
                out += integer(SEQUENCE, number)
            elif key in (EVENT, DESCRIPTOR) and isinstance(value, bytes):
                out += message(key, _with_tracks(number, key, value))
            elif key not in (TIMESTAMP, CLOCK_ID, DEFAULTS):
                out += _again(key, wire, value)
        yield bytes(out)


def _with_tracks(number: int, kind: int, data: bytes) -> bytes:
    """An event or a track, with the numbers that its tracks have in the file of all."""
    out, places = bytearray(), (TRACK,) if kind == EVENT else (UUID, PARENT)
    found = list(protobuf.fields(data))
    for key, wire, value in found:
        if key in places and isinstance(value, int):
            out += integer(key, _track(number, value))
        else:
            out += _again(key, wire, value)
    if kind == DESCRIPTOR and all(key != PARENT for key, _, _ in found):
        out += integer(PARENT, _track(number, ROOT))
    return bytes(out)


def _track(number: int, track: int) -> int:
    return number << 32 | track


def _again(key: int, wire: int, value: Value) -> bytes:
    """A field as it was."""
    if isinstance(value, bytes):
        return message(key, value)
    if wire == VARINT:
        return integer(key, value)
    size = 4 if wire == protobuf.FIXED32 else 8
    return protobuf.key(key, wire) + value.to_bytes(size, "little")


def _opened(data: bytes) -> Iterator[bytes]:
    """All packets of a trace, those in compressed blocks too."""
    for key, wire, packet in protobuf.fields(data):
        if key != PACKET or wire != BYTES or not isinstance(packet, bytes):
            continue
        inner = next((v for k, _, v in protobuf.fields(packet) if k == COMPRESSED), None)
        if isinstance(inner, bytes):
            yield from _opened(decompress(inner))
        else:
            yield packet
