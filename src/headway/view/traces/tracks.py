"""Perfetto's tracks and the events on them, as bytes.

Two rules of Perfetto's importer shape this. It sorts the events of a file by time and keeps the
order of the file between equal times, so a slice may be written when it is over, as long as its
begin is written before its end. And slices of one track must nest, so what may overlap goes to
further tracks of the same name, which the UI shows as rows of one track.

Most events differ only in their time, so all but the time is made once and kept. And a time is the
difference to the packet before it, by a clock that Perfetto calls incremental: what happens at one
instant then differs in nothing, and compresses to nearly nothing. So packets are put in order
before they are written, a stretch at a time; the few that belong before the stretch carry the time
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import pack

from headway.view.traces.protobuf import BYTES, FIXED64, VARINT, integer, key, message, text, varint
from headway.view.traces.records import PACKET

# Fields and values of Perfetto's messages (protos/perfetto/trace).
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _INTERNED, _FLAGS = 8, 10, 11, 12, 13
_CLOCK_SNAPSHOT, _CLOCK_ID, _DEFAULTS, _TRACK_DESCRIPTOR, _FIRST_PACKET = 6, 58, 59, 60, 87
_CLOCKS, _PRIMARY_CLOCK = 1, 2
_CLOCK, _CLOCK_TIME, _INCREMENTAL = 1, 2, 3
_BOOTTIME, _OUR_CLOCK = 6, 64
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_UUID, _TRACK_NAME, _PARENT, _COUNTER, _DESCRIPTION = 1, 2, 5, 8, 14
_UNIT_NAME = 6
_ANNOTATION, _TYPE, _NAME_IID, _TRACK_UUID, _NAME, _COUNTER_VALUE = 4, 9, 10, 11, 23, 44
_ANNOTATION_NAME, _BOOL, _INT = 1, 2, 4
_BEGIN, _END, _INSTANT, _COUNT = 1, 2, 3, 4
_EVENT_NAMES, _ANNOTATION_NAMES = 2, 3

_ON_SEQUENCE = integer(_SEQUENCE, 1)
_IN_STATE = _ON_SEQUENCE + integer(_FLAGS, _NEEDS_STATE)
_STATE_AND_EVENT = _IN_STATE + key(_TRACK_EVENT, BYTES)
_IN_FULL = integer(_CLOCK_ID, _BOOTTIME)
_PACKET_KEY = key(PACKET, BYTES)
_TIMESTAMP_KEY = key(_TIMESTAMP, VARINT)
_ANNOTATION_KEY = key(_ANNOTATION, BYTES)
_COUNTER_KEY = key(_COUNTER_VALUE, FIXED64)
_MASK = (1 << 64) - 1
_LATEST_NS = (1 << 63) - 1


_time = itemgetter(0)


def _event(kind: int, track: int) -> bytes:
    return integer(_TYPE, kind) + integer(_TRACK_UUID, track)


def _timeless(event: bytes) -> bytes:
    """A packet with this event, but without its time."""
    return _STATE_AND_EVENT + varint(len(event)) + event


class Annotation:
    """A named value that the UI shows when a person clicks on a slice."""

    __slots__ = ("_bool", "_int")

    def __init__(self, name: int) -> None:
        self._int = integer(_ANNOTATION_NAME, name) + key(_INT, VARINT)
        self._bool = integer(_ANNOTATION_NAME, name) + key(_BOOL, VARINT)

    def integer(self, value: int) -> bytes:
        number = varint(value & _MASK)
        return _ANNOTATION_KEY + varint(len(self._int) + len(number)) + self._int + number

    def bool(self, value: bool) -> bytes:
        return message(_ANNOTATION, self._bool, varint(value))


class Counter:
    """A track with a value that changes."""

    __slots__ = ("_rest",)

    def __init__(self, track: int) -> None:
        event = _event(_COUNT, track) + _COUNTER_KEY
        self._rest = _STATE_AND_EVENT + varint(len(event) + len(pack("<d", 0))) + event

    def at(self, value: float) -> bytes:
        return self._rest + pack("<d", value)


class Lane:
    """A track whose slices follow each other."""

    __slots__ = ("begin", "busy", "end", "free_ns", "instant", "names", "track")

    def __init__(self, track: int) -> None:
        self.track = track
        self.begin = _event(_BEGIN, track)
        self.end = _timeless(_event(_END, track))
        self.instant = _event(_INSTANT, track)
        self.names: dict[bytes, bytes] = {}
        """Slices with nothing but a name, ready to be written."""
        self.busy = False
        """Kept for slices to come."""
        self.free_ns = 0
        """Where the last slice ends."""


NOWHERE = 0
"""The track of lanes that are not shown."""


class Rows:
    """One track for a person, as many tracks as it takes."""

    __slots__ = ("_canvas", "_name", "_parent", "_shown", "first", "lanes")

    def __init__(
        self,
        canvas: Canvas,
        name: str,
        parent: int = 0,
        description: str = "",
        *,
        shown: bool = True,
    ) -> None:
        self._canvas = canvas
        self._name = name
        self._parent = parent
        self._shown = shown
        self.first = self._lane(description)
        self.lanes = [self.first]

    def _lane(self, description: str = "") -> Lane:
        if not self._shown:
            return Lane(NOWHERE)
        return Lane(self._canvas.track(self._name, self._parent, description))

    def free(self, from_ns: int) -> Lane:
        """A lane that has nothing on it from this time on."""
        for lane in self.lanes:
            if lane.free_ns <= from_ns and not lane.busy:
                return lane
        self.lanes.append(self._lane())
        return self.lanes[-1]


class Canvas:
    """Collects packets until they are taken."""

    def __init__(self, names: Sequence[str], annotations: Sequence[str]) -> None:
        """The names that events and annotations will have by number, counted from one."""
        self._out = bytearray()
        """What has no time: it comes first."""
        self._timed: list[tuple[int, bytes]] = []
        self._last_ns = 0
        """What our clock shows to who reads the file this far."""
        self._tracks = 0
        self._names = len(names)
        interned = [
            message(field, integer(1, number), text(2, name))
            for field, group in ((_EVENT_NAMES, names), (_ANNOTATION_NAMES, annotations))
            for number, name in enumerate(group, 1)
        ]
        state = integer(_FLAGS, _STATE_CLEARED) + integer(_FIRST_PACKET, True)
        state += message(_DEFAULTS, integer(_CLOCK_ID, _OUR_CLOCK))
        clocks = [
            message(_CLOCKS, integer(_CLOCK, _BOOTTIME), integer(_CLOCK_TIME, 0)),
            message(
                _CLOCKS,
                integer(_CLOCK, _OUR_CLOCK),
                integer(_CLOCK_TIME, 0),
                integer(_INCREMENTAL, True),
            ),
            integer(_PRIMARY_CLOCK, _BOOTTIME),
        ]
        self._out += message(PACKET, _ON_SEQUENCE, state, message(_INTERNED, *interned))
        self._out += message(PACKET, _ON_SEQUENCE, message(_CLOCK_SNAPSHOT, *clocks))

    def take(self) -> bytearray:
        """The packets since the last time, in their order."""
        out, self._out = self._out, bytearray()
        self._timed.sort(key=_time)
        for ns, rest in self._timed:
            if ns < self._last_ns:
                stamp = _TIMESTAMP_KEY + varint(ns) + _IN_FULL
            else:
                stamp = _TIMESTAMP_KEY + varint(ns - self._last_ns)
                self._last_ns = ns
            out += _PACKET_KEY + varint(len(stamp) + len(rest)) + stamp + rest
        self._timed.clear()
        return out

    def track(self, name: str, parent: int = 0, description: str = "", unit: str = "") -> int:
        """A new track; those with one parent, or with none, are sorted by name."""
        self._tracks += 1
        parts = [integer(_UUID, self._tracks), text(_TRACK_NAME, name)]
        if parent:
            parts.append(integer(_PARENT, parent))
        if description:
            parts.append(text(_DESCRIPTION, description))
        if unit:
            parts.append(message(_COUNTER, text(_UNIT_NAME, unit)))
        self._out += message(PACKET, _ON_SEQUENCE, message(_TRACK_DESCRIPTOR, *parts))
        return self._tracks

    def name(self, name: str) -> bytes:
        """A further name for events: from here on, a number instead of the text."""
        self._names += 1
        interned = message(_EVENT_NAMES, integer(1, self._names), text(2, name))
        self._out += message(PACKET, _IN_STATE, message(_INTERNED, interned))
        return known_name(self._names)

    def put(self, ns: int, rest: bytes) -> None:
        """A packet made of a time and of everything else."""
        if not 0 <= ns <= _LATEST_NS:  # Perfetto has no time before zero
            ns = min(max(ns, 0), _LATEST_NS)
        self._timed.append((ns, rest))

    def instant(self, ns: int, lane: Lane, what: bytes) -> None:
        """`what` is a name, perhaps with annotations."""
        if lane.track != NOWHERE:
            self.put(ns, _timeless(lane.instant + what))

    def slice(self, lane: Lane, name: bytes, start_ns: int, end_ns: int) -> None:
        """Clipped to what is free on the lane, so that slices never overlap; not if empty."""
        if start_ns < lane.free_ns:
            start_ns = lane.free_ns
        if start_ns < end_ns:
            lane.free_ns = end_ns
            if lane.track == NOWHERE:
                return
            begin = lane.names.get(name)
            if begin is None:
                begin = lane.names[name] = _timeless(lane.begin + name)
            self.put(start_ns, begin)
            self.put(end_ns, lane.end)

    def annotated(self, lane: Lane, what: bytes, start_ns: int, end_ns: int) -> None:
        """A slice with annotations, on a lane that is free from its start, also an empty one."""
        end_ns = max(start_ns, end_ns)
        self.put(start_ns, _timeless(lane.begin + what))
        self.put(end_ns, lane.end)
        lane.free_ns = end_ns


def known_name(number: int) -> bytes:
    """The name of an event, by its number."""
    return integer(_NAME_IID, number)


def written_name(name: str) -> bytes:
    """The name of an event, spelt out because it hardly occurs again."""
    return text(_NAME, name)
