"""Tracks that other tools recorded: CUDA streams, CPUs and threads, to stand beside a run of ours.

Two formats are read, also compressed by gzip: Perfetto's own (Perfetto, tracebox, SDKs) and the
JSON of Chrome's trace viewer (PyTorch's and JAX's profilers, VizTracer). Such a file is by another
clock, so its tracks are moved to ours before they are shown: `aligned`.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from headway.view.traces.others import chrome, perfetto
from headway.view.traces.others.tracks import MONOTONIC, UNKNOWN, WALL, Recording, Track
from headway.view.traces.protobuf import WireError
from headway.view.traces.records import TraceError, reason

__all__ = ["Recording", "Track", "aligned", "read"]

LARGEST = 1 << 30
"""Bytes of such a file, uncompressed: it is held in memory, several times over."""
GZIP = b"\x1f\x8b"


def read(path: str) -> Recording:
    """The tracks of a file; `TraceError` if it has none, or cannot be read."""
    data = _bytes_of(path)
    try:
        found = _either(data)
    except (WireError, ValueError) as error:
        expected = "expected a trace of Perfetto's, or JSON as Chrome's trace viewer has it"
        raise TraceError(f"{path}: {error}; {expected}") from None
    if not found.tracks:
        raise TraceError(f"{path}: found no slices in it, expected CUDA, CPU or thread tracks")
    return found


def _either(data: bytes) -> Recording:
    """A trace of Perfetto's may begin as JSON does after an empty line, but JSON is no protobuf."""
    text = data[:4096].lstrip()[:1] in (b"{", b"[")
    if text and data[:1] in (b"{", b"["):
        return chrome.read(data)
    try:
        return perfetto.read(data)
    except WireError:
        if text:
            return chrome.read(data.lstrip())
        raise


def _bytes_of(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
        with gzip.open(path) if packed else Path(path).open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read ({reason(error)})") from None
    if len(data) > LARGEST:
        raise TraceError(f"{path}: found more than {LARGEST >> 20} MiB, expected less")
    return data


def aligned(
    found: Recording, path: str, begin_ns: int, end_ns: int, wall_ns: int | None
) -> list[Track]:
    """The tracks by the clock of a run that went on from `begin_ns` to `end_ns`; `wall_ns` is how
    far that clock is behind the time of day. Of a file that does not say by which clock it is, the
    first clock by which it overlaps the run counts."""
    shifts = {MONOTONIC: 0, WALL: None if wall_ns is None else -wall_ns}
    first_ns, last_ns = found.bounds()
    for clock, shift_ns in shifts.items():
        if found.clock not in (clock, UNKNOWN) or shift_ns is None:
            continue
        if first_ns + shift_ns < end_ns and last_ns + shift_ns > begin_ns:
            return [track.moved(shift_ns) for track in found.tracks]
    if found.clock == WALL and wall_ns is None:
        raise TraceError(
            f"{path}: is by the time of day, which the run's trace does not know; "
            "expected a trace that headway trace recorded"
        )
    raise TraceError(
        f"{path}: none of it was recorded during the run, by any clock that both know; "
        "expected a recording of the same time"
    )
