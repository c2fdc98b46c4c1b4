"""Tracks of other tools: read as those tools wrote them, moved to our clock, refused if not so.

Files are made by Perfetto's own messages and by hand from the formats' descriptions.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

from headway.engine.events import Began, Ended
from headway.view.report.others import MAX_SLICES, MAX_TRACKS, data_of_others
from headway.view.traces import TraceWriter, clocks, others
from headway.view.traces.others import Track
from headway.view.traces.others.tracks import Recording, flattened
from headway.view.traces.records import TraceError

MS = 1_000_000


def written(folder: Path, data: bytes) -> str:
    file = folder / "other"
    file.write_bytes(data)
    return str(file)


def chrome(folder: Path, *events: dict[str, Any], **more: Any) -> str:
    return written(folder, json.dumps({"traceEvents": events, **more}).encode())


def slices(found: Recording) -> dict[str, list[tuple[int, int, str]]]:
    return {track.name: track.slices for track in found.tracks}


def test_pytorch_has_streams_and_threads(tmp_path: Path) -> None:
    """As its profiler writes them: kernels under the number of the GPU, named by metadata."""
    base_ns = 1_700_000_000_000_000_000
    file = chrome(
        tmp_path,
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7"}},
        {"ph": "M", "name": "process_name", "pid": 99, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 2.5, "dur": 1.25},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 99, "tid": 99, "ts": 1, "dur": 4},
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "launch",
            "pid": 99,
            "tid": 99,
            "ts": 2,
            "dur": 1,
        },
        {"ph": "i", "name": "mark", "pid": 99, "tid": 99, "ts": 2},
        baseTimeNanoseconds=base_ns,
    )
    found = others.read(file)
    assert found.clock == "wall"
    assert slices(found) == {
        "GPU 0 stream 7": [(base_ns + 2500, base_ns + 3750, "gemm")],
        "python 99": [
            (base_ns + 1000, base_ns + 2000, "aten::mm"),
            (base_ns + 2000, base_ns + 3000, "launch"),
            (base_ns + 3000, base_ns + 5000, "aten::mm"),
        ],
    }
    assert [track.gpu for track in found.tracks] == [True, False]


def test_begins_and_ends_are_pairs_and_the_list_may_stop(tmp_path: Path) -> None:
    events = [
        {"ph": "B", "name": "outer", "pid": 1, "tid": 2, "ts": 1},
        {"ph": "B", "name": "inner", "pid": 1, "tid": 2, "ts": 2},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 3},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 4},
        {"ph": "E", "pid": 1, "tid": 2, "ts": 5},
    ]
    cut_off = json.dumps(events)[:-1].encode() + b",\n"
    found = others.read(written(tmp_path, gzip.compress(cut_off)))
    expected = [(1000, 2000, "outer"), (2000, 3000, "inner"), (3000, 4000, "outer")]
    assert slices(found) == {"2": expected}


def test_perfetto_has_threads_cpus_and_gpus_by_any_clock(tmp_path: Path) -> None:
    """Boot time is 5 ms ahead of the monotonic clock; a writer has its own, in microseconds."""
    trace = pb.Trace()
    snapshot = trace.packet.add().clock_snapshot
    for clock, ns in ((6, 105 * MS), (3, 100 * MS)):
        snapshot.clocks.add(clock_id=clock, timestamp=ns)
    own = trace.packet.add(trusted_packet_sequence_id=7)
    own.clock_snapshot.clocks.add(clock_id=6, timestamp=105 * MS)
    own.clock_snapshot.clocks.add(
        clock_id=64, timestamp=0, is_incremental=True, unit_multiplier_ns=1000
    )
    first = trace.packet.add(trusted_packet_sequence_id=7, sequence_flags=1)
    first.trace_packet_defaults.timestamp_clock_id = 64
    first.track_descriptor.uuid = 70
    first.track_descriptor.thread.pid = first.track_descriptor.thread.tid = 4
    first.track_descriptor.thread.thread_name = "worker"
    first.interned_data.event_names.add(iid=1, name="step")
    for kind, passed_us in ((1, 1000), (1, 500), (2, 250), (2, 250)):
        event = trace.packet.add(trusted_packet_sequence_id=7, timestamp=passed_us)
        event.track_event.track_uuid = 70
        event.track_event.type = kind
        if kind == 1 and passed_us == 1000:
            event.track_event.name_iid = 1
        elif kind == 1:
            event.track_event.name = "inner"
    bundle = trace.packet.add(trusted_packet_sequence_id=1).ftrace_events
    bundle.cpu = 3
    for ns, thread, name in ((106, 4, "worker"), (107, 0, "swapper"), (108, 5, "other")):
        switch = bundle.event.add(timestamp=ns * MS).sched_switch
        switch.next_pid, switch.next_comm = thread, name
    compact = pb.FtraceEventBundle(cpu=4)
    compact.compact_sched.intern_table.extend(["a", "b"])
    compact.compact_sched.switch_timestamp.extend([110 * MS, 1 * MS, 1 * MS])
    compact.compact_sched.switch_next_pid.extend([9, 8, 0])
    compact.compact_sched.switch_next_comm_index.extend([0, 1, 0])
    trace.packet.add(trusted_packet_sequence_id=1).ftrace_events.CopyFrom(compact)
    stage = trace.packet.add(trusted_packet_sequence_id=8, timestamp=109 * MS, sequence_flags=1)
    stage.interned_data.gpu_specifications.add(iid=5, name="CUDA kernel")
    stage.gpu_render_stage_event.duration = 2 * MS
    stage.gpu_render_stage_event.stage_iid, stage.gpu_render_stage_event.gpu_id = 5, 1

    found = others.read(written(tmp_path, trace.SerializeToString()))
    assert found.clock == "monotonic"
    by_name = slices(found)
    assert by_name["worker"] == [
        (101 * MS, 101 * MS + MS // 2, "step"),
        (101 * MS + MS // 2, 101 * MS + 3 * MS // 4, "inner"),
        (101 * MS + 3 * MS // 4, 102 * MS, "step"),
    ]
    assert by_name["CPU 3"] == [(101 * MS, 102 * MS, "worker")]
    assert by_name["CPU 4"] == [(105 * MS, 106 * MS, "a"), (106 * MS, 107 * MS, "b")]
    assert by_name["GPU 1 queue 0"] == [(104 * MS, 106 * MS, "CUDA kernel")]


def test_a_trace_of_ours_is_one_of_perfettos(tmp_path: Path) -> None:
    """And a live one knows the time of day."""
    path = tmp_path / "t.pftrace"
    before_ns = time.time_ns() - time.monotonic_ns()
    with TraceWriter(path, keep=True) as writer:
        writer.write(Began(1, 1))
        writer.write(Ended(2, True))
    wall_ns = clocks.wall_ns(path)
    assert wall_ns is not None
    assert abs(wall_ns - before_ns) < 1_000 * MS
    with TraceWriter(path) as writer:
        writer.write(Began(0, 1))
        writer.write(Ended(2, True))
    assert clocks.wall_ns(path) is None


RUN = (100 * MS, 200 * MS)
WALL = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("clock", "at_ns", "wall_ns", "expected_ns"),
    [
        ("monotonic", 150 * MS, None, 150 * MS),
        ("wall", WALL + 150 * MS, WALL, 150 * MS),
        ("unknown", 150 * MS, WALL, 150 * MS),
        ("unknown", WALL + 150 * MS, WALL, 150 * MS),
    ],
)
def test_tracks_are_moved_to_the_clock_of_the_run(
    clock: str, at_ns: int, wall_ns: int | None, expected_ns: int
) -> None:
    found = Recording(clock, [Track("CPU 0", False, [(at_ns, at_ns + MS, "x")])])
    (track,) = others.aligned(found, "f", *RUN, wall_ns)
    assert track.slices == [(expected_ns, expected_ns + MS, "x")]


@pytest.mark.parametrize(
    ("clock", "at_ns", "wall_ns", "why"),
    [
        ("monotonic", 250 * MS, WALL, "none of it was recorded during the run"),
        ("wall", WALL + 150 * MS, None, "by the time of day, which the run's trace does not know"),
        ("unknown", 5 * MS, WALL, "none of it was recorded during the run"),
    ],
)
def test_what_was_recorded_at_another_time_is_refused(
    clock: str, at_ns: int, wall_ns: int | None, why: str
) -> None:
    found = Recording(clock, [Track("CPU 0", False, [(at_ns, at_ns + MS, "x")])])
    with pytest.raises(TraceError, match=why):
        others.aligned(found, "f", *RUN, wall_ns)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1, 2]",
        b'{"traceEvents": 5}',
        b'{"traceEvents": []}',
        b'{"traceEvents": [{"ph": "X", "ts": 1e300, "dur": 1}]}',
        b"[" * 100_000,
        b"\x0a\xff\xff\xff\xff",
        b"\x1f\x8b damaged",
        b"\n{}",
        b"hello",
        b"\x12\x00",
        b"\x0a\x05\x92\x03\x02xx",
    ],
)
def test_what_is_no_such_file_is_one_line(tmp_path: Path, data: bytes) -> None:
    file = written(tmp_path, data)
    with pytest.raises(TraceError) as caught:
        others.read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:

    for text in (b"\x0a" + bytes([len(data) % 128]) + data, b"[" + data, data):
        (tmp_path / "other").write_bytes(text)
        with contextlib.suppress(TraceError):
            assert others.read(str(tmp_path / "other")).tracks


TIME = st.integers(0, 60)


@given(st.lists(st.tuples(TIME, TIME, st.sampled_from("abc")).filter(lambda s: s[0] < s[1])))
def test_flattened_slices_cover_the_same_and_never_overlap(
    given_slices: list[tuple[int, int, str]],
) -> None:
    found = flattened(given_slices)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    assert {ns for s in found for ns in range(s[0], s[1])} <= {
        ns for s in given_slices for ns in range(s[0], s[1])
    }
    nested = all(
        a[1] <= b[0] or b[1] <= a[1] or b[0] < a[0] or a[0] == b[0]
        for a in given_slices
        for b in given_slices
        if a[0] <= b[0]
    )
    if nested:
        assert {ns for s in found for ns in range(s[0], s[1])} == {
            ns for s in given_slices for ns in range(s[0], s[1])
        }


def test_the_page_gets_the_busiest_tracks_and_no_more_than_it_shows() -> None:
    many = [
        Track(f"CPU {n}", False, [(i * 10, i * 10 + 1 + n, "x") for i in range(100)])
        for n in range(2)
    ] + [Track(f"t{n}", False, [(0, 10 + n, "y")]) for n in range(40)]
    long = Track("GPU 0 stream 7", True, [(i * 5000, i * 5000 + 100, "k") for i in range(50_000)])
    data = data_of_others([*many, long], 0, 250_000_000)
    names = [track["name"] for track in data["tracks"]]
    assert names[:3] == ["GPU 0 stream 7", "CPU 0", "CPU 1"]
    assert len(names) == MAX_TRACKS
    assert "t39" in names
    assert "t0" not in names
    assert data["left_out"] == 43 - MAX_TRACKS
    assert all(len(track["slices"]) <= 3 * MAX_SLICES for track in data["tracks"])
    (first, *_) = data["tracks"]
    steps = first["slices"]
    last = sum(steps[0::3][:]) + steps[-2]
    assert last == 49_999 * 5000 + 100
