"""Perfetto's own format, of any tool: track events, GPU render stages, and what CPUs ran.

Of the schema (protos/perfetto/trace) as much as makes slices. Times of packets are by the clock
that the packet, or its sequence's defaults, name; clock snapshots bring clocks together. A clock of
a sequence (64 to 127) may be incremental: then each time is what passed since the packet before.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from headway.view.traces.others.tracks import MONOTONIC, Recording, Slice, Track, flattened
from headway.view.traces.protobuf import BYTES, Value, WireError, fields, read_varint

_REALTIME, _MONOTONIC, _BOOTTIME = 1, 3, 6
_OF_SEQUENCE = range(64, 128)
_BEGIN, _END = 1, 2
_CLEARED = 1
_LARGEST_BLOCK = 64 << 20

Fields = dict[int, list[Value]]


def _message(data: Value) -> Fields:
    found: Fields = {}
    if not isinstance(data, bytes):
        raise WireError("found a number where a message should be")
    for number, _, value in fields(data):
        found.setdefault(number, []).append(value)
    return found


def _number(message: Fields, number: int, default: int = 0) -> int:
    value = message[number][-1] if number in message else default
    return value if isinstance(value, int) else default


def _text(message: Fields, number: int) -> str:
    value = message[number][-1] if number in message else b""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _numbers(message: Fields, number: int) -> list[int]:
    """A repeated number, packed or not."""
    found: list[int] = []
    for value in message.get(number, []):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = read_varint(value, at)
            found.append(one)
    return found


@dataclass(slots=True)
class _Sequence:
    """What packets of one writer refer to."""

    names: dict[int, str] = field(default_factory=dict)
    stages: dict[int, str] = field(default_factory=dict)
    clocks: dict[int, tuple[int, int, int, bool]] = field(default_factory=dict)
    """Own clocks: its time and the boot time of a snapshot, nanoseconds in its unit, and whether it
    is incremental."""
    last: dict[int, int] = field(default_factory=dict)
    clock: int = 0
    track: int = 0


@dataclass(slots=True)
class _Reader:
    sequences: dict[int, _Sequence] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=lambda: {_BOOTTIME: 0})
    """What to add to the time of a clock to get the boot time."""
    slices: dict[str, list[Slice]] = field(default_factory=dict)
    gpu: set[str] = field(default_factory=set)
    tracks: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Names and parents of described tracks."""
    marks: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Begins and ends of slices: when, on which track, which of both, and what begins."""
    switches: list[tuple[int, int, str]] = field(default_factory=list)
    """When which CPU went on to which thread; an idle CPU has none."""

    # -- clocks ------------------------------------------------------------------------------

    def _snapshot(self, sequence: _Sequence, data: Value) -> None:
        message = _message(data)
        clocks = [_message(clock) for clock in message.get(1, [])]
        times = {_number(clock, 1): _number(clock, 2) for clock in clocks}
        known = next((c for c in (_BOOTTIME, *times) if c in times and c in self.offsets), None)
        if known is None:
            return
        boot_ns = times[known] + self.offsets[known]
        for clock in clocks:
            number = _number(clock, 1)
            if number in _OF_SEQUENCE:
                unit, incremental = _number(clock, 4, 1) or 1, bool(_number(clock, 3))
                sequence.clocks[number] = (times[number], boot_ns, unit, incremental)
                sequence.last[number] = times[number]
            else:
                self.offsets.setdefault(number, boot_ns - times[number])

    def _time(self, sequence: _Sequence, packet: Fields) -> int | None:
        """The boot time of a packet; None if its clock is not known."""
        number = _number(packet, 58) or sequence.clock or _BOOTTIME
        time = _number(packet, 8)
        if number in sequence.clocks:
            base, boot_ns, unit, incremental = sequence.clocks[number]
            if incremental:
                time += sequence.last[number]
                sequence.last[number] = time
            return boot_ns + (time - base) * unit
        return None if number not in self.offsets else time + self.offsets[number]

    # -- packets -----------------------------------------------------------------------------

    def packet(self, data: Value, *, packed: bool = False) -> None:
        packet = _message(data)
        for block in packet.get(50, []):
            if isinstance(block, bytes) and not packed:
                for inner in _packets(_unpacked(block)):
                    self.packet(inner, packed=True)
        sequence = self.sequences.setdefault(_number(packet, 10), _Sequence())
        if _number(packet, 13) & _CLEARED:
            sequence.names.clear()
            sequence.stages.clear()
        for snapshot in packet.get(6, []):
            self._snapshot(sequence, snapshot)
        for defaults in packet.get(59, []):
            message = _message(defaults)
            sequence.clock = _number(message, 58)
            for event in message.get(11, []):
                sequence.track = _number(_message(event), 11)
        for interned in packet.get(12, []):
            message = _message(interned)
            for number, names in ((2, sequence.names), (24, sequence.stages)):
                for entry in map(_message, message.get(number, [])):
                    names[_number(entry, 1)] = _text(entry, 2)
        for described in packet.get(60, []):
            self._track(_message(described))
        if 1 in packet:
            self._scheduled(packet[1])
        if 8 in packet:
            ns = self._time(sequence, packet)
            if ns is not None:
                self._events(sequence, packet, ns)

    def _track(self, track: Fields) -> None:
        name = _text(track, 2) or _text(track, 10)
        for thread in map(_message, track.get(4, [])):
            name = name or _text(thread, 5) or f"thread {_number(thread, 2)}"
        for process in map(_message, track.get(3, [])):
            name = name or _text(process, 6) or f"process {_number(process, 1)}"
        self.tracks[_number(track, 1)] = name, _number(track, 5)

    def _events(self, sequence: _Sequence, packet: Fields, ns: int) -> None:
        for event in map(_message, packet.get(11, [])):
            name = _text(event, 23) or sequence.names.get(_number(event, 10), "")
            track = _number(event, 11) or sequence.track
            self.marks.append((ns, track, _number(event, 9), name))
        for stage in map(_message, packet.get(53, [])):
            queue = _number(stage, 13) or _number(stage, 3)
            track_name = f"GPU {_number(stage, 11)} queue {queue}"
            name = sequence.stages.get(_number(stage, 14), "")
            self._add(track_name, ns, ns + _number(stage, 2), name)
            self.gpu.add(track_name)

    def _scheduled(self, bundles: list[Value]) -> None:
        """What CPUs switched to: idle threads have the number 0 and are no slices."""
        for bundle in map(_message, bundles):
            cpu = _number(bundle, 1)
            for event in map(_message, bundle.get(2, [])):
                for switch in map(_message, event.get(4, [])):
                    found = _number(event, 1), _number(switch, 6), _text(switch, 5)
                    self._switch(cpu, *found)
            for compact in map(_message, bundle.get(4, [])):
                names = [
                    n.decode("utf-8", "replace") for n in compact.get(5, []) if type(n) is bytes
                ]
                ns = 0
                rows = zip(
                    _numbers(compact, 1), _numbers(compact, 3), _numbers(compact, 6), strict=False
                )
                for step_ns, thread, name in rows:
                    ns += step_ns
                    self._switch(cpu, ns, thread, names[name] if name < len(names) else "")

    def _switch(self, cpu: int, ns: int, thread: int, name: str) -> None:
        self.switches.append((ns, cpu, (name or f"thread {thread}") if thread else ""))

    def _finish(self) -> None:
        """Writers are not in order among each other, so slices are made when all is read."""
        open_: dict[int, list[tuple[int, str]]] = {}
        for ns, track, kind, name in sorted(self.marks, key=itemgetter(0)):
            if kind == _BEGIN:
                open_.setdefault(track, []).append((ns, name))
            elif kind == _END and open_.get(track):
                self._add(self._name(track), open_[track][-1][0], ns, open_[track].pop()[1])
        running: dict[int, tuple[int, str]] = {}
        for ns, cpu, name in sorted(self.switches, key=itemgetter(0)):
            since_ns, before = running.get(cpu, (ns, ""))
            if before:
                self._add(f"CPU {cpu}", since_ns, ns, before)
            running[cpu] = ns, name

    def _add(self, track: str, start_ns: int, end_ns: int, name: str) -> None:
        if start_ns < end_ns:
            self.slices.setdefault(track, []).append((start_ns, end_ns, name))

    def _name(self, track: int) -> str:
        name, parent = self.tracks.get(track, ("", 0))
        around, _ = self.tracks.get(parent, ("", 0))
        return " ".join(part for part in (around, name) if part) or f"track {track}"

    def recording(self) -> Recording:
        """By the monotonic clock: the boot time, but for the time that the machine slept."""
        self._finish()
        shift_ns = -self.offsets.get(_MONOTONIC, 0)
        tracks = [
            Track(name, name in self.gpu or _of_gpu(name), flattened(found))
            for name, found in self.slices.items()
        ]
        return Recording(MONOTONIC, [track.moved(shift_ns) for track in tracks])


def _of_gpu(name: str) -> bool:
    words = name.lower().replace(":", " ").split()
    return any(word in ("gpu", "cuda", "stream", "kernels", "memcpy") for word in words)


def _unpacked(block: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(block, _LARGEST_BLOCK)
    except zlib.error as error:
        raise WireError(f"is damaged ({error})") from None


def _packets(data: bytes) -> Iterator[bytes]:
    for number, wire, value in fields(data):
        if number != 1 or wire != BYTES:
            raise WireError("is no Perfetto trace")
        assert isinstance(value, bytes)
        yield value


def read(data: bytes) -> Recording:
    """The tracks of a trace; WireError if it is none."""
    reader = _Reader()
    for packet in _packets(data):
        reader.packet(packet)
    return reader.recording()
