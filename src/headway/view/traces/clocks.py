"""What the time of day was by the clock of a live trace: its second packet, a clock snapshot.

Events are by CLOCK_MONOTONIC, and drawn as what Perfetto calls the boot time, its main clock.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from headway.view.traces import protobuf, records

_SNAPSHOT, _CLOCKS, _CLOCK, _CLOCK_TIME = 6, 1, 1, 2
_REALTIME, _BOOTTIME = 1, 6
_FIRST_BYTES = 64 * 1024


def packet() -> bytes:
    """The snapshot of now."""
    times = {_BOOTTIME: time.monotonic_ns(), _REALTIME: time.time_ns()}
    clocks = [
        protobuf.message(
            _CLOCKS, protobuf.integer(_CLOCK, clock), protobuf.integer(_CLOCK_TIME, ns)
        )
        for clock, ns in times.items()
    ]
    return protobuf.message(records.PACKET, protobuf.message(_SNAPSHOT, *clocks))


def wall_ns(path: str | os.PathLike[str]) -> int | None:
    """How far the clock of a trace is behind the time of day; None if the trace does not say."""
    with Path(path).open("rb") as file:
        begin = file.read(_FIRST_BYTES)
    try:
        for place, (_, _, found) in enumerate(protobuf.fields(begin)):
            if place == 1:
                return _difference(found)
    except protobuf.WireError:
        pass
    return None


def _difference(found: protobuf.Value) -> int | None:
    times: dict[int, int] = {}
    for number, _, snapshot in protobuf.fields(found) if isinstance(found, bytes) else ():
        if number != _SNAPSHOT or not isinstance(snapshot, bytes):
            continue
        for _, _, clock in protobuf.fields(snapshot):
            if isinstance(clock, bytes):
                said = {key: value for key, _, value in protobuf.fields(clock)}
                key, value = said.get(_CLOCK), said.get(_CLOCK_TIME)
                if isinstance(key, int) and isinstance(value, int):
                    times[key] = value
    if _REALTIME not in times or _BOOTTIME not in times:
        return None
    return times[_REALTIME] - times[_BOOTTIME]
