"""Chrome's trace viewer JSON: what PyTorch's and JAX's profilers and VizTracer write.

Complete events (`X`) and pairs (`B`, `E`) become slices, and `M` names processes and threads.
Times are microseconds by a clock that the format leaves open. PyTorch says `baseTimeNanoseconds`,
from which its times count: then they are by the time of day.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.view.traces.others.tracks import UNKNOWN, WALL, Recording, Slice, Track, flattened

GPU_KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel", "cuda_profiler_range")
"""Categories of PyTorch's events that happened on a GPU."""
LARGEST_NS = 1 << 62

Lane = tuple[str, str]
"""A process and a thread of it, or a GPU and a stream of it: the format has the same words."""


class _Event(msgspec.Struct):
    ph: str = ""
    ts: float = 0.0
    dur: float = 0.0
    name: Any = ""
    pid: Any = ""
    tid: Any = ""
    cat: Any = ""
    args: Any = None


class _File(msgspec.Struct):
    traceEvents: list[_Event] = []  # noqa: N815 - the format's word
    baseTimeNanoseconds: int | None = None  # noqa: N815


def read(data: bytes) -> Recording:
    """The tracks of a file; ValueError if it is not such a file."""
    file = _decoded(data)
    base_ns = file.baseTimeNanoseconds or 0
    slices: dict[Lane, list[Slice]] = {}
    begun: dict[Lane, list[_Event]] = {}
    names: dict[tuple[str, ...], str] = {}
    on_gpu: set[Lane] = set()
    for event in file.traceEvents:
        lane = (str(event.pid), str(event.tid))
        if event.ph == "X":
            slices.setdefault(lane, []).append(_slice(event, base_ns, event.ts + event.dur))
            if str(event.cat).lower() in GPU_KINDS:
                on_gpu.add(lane)
        elif event.ph == "B":
            begun.setdefault(lane, []).append(event)
        elif event.ph == "E" and begun.get(lane):
            first = begun[lane].pop()
            slices.setdefault(lane, []).append(_slice(first, base_ns, event.ts))
        elif event.ph == "M" and isinstance(event.args, dict):
            key = lane[:1] if event.name == "process_name" else lane
            if event.name in ("process_name", "thread_name"):
                names[key] = str(event.args.get("name", ""))
    tracks = [
        Track(_name(lane, names, lane in on_gpu), lane in on_gpu, flattened(found))
        for lane, found in slices.items()
    ]
    clock = UNKNOWN if file.baseTimeNanoseconds is None else WALL
    return Recording(clock, [track for track in tracks if track.slices])


def _decoded(data: bytes) -> _File:
    try:
        if data.startswith(b"{"):
            return msgspec.json.decode(data, type=_File)
        return _File(msgspec.json.decode(_closed(data), type=list[_Event]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not such JSON ({error})") from None


def _closed(data: bytes) -> bytes:
    """The list with its end, which the format lets a program that was killed leave out."""
    data = data.rstrip()
    return data if data.endswith(b"]") else data.rstrip(b",") + b"]"


def _slice(event: _Event, base_ns: int, end_us: float) -> Slice:
    start_ns, end_ns = (round(us * 1000) + base_ns for us in (event.ts, end_us))
    if not 0 <= start_ns <= end_ns < LARGEST_NS:
        raise ValueError(
            f"found the event {event.name!r} at {event.ts:g} us, expected another time"
        )
    return start_ns, end_ns, str(event.name)


def _name(lane: Lane, names: dict[tuple[str, ...], str], gpu: bool) -> str:
    """A stream is named with its GPU, a thread alone, as far as they are named at all."""
    process, thread = names.get(lane[:1], ""), names.get(lane, "")
    if gpu:
        stream = thread or f"stream {lane[1]}"
        return f"GPU {lane[0]} {stream}"
    return thread or " ".join(filter(None, (process, lane[1])))
