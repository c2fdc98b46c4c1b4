"""Where the event records themselves are kept in a trace, so that they can be read back exactly.

A drawing for people loses things: it clips, rounds and leaves out. So the records are stored as
well, in a field that Perfetto's schema does not have and that Perfetto therefore skips. The first
packet holds their header; from then on packets come in blocks, compressed as Perfetto knows it, and
the first packet of a block holds its records. Times and indices in a file are differences to what a
reader expects anyway (`_Expected`): most of them are zero, and zeros compress to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.engine.events import (
    EVENTS,
    Charged,
    Completed,
    Dispatched,
    Event,
    Submitted,
    Withdrawn,
)
from headway.trace.records import NUMBERS, TABLE, Decoder, RecordError, header, pack, values_of
from headway.view.errors import UserError
from headway.view.traces import protobuf

__all__ = ["RecordError", "header"]

PACKET = 1
"""The field of a Perfetto trace that holds a packet; there is no other."""
COMPRESSED = 50
"""The field of a packet that holds further packets, compressed."""
RECORD = 0x4857
"""The field of a packet that holds records. "HW"; outside what Perfetto defines or reserves, and
below 2**16, above which old versions of its decoder warn."""
SEAL = RECORD + 1
"""The field, after the last record, that holds the CRC-32 of everything before it."""
PACKET_KEY = protobuf.key(PACKET, protobuf.BYTES)
COMPRESSED_KEY = protobuf.key(COMPRESSED, protobuf.BYTES)
RECORD_KEY = protobuf.key(RECORD, protobuf.BYTES)
"""A packet with records begins with this; no other packet does."""

_WITHIN = {
    "submitted_ns",
    "started_ns",
    "deadline_ns",
    "released_ns",
    "anchor_ns",
    "until_ns",
    "due_ns",
}
_PLACES: dict[type[Event], dict[str, int]] = {
    EVENTS[kind]: {name: place for place, name in enumerate(names) if name in _WITHIN}
    for kind, names in TABLE
}
"""Where in a record there are times beside its own."""
_OF_GROUPS = (Submitted, Dispatched, Charged, Completed, Withdrawn)
_TASK, _INDEX = 1, 2
_MOST_OPEN = 100_000
"""Groups whose times are kept until they complete; a damaged file must not take all memory."""


class TraceError(UserError, ValueError):
    """A trace cannot be written or read; one line that says which, what was found and why."""


class CutOffTrace(TraceError):
    """A trace ends before its last record; what came before that is whole."""


def reason(error: Exception) -> str:
    """Why the system refused, in a few words."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


class _Expected:
    """What the next record will probably say, by those before it, for writer and reader alike: a
    task's groups are counted; a group completes that was submitted and dispatched; its other times
    are not far from its own."""

    def __init__(self) -> None:
        self.last_ns = 0
        self._indices: dict[str, int] = {}
        self._times: dict[tuple[str, int], tuple[int, int]] = {}
        """Of groups that are not done: submission, and dispatch if that has come."""

    def shorten(self, kind: type[Event], values: tuple[Any, ...]) -> list[Any]:
        """Differences in the place of the values."""
        stored = list(values)
        ns = values[0]
        stored[0] = ns - self.last_ns
        if kind in _OF_GROUPS:
            stored[_INDEX] -= self._next_index(kind, values[_TASK])
        for name, place in _PLACES[kind].items():
            if values[place] is not None:
                stored[place] -= self._time(kind, name, values)
        self._learn(kind, values)
        return stored

    def restore(self, kind: type[Event], stored: tuple[Any, ...]) -> list[Any]:
        """The values in the place of the differences."""
        values = list(stored)
        values[0] += self.last_ns
        if kind in _OF_GROUPS:
            values[_INDEX] += self._next_index(kind, values[_TASK])
        for name, place in _PLACES[kind].items():
            if values[place] is not None:
                values[place] += self._time(kind, name, values)
        self._learn(kind, values)
        return values

    def _next_index(self, kind: type[Event], task: str) -> int:
        return self._indices.get(task, -1) + (kind is Submitted)

    def _time(self, kind: type[Event], name: str, values: Sequence[Any]) -> int:
        if kind is Completed and name != "deadline_ns":
            times = self._times.get((values[_TASK], values[_INDEX]))
            if times is not None:
                return times[name == "started_ns"]
        ns: int = values[0]
        return ns

    def _learn(self, kind: type[Event], values: Sequence[Any]) -> None:
        ns = self.last_ns = values[0]
        if kind not in _OF_GROUPS:
            return
        group = values[_TASK], values[_INDEX]
        if kind is Submitted:
            self._indices[values[_TASK]] = values[_INDEX]
            if len(self._times) >= _MOST_OPEN:
                self._times.clear()
            self._times[group] = ns, ns
        elif kind is Dispatched:
            self._times[group] = self._times.get(group, (ns, ns))[0], ns
        elif kind is not Charged:
            self._times.pop(group, None)


class RecordWriter:
    """Records one after the other, each with its length before it."""

    def __init__(self) -> None:
        self._expected = _Expected()
        self._stored_ns = 0

    def stored(self) -> None:
        """What was encoded so far will be read."""
        self._stored_ns = self._expected.last_ns

    def back_to_stored(self) -> None:
        """What was encoded since will not; only the end may follow."""
        self._expected.last_ns = self._stored_ns

    def encode(self, event: Event) -> bytes:
        kind = type(event)
        number = NUMBERS[kind]
        stored = self._expected.shorten(kind, values_of(event))
        data = pack(number, stored)
        return protobuf.varint(len(data)) + data


class RecordReader:
    """The other way round."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._expected = _Expected()

    def decode(self, data: bytes) -> list[Event]:
        """All the records in a field."""
        events: list[Event] = []
        at = 0
        while at < len(data):
            size, at = protobuf.read_varint(data, at)
            if at + size > len(data):
                raise protobuf.CutOffError("a record that is longer than its packet")
            kind, stored = self._decoder.values(data[at : at + size])
            events.append(kind(*self._expected.restore(kind, stored)))
            at += size
        return events
