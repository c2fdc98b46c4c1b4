"""Traces: what is written comes back exactly, Perfetto draws it, and damage never gets through."""

import errno
import os
import resource
import shutil
import tracemalloc
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from zlib import crc32, decompress

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
from perfetto.trace_processor.protos import descriptor_pb2

from headway.engine.events import (
    EVENTS,
    Began,
    Charged,
    Completed,
    Described,
    Dispatched,
    Ended,
    Entered,
    Event,
    Focused,
    Found,
    JobEnded,
    Joined,
    LastUsed,
    Left,
    Measured,
    Moved,
    Overdue,
    Overran,
    Passed,
    PolicySet,
    Predicted,
    Ranked,
    Replenished,
    ReserveSet,
    ShareSet,
    Shown,
    StandsWith,
    Submitted,
    TakenUp,
    TaskAdded,
    TaskRemoved,
    Withdrawn,
)
from headway.engine.model import make_rank
from headway.view.traces import TraceError, TraceWriter, protobuf, read_events, records
from tests.bench.perfetto import ask_perfetto

US, MS = 1_000, 1_000_000
END = Ended(100 * MS, True)

# A run in which every kind of event happens. `a` asks the server `s`; `b` has two groups at once.
RUN: list[Event] = [
    Began(0, 1),
    TaskAdded(0, "a", "prt", "5", make_rank(5)),
    ReserveSet(0, "a", "pe", 4 * MS, 20 * MS, 4 * MS, 0, False),
    Joined(0, "a", "a"),
    TaskAdded(0, "b", "ht", "rm", make_rank(0, 20 * MS)),
    TaskAdded(0, "s", "prt", "0", make_rank(0)),
    ReserveSet(0, "s", "ae", MS, 20 * MS, MS, 0, False),
    Joined(0, "s", "s"),
    Focused(0, "a"),
    Submitted(1 * MS, "a", 0, 3 * MS, 3 * MS),
    Described(1 * MS, "a", 0, "kind", (("clear.color.pixels", 90_000),)),
    Dispatched(1 * MS, "a", 0, 0),
    Submitted(2 * MS, "b", 0, 2 * MS, None),
    Charged(3 * MS, "a", 0, 3 * MS, 2 * MS, "a", 2 * MS),
    Completed(4 * MS, "a", 0, 0, 1 * MS, 1 * MS, "a", MS, True, 3 * MS),
    Shown(4 * MS, "a"),
    Dispatched(4 * MS, "b", 0, 0),
    Submitted(5 * MS, "b", 1, 2 * MS, 30 * MS),
    Dispatched(5 * MS, "b", 1, 0),
    Entered(5 * MS, 1, "a", "s"),
    Ranked(5 * MS, "s", make_rank(5), make_rank(0)),
    Moved(5 * MS, "a", "s", MS),
    Completed(6 * MS, "b", 0, 0, 2 * MS, 4 * MS, None, 0, False, None),
    Completed(8 * MS + 1, "b", 1, 0, 5 * MS, 6 * MS, None, 0, False, 30 * MS),
    Left(9 * MS, 1, "a", "s"),
    Ranked(9 * MS, "s", make_rank(0), make_rank(0)),
    Replenished(20 * MS, "a", 4 * MS, 20 * MS),
    PolicySet(80 * MS, "b", "prt"),
    Submitted(85 * MS, "b", 2, 2 * MS, None),
    Predicted(86 * MS, "b", 2, 3 * MS),
    Withdrawn(87 * MS, "b", 2),
    Submitted(90 * MS, "b", 3, 2 * MS, None),
    TaskRemoved(95 * MS, "b"),
    Focused(96 * MS, None),
    TakenUp(97 * MS, 5),
    TaskAdded(97 * MS, "c", "prt", "0", make_rank(0)),
    LastUsed(96 * MS, 0, "c"),
    Submitted(96 * MS, "c", 7, 0, None),
    Dispatched(96 * MS + 1, "c", 7, 0),
    Charged(97 * MS, "c", 7, 97 * MS, MS // 2, None, 0),
    Found(97 * MS),
    Passed(98 * MS, "c", 20, 10, MS),
    JobEnded(98 * MS, "c", 3, 90 * MS, 97 * MS, 5 * MS, MS, 125, True),
    Completed(99 * MS, "c", 7, 0, 96 * MS, 98 * MS, None, 0, True, None),
    Overdue(99 * MS, "c", 3),
    Overran(99 * MS, "c", MS, "late", -MS),
    StandsWith(99 * MS, "c", "process 1", 96 * MS),
    ShareSet(99 * MS, "c", 250),
    Measured(99 * MS, "c", (("launch.2f0c.items", 4096),), 20_000, 25_000, 21_000, 1000),
    END,
]


def save(path: Path, events: Iterable[Event], then: type[BaseException] | None = None) -> Path:
    """Write a trace; `then` is what goes wrong after the last of these events."""
    with TraceWriter(path) as writer:
        for event in events:
            writer.write(event)
        if then is not None:
            raise then
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For property tests, which share it between examples."""
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    return save(folder / "whole.pftrace", RUN).read_bytes()


# -- what is written comes back ------------------------------------------------------------------

RANKS = st.builds(make_rank, st.integers(-(10**6) - 1, 10**6), st.integers(0, 1 << 64))


FEATURES = st.from_regex(r"[a-z.]+", fullmatch=True)
AMOUNTS = st.integers(0, (1 << 63) - 1)


def records_with(
    numbers: st.SearchStrategy[int], names: st.SearchStrategy[str]
) -> dict[type[Event], st.SearchStrategy[Event]]:
    """Records of each kind, of such values."""
    by_hint: dict[Any, st.SearchStrategy[Any]] = {
        int: numbers,
        str: names,
        bool: st.booleans(),
        int | None: numbers | st.none(),
        str | None: names | st.none(),
        tuple[str, ...]: st.lists(names, max_size=4).map(tuple),
        tuple[tuple[str, int], ...]: st.lists(st.tuples(FEATURES, AMOUNTS), max_size=4).map(tuple),
    }
    found = {}
    for cls in EVENTS.values():
        hints = typing.get_type_hints(cls)
        values = [RANKS if "rank" in f.name else by_hint[hints[f.name]] for f in fields(cls)]
        found[cls] = st.builds(cls, *values)
    return found


LONE_SURROGATES_TOO = st.characters(exclude_categories=())
ANY = records_with(st.integers(-(1 << 63), (1 << 63) - 1), st.text(LONE_SURROGATES_TOO))
ENDS = ANY.pop(Ended)
ANYTHING = st.one_of(list(ANY.values()))
FEW = records_with(st.integers(-1, 6), st.sampled_from("ab"))
ENTANGLED = st.one_of([strategy for cls, strategy in FEW.items() if cls is not Ended])
"""So few times, names and numbers that the records have to do with each other, senselessly."""


@given(st.lists(ANYTHING, max_size=20), ENDS)
@settings(max_examples=300, deadline=None)
def test_every_kind_of_record_comes_back_exactly(
    folder: Path, events: list[Event], ended: Event
) -> None:
    path = save(folder / "any.pftrace", [*events, ended])
    assert list(read_events(path)) == [*events, ended]


def test_values_come_back_with_their_types(tmp_path: Path) -> None:
    for before, after in zip(RUN, read_events(save(tmp_path / "t", RUN)), strict=True):
        for field in fields(before):
            assert type(getattr(after, field.name)) is type(getattr(before, field.name))


def test_the_example_has_every_kind() -> None:
    assert {type(event) for event in RUN} == set(EVENTS.values())


def many(groups: int) -> Iterator[Event]:
    yield TaskAdded(0, "task", "prt", "0", 0)
    for i in range(groups):
        yield Submitted(i * MS, "task", i, MS, None)
        yield Dispatched(i * MS, "task", i, 0)
        yield Completed((i + 1) * MS, "task", i, 0, i * MS, i * MS, "task", 5 * MS, False, None)
    yield Ended(groups * MS, True)


def memory_of(path: Path, groups: int) -> int:
    """The most that writing and reading a trace of so many groups takes, in bytes."""
    tracemalloc.start()
    try:
        with TraceWriter(path) as writer:
            for event in many(groups):
                writer.write(event)
        for event in read_events(path):
            last = event
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert last == Ended(groups * MS, True)
    return peak


def test_a_long_trace_takes_no_memory_to_write_or_to_read(tmp_path: Path) -> None:
    """Less than 50 bytes for each group more."""
    memory_of(tmp_path / "first.pftrace", 10)  # what is made once
    short = memory_of(tmp_path / "short.pftrace", 2000)
    assert memory_of(tmp_path / "long.pftrace", 8000) < short + 6000 * 50


# -- what Perfetto sees --------------------------------------------------------------------------


def unpacked(path: Path) -> Any:
    """The trace with what is compressed in its place."""
    trace, whole = pb.Trace.FromString(path.read_bytes()), pb.Trace()
    for packet in trace.packet:
        if packet.compressed_packets:
            inner = pb.Trace.FromString(decompress(packet.compressed_packets))
            whole.packet.extend(inner.packet)
        else:
            whole.packet.append(packet)
    return whole


class Picture:
    """The slices, instants and counters of a file, read with Perfetto's own schema."""

    def __init__(self, path: Path) -> None:
        trace = unpacked(path)
        self.names: dict[int, str] = {}
        interned: dict[int, str] = {}
        timed = []
        clock_ns = 0
        for packet in trace.packet:
            for entry in packet.interned_data.event_names:
                interned[entry.iid] = entry.name
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in self.names
                self.names[track.uuid] = track.name
                assert not track.parent_uuid or track.parent_uuid in self.names
            if packet.HasField("track_event"):
                assert packet.trusted_packet_sequence_id == 1
                assert packet.track_event.track_uuid in self.names
                event = packet.track_event
                ns = packet.timestamp
                if packet.timestamp_clock_id != pb.BUILTIN_CLOCK_BOOTTIME:
                    ns = clock_ns = clock_ns + ns
                name = interned[event.name_iid] if event.name_iid else event.name
                timed.append((ns, event.track_uuid, name, event))
        flags = [
            packet.sequence_flags for packet in trace.packet if packet.interned_data.event_names
        ]
        assert flags[0] == pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        timed.sort(key=lambda entry: entry[0])  # stable, as Perfetto's importer is
        self.slices: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        self.instants: list[tuple[str, int, str]] = []
        self.counters: dict[str, list[tuple[int, float]]] = defaultdict(list)
        open_slices: dict[int, tuple[int, str]] = {}
        for ns, uuid, name, event in timed:
            if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
                assert uuid not in open_slices, "slices of one track overlap"
                open_slices[uuid] = ns, name
            elif event.type == pb.TrackEvent.TYPE_SLICE_END:
                start_ns, name = open_slices.pop(uuid)
                self.slices[uuid].append((start_ns, ns, name))
            elif event.type == pb.TrackEvent.TYPE_INSTANT:
                self.instants.append((self.names[uuid], ns, name))
            else:
                self.counters[self.names[uuid]].append((ns, event.double_counter_value))
        assert not open_slices

    def on(self, track: str) -> list[tuple[int, int, str]]:
        uuids = [uuid for uuid, name in self.names.items() if name == track]
        return sorted(entry for uuid in uuids for entry in self.slices.get(uuid, ()))

    def total_ns(self, track: str, name: str | None = None) -> int:
        return sum(end - start for start, end, n in self.on(track) if name in (None, n))


def test_perfetto_sees_each_group_on_its_gpu_and_at_its_task(tmp_path: Path) -> None:
    picture = Picture(save(tmp_path / "t", RUN))
    assert picture.on("GPU 0") == [
        (1 * MS, 4 * MS, "a"),
        (4 * MS, 6 * MS, "b"),
        (6 * MS, 8 * MS + 1, "b"),
        (98 * MS, 99 * MS, "c"),
    ]
    assert picture.on("c") == [
        (96 * MS, 96 * MS + 1, "waiting"),
        (96 * MS + 1, 99 * MS, "leased"),
    ]
    assert picture.on("server s") == [(5 * MS, 9 * MS, "a")]
    assert picture.on("b") == [
        (2 * MS, 4 * MS, "waiting"),
        (4 * MS, 6 * MS, "running"),
        (5 * MS, 6 * MS, "queued"),
        (6 * MS, 8 * MS + 1, "running"),
        (85 * MS, 87 * MS, "waiting"),
        (90 * MS, 95 * MS, "waiting"),
    ]


def test_perfetto_sees_budgets_decisions_and_changes(tmp_path: Path) -> None:
    picture = Picture(save(tmp_path / "t", RUN))
    assert picture.counters["a"] == [
        (0, 4000.0),
        (3 * MS, 2000.0),
        (4 * MS, 1000.0),
        (5 * MS, 0.0),
        (20 * MS, 4000.0),
    ]
    assert picture.counters["s"] == [(0, 1000.0), (5 * MS, 2000.0)]
    assert picture.instants == [
        ("Tasks", 0, "focus a"),
        ("decisions", 1 * MS, "a"),
        ("a", 4 * MS, "frame"),
        ("decisions", 4 * MS, "b"),
        ("decisions", 5 * MS, "b"),
        ("s", 5 * MS, "priority 5 (own 0)"),
        ("s", 9 * MS, "priority 0"),
        ("Tasks", 96 * MS, "focus elsewhere"),
        ("Tasks", 97 * MS, "5 records dropped"),
        ("Tasks", 100 * MS, "end"),
    ]


def test_a_slice_on_the_gpu_says_how_it_came_about(tmp_path: Path) -> None:
    trace = unpacked(save(tmp_path / "t", RUN))
    names = {
        entry.iid: entry.name
        for packet in trace.packet
        for entry in packet.interned_data.debug_annotation_names
    }
    (notes, *_) = (
        {
            names[note.name_iid]: getattr(note, note.WhichOneof("value"))
            for note in packet.track_event.debug_annotations
        }
        for packet in trace.packet
        if packet.track_event.type == pb.TrackEvent.TYPE_SLICE_BEGIN
        and len(packet.track_event.debug_annotations) > 1
    )
    assert notes == {
        "index": 0,
        "wait_ns": 0,
        "priority": 5,
        "deadline_missed": True,
    }


def test_a_wait_for_budget_is_a_state_of_its_own(tmp_path: Path) -> None:
    picture = Picture(
        save(
            tmp_path / "t",
            [
                TaskAdded(0, "a", "prt", "5", make_rank(5)),
                ReserveSet(0, "a", "pe", 4 * MS, 20 * MS, 4 * MS, 0, False),
                Joined(0, "a", "a"),
                Submitted(0, "a", 0, 0, None),
                Dispatched(1 * MS, "a", 0, 0),
                Completed(6 * MS, "a", 0, 0, 0, 1 * MS, "a", -1 * MS, False, None),
                Submitted(7 * MS, "a", 1, 0, None),
                Replenished(20 * MS, "a", 3 * MS, 20 * MS),
                Dispatched(22 * MS, "a", 1, 0),
                Completed(23 * MS, "a", 1, 0, 7 * MS, 22 * MS, "a", 2 * MS, False, None),
                ReserveSet(30 * MS, "a", "ae", 4 * MS, 20 * MS, 2 * MS, 0, False),
                Submitted(31 * MS, "a", 2, 3 * MS, None),
                Replenished(40 * MS, "a", 4 * MS, 40 * MS),
                Withdrawn(41 * MS, "a", 2),
                END,
            ],
        )
    )
    assert [slice_ for slice_ in picture.on("a") if slice_[2] != "running"] == [
        (0, 1 * MS, "waiting"),
        (7 * MS, 20 * MS, "waiting for budget"),
        (20 * MS, 22 * MS, "waiting"),
        (31 * MS, 40 * MS, "waiting for budget"),
        (40 * MS, 41 * MS, "waiting"),
    ]


def test_frame_rates_count_frames_of_groups_of_servers_and_of_leases(tmp_path: Path) -> None:
    second = 1000 * MS
    frames: list[Event] = [TaskAdded(0, name, "prt", "0", 0) for name in "abc"]
    for i in range(101):
        ns = i * 10 * MS
        frames.append(Completed(ns, "a", i, 0, ns, ns, None, 0, True, None))
        frames.append(Shown(ns, "b"))
        if i % 10 == 0:
            frames.append(Passed(ns, "c", 100, 50, 0))
    picture = Picture(save(tmp_path / "t", [*frames, Ended(second, True)]))
    for task, rate in (("a", 100), ("b", 100), ("c", 500)):
        values = picture.counters[f"{task} frames/s"]
        assert values[-1] == (second, 0.0)
        assert [value for _, value in values[:-1]] == pytest.approx([rate] * (len(values) - 1))
        assert len(values) >= 4


def test_one_task_can_be_drawn_alone_and_the_records_are_still_of_all(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TraceWriter(path, shows=lambda name: name == "a") as writer:
        for event in RUN:
            writer.write(event)
    picture = Picture(path)
    assert picture.on("a")
    assert not picture.on("b")
    assert {name for _, _, name in picture.on("GPU 0")} == {"a", "b", "c"}
    assert list(read_events(path)) == RUN


def test_an_interrupted_run_is_kept_and_says_so(tmp_path: Path) -> None:
    waits = next(n for n, e in enumerate(RUN) if isinstance(e, Submitted) and e.ns == 5 * MS)
    events = [*RUN[: waits + 1], Ended(7 * MS, False)]
    path = save(tmp_path / "t", events)
    assert list(read_events(path)) == events
    picture = Picture(path)
    assert picture.instants[-1] == ("Tasks", 7 * MS, "interrupted")
    assert (4 * MS, 7 * MS, "unfinished") in picture.on("b")
    assert (5 * MS, 7 * MS, "waiting") in picture.on("b")


GAPS = st.sampled_from((0, 0, 1, 500 * US, 1 * MS, 3 * MS))


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    """Groups of some tasks, with many coincidences.

    A task submits ahead, and groups on one GPU may start before others are done.
    """
    events: list[Event] = []
    for task in draw(st.sampled_from((("a",), ("a", "b"), ("a", "b", "c")))):
        now_ns = draw(GAPS)
        for index in range(draw(st.integers(0, 8))):
            came_ns = now_ns + draw(GAPS)
            went_ns = came_ns + draw(GAPS)
            started_ns = went_ns + draw(GAPS)
            done_ns = started_ns + draw(GAPS)
            gpu = draw(st.integers(0, 1))
            events += [
                Submitted(came_ns, task, index, 0, None),
                Dispatched(went_ns, task, index, gpu),
                Completed(done_ns, task, index, gpu, came_ns, started_ns, None, 0, False, None),
            ]
            now_ns = draw(st.sampled_from((went_ns, done_ns)))
    events.sort(key=lambda event: event.ns)
    return [*events, Ended(events[-1].ns if events else 0, True)]


@given(runs())
@settings(max_examples=200, deadline=None)
def test_slices_never_overlap_and_add_up_to_the_executed_time(
    folder: Path, events: list[Event]
) -> None:
    picture = Picture(save(folder / "run.pftrace", events))
    done = [event for event in events if isinstance(event, Completed)]
    for gpu in range(2):
        executed = sorted((e.started_ns, e.ns, e.task) for e in done if e.gpu == gpu)
        assert picture.on(f"GPU {gpu}") == executed
    for task in "abc":
        mine = [e for e in done if e.task == task]
        executed_ns = sum(e.ns - e.started_ns for e in mine)
        assert picture.total_ns(task, "running") == executed_ns
        assert picture.total_ns(task) == sum(e.ns - e.submitted_ns for e in mine)


def test_a_gpu_whose_clock_is_behind_does_not_make_slices_overlap(tmp_path: Path) -> None:
    picture = Picture(
        save(
            tmp_path / "t",
            [
                Submitted(1 * MS, "a", 0, 0, None),
                Dispatched(3 * MS, "a", 0, 0),
                Completed(5 * MS, "a", 0, 0, 1 * MS, 2 * MS, None, 0, False, None),
                END,
            ],
        )
    )
    assert picture.on("GPU 0") == [(2 * MS, 5 * MS, "a")]
    assert picture.on("a") == [(1 * MS, 3 * MS, "waiting"), (3 * MS, 5 * MS, "running")]


@given(st.lists(ANYTHING | ENTANGLED, max_size=30) | st.lists(ENTANGLED, max_size=60))
@settings(max_examples=300, deadline=None)
def test_slices_never_overlap_whatever_is_recorded(folder: Path, events: list[Event]) -> None:
    Picture(save(folder / "odd.pftrace", [*events, END]))


def test_perfetto_has_no_use_for_the_fields_that_hold_records() -> None:
    packet = descriptor_pb2.DescriptorProto()
    pb.TracePacket.DESCRIPTOR.CopyToProto(packet)
    taken = [(r.start, r.end) for r in (*packet.reserved_range, *packet.extension_range)]
    assert taken
    for number in (records.RECORD, records.SEAL):
        assert number not in {field.number for field in packet.field}
        assert not any(start <= number < end for start, end in taken)
        assert not 19_000 <= number < 20_000  # protobuf's own


def test_perfettos_own_importer_agrees(tmp_path: Path) -> None:
    odd = [
        # Groups that overlap on one GPU, and of which the second is over first.
        Submitted(30 * MS, "a", 1, 0, None),
        Dispatched(30 * MS, "a", 1, 1),
        Submitted(31 * MS, "s", 0, 0, None),
        Dispatched(31 * MS, "s", 0, 1),
        Completed(33 * MS, "s", 0, 1, 31 * MS, 31 * MS, "s", 0, False, None),
        Completed(34 * MS, "a", 1, 1, 30 * MS, 30 * MS, "a", 0, False, None),
        # One of no length between two others, all at one instant.
        Completed(36 * MS, "a", 2, 1, 34 * MS, 34 * MS, "a", 0, False, None),
        Completed(36 * MS, "s", 1, 1, 36 * MS, 36 * MS, "s", 0, False, None),
        Completed(37 * MS, "a", 3, 1, 36 * MS, 36 * MS, "a", 0, False, None),
    ]
    path = save(tmp_path / "t.pftrace", [*RUN[:-1], *odd, END])
    picture = Picture(path)
    slices, counters, problems, rows = ask_perfetto(
        path,
        """SELECT track.name AS track, slice.ts, slice.dur, slice.name, slice.depth FROM slice
           JOIN track ON track.id = slice.track_id ORDER BY slice.ts""",
        """SELECT track.name AS track, ts, value FROM counter
           JOIN track ON track.id = counter.track_id ORDER BY ts, counter.id""",
        "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'",
        """SELECT name, COUNT(*) AS tracks, COUNT(DISTINCT track_group_id) AS groups FROM track
           WHERE name IN ('GPU 1', 'b') AND type GLOB '*track_event' GROUP BY name""",
    )
    assert problems == []
    for track in ("GPU 0", "GPU 1", "a", "b", "c", "s", "server s"):
        seen = [s for s in slices if s["track"] == track]
        shown = [(s["ts"], s["ts"] + s["dur"], s["name"]) for s in seen if s["dur"]]
        assert sorted(shown) == [slice_ for slice_ in picture.on(track) if slice_[0] < slice_[1]]
        assert all(s["depth"] == 0 for s in seen if s["dur"])
    instants = [(s["track"], s["ts"], s["name"]) for s in slices if not s["dur"]]
    assert sorted(instants) == sorted([*picture.instants, ("GPU 1", 36 * MS, "s")])
    for reserve, values in picture.counters.items():
        assert [(c["ts"], c["value"]) for c in counters if c["track"] == reserve] == values
    # What cannot be on one track is on several that the UI shows as one.
    assert rows == [
        {"name": "GPU 1", "tracks": 2, "groups": 1},
        {"name": "b", "tracks": 2, "groups": 1},
    ]


# -- damage --------------------------------------------------------------------------------------


def outcome(path: Path, data: bytes) -> list[Event] | str:
    """What reading gives: events or the one line of a `TraceError`."""
    path.write_bytes(data)
    try:
        return list(read_events(path))
    except TraceError as error:
        line = str(error)
        assert line.startswith(f"{path}: ")
        assert "\n" not in line
        return line


def test_a_trace_cut_off_anywhere_is_not_taken_for_a_whole_one(folder: Path, whole: bytes) -> None:
    path = folder / "cut.pftrace"
    assert outcome(path, whole) == RUN
    for size in range(len(whole)):
        assert isinstance(outcome(path, whole[:size]), str), size


def test_the_message_says_where_a_trace_is_cut_off(folder: Path, whole: bytes) -> None:
    found = outcome(folder / "cut.pftrace", whole[:-20])
    assert f"is cut off after {len(whole) - 20} bytes; expected a last record 'ended'" in found


@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_no_changed_bit_goes_unnoticed(folder: Path, whole: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place // 8] ^= 1 << place % 8
    assert isinstance(outcome(folder / "bit.pftrace", bytes(damaged)), str)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_no_replaced_stretch_goes_unnoticed(
    folder: Path, whole: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(start + 40, len(whole))))
    damaged = whole[:start] + data.draw(st.binary(max_size=40)) + whole[end:]
    found = outcome(folder / "stretch.pftrace", damaged)
    assert (found == RUN) == (damaged == whole)


def packet(*parts: bytes) -> bytes:
    return protobuf.message(records.PACKET, *parts)


def sealed(header: bytes, record: bytes) -> bytes:
    """A file with damage that its author sealed: the checksum is right."""
    size = len(record) + len(protobuf.fixed32(records.SEAL, 0))
    data = header + protobuf.key(records.PACKET, protobuf.BYTES) + protobuf.varint(size) + record
    return data + protobuf.fixed32(records.SEAL, crc32(data))


@given(st.binary(max_size=200))
@settings(max_examples=400, deadline=None)
@example(b"\x0a")
@example(b"\x0a\x00")
@example(b"\x0a" + b"\xff" * 20)
def test_random_bytes_are_no_trace(folder: Path, data: bytes) -> None:
    assert isinstance(outcome(folder / "random.pftrace", data), str)


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
@settings(max_examples=400, deadline=None)
def test_random_records_give_events_or_an_error(
    folder: Path, found: list[bytes], with_header: bool
) -> None:
    header = packet(protobuf.message(records.RECORD, records.header())) if with_header else b""
    data = header + b"".join(packet(protobuf.message(records.RECORD, record)) for record in found)
    outcome(folder / "records.pftrace", data)
    outcome(folder / "records.pftrace", sealed(data, protobuf.message(records.RECORD, b"\x93")))


def header_with(value: object) -> bytes:
    return packet(protobuf.message(records.RECORD, msgspec.msgpack.encode(value)))


PERFETTO_ONLY = pb.Trace(packet=[pb.TracePacket(timestamp=1)]).SerializeToString()
HEADER = packet(protobuf.message(records.RECORD, records.header()))
BAD_FILES = {
    "empty": (b"", "is empty; expected a trace written by Headway"),
    "JSON": (b'{"traceEvents": []}', "is no Perfetto trace (begins with 7b 22"),
    "text after an empty line": (b"\nhello\n", "is no trace, or one cut off after 7 bytes"),
    "Perfetto's": (PERFETTO_ONLY, "is no Headway trace (its first packet has no header)"),
    "a huge packet first": (
        b"\x0a\xff\xff\xff\xff\x7f",
        "(a packet of 34359738367 bytes, expected",
    ),
    "a huge packet": (
        HEADER + b"\x0a\xff\xff\xff\xff\x7f",
        "a packet of 34359738367 bytes, expected",
    ),
    "an endless number": (HEADER + b"\x0a" + b"\x80" * 11, "a number of more than 10 bytes"),
    "garbage": (
        HEADER + b"\x42\x42",
        f"is damaged at byte {len(HEADER)}: byte 0x42 where a packet",
    ),
    "only a header": (HEADER, f"is cut off after {len(HEADER)} bytes; expected a last record"),
    "two headers": (HEADER + HEADER, f"is damaged at byte {len(HEADER)}: "),
    "an unknown kind": (
        HEADER + packet(protobuf.message(records.RECORD, msgspec.msgpack.encode([99, 1]))),
        "is damaged at byte",
    ),
    "a record of the wrong type": (
        HEADER + packet(protobuf.message(records.RECORD, msgspec.msgpack.encode([14, 1, 1]))),
        "is damaged at byte",
    ),
    "something else's": (
        header_with(["other", 1, []]),
        "has the header of something else ('other')",
    ),
    "a later version": (header_with(["headway", 3, []]), "has format version 3, expected 2"),
    "other fields": (
        header_with(["headway", 2, [["shown", ["ns", "window"]]]]),
        "has records 'shown' with other fields",
    ),
    "no kinds": (header_with(["headway", 2, []]), "a header without kinds"),
}


@pytest.mark.parametrize(("data", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_explained_in_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    found = outcome(tmp_path / "bad.pftrace", data)
    assert isinstance(found, str)
    assert message in found


@pytest.mark.parametrize("more", [b"\x0a", b"x", packet(b"\x40\x01"), HEADER])
def test_data_after_the_end_is_damage(folder: Path, whole: bytes, more: bytes) -> None:
    found = outcome(folder / "more.pftrace", whole + more)
    assert isinstance(found, str)
    assert f"is damaged at byte {len(whole)}: " in found


def test_what_cannot_be_opened_is_explained_in_one_line(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "missing", "cannot be read (No such file or directory)"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "nul\0byte", "cannot be read (embedded null byte)"),
    ):
        with pytest.raises(TraceError) as error:
            list(read_events(path))
        assert str(error.value) == f"{path}: {message}"


def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(HEADER + b"\x0a" + protobuf.varint(16 * 1024 * 1024) + b"short")
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="cut off"):
            list(read_events(path))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_reader_may_stop_early(tmp_path: Path) -> None:
    events = read_events(save(tmp_path / "t", RUN))
    assert next(events) == RUN[0]
    del events


# -- files ---------------------------------------------------------------------------------------


def test_the_target_appears_only_when_the_trace_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "t.pftrace"
    target.write_text("an older one")
    with TraceWriter(target) as writer:
        for event in RUN:
            writer.write(event)
        assert target.read_text() == "an older one"
        (part,) = set(tmp_path.iterdir()) - {target}
        assert part.name == f"t.pftrace.{os.getpid()}.part"
    assert list(tmp_path.iterdir()) == [target]
    assert list(read_events(target)) == RUN


def test_an_error_in_the_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        save(tmp_path / "t", RUN[:9], then=ZeroDivisionError)
    assert not list(tmp_path.iterdir())


def test_a_run_without_its_last_record_leaves_nothing_and_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="stopped without its last record"):
        save(tmp_path / "t", RUN[:-1])
    assert not list(tmp_path.iterdir())


def test_an_interrupt_after_the_last_record_keeps_the_trace(tmp_path: Path) -> None:
    events = [*RUN[:10], Ended(2 * MS, False)]
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "t", events, then=KeyboardInterrupt)
    assert list(tmp_path.iterdir()) == [tmp_path / "t"]
    assert list(read_events(tmp_path / "t")) == events


def test_nothing_can_follow_the_last_record(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t") as writer:
        writer.write(END)
        with pytest.raises(TraceError, match="after the last record"):
            writer.write(END)
    assert list(read_events(tmp_path / "t")) == [END]


def test_closing_twice_and_discarding_late_do_no_harm(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t")
    writer.write(END)
    writer.close()
    writer.close()
    writer.discard()
    assert list(tmp_path.iterdir()) == [tmp_path / "t"]


def test_two_writers_of_one_target_do_not_mix(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t") as one, TraceWriter(tmp_path / "t") as two:
        one.write(Ended(1, True))
        two.write(Ended(2, True))
    assert list(tmp_path.iterdir()) == [tmp_path / "t"]
    assert list(read_events(tmp_path / "t")) == [Ended(1, True)]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    save(tmp_path / "link", RUN)
    assert (tmp_path / "link").is_symlink()
    assert list(read_events(tmp_path / "real")) == RUN


def a_directory(folder: Path) -> Path:
    return folder


def a_missing_folder(folder: Path) -> Path:
    return folder / "missing" / "t"


def a_device(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def a_long_name(folder: Path) -> Path:
    return folder / ("x" * 255)


def a_name_with_nul(folder: Path) -> Path:
    return folder / "x\0y"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (a_directory, "it is a directory"),
        (a_missing_folder, os.strerror(errno.ENOENT)),
        (a_device, "it is not a regular file"),
        (a_long_name, os.strerror(errno.ENAMETOOLONG)),
        (a_name_with_nul, "embedded null byte"),
    ],
)
def test_a_target_that_cannot_be_is_refused_at_once(
    tmp_path: Path, place: Callable[[Path], Path], message: str
) -> None:
    path = place(tmp_path)
    before = list(tmp_path.iterdir())
    with pytest.raises(TraceError) as error:
        TraceWriter(path)
    assert str(error.value) == f"{path}: cannot be written ({message})"
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize("room", [0, 1_000, 4_000])
def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path: Path, room: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with pytest.raises(TraceError, match=r"t: cannot be written \(File too large\)"):
            save(tmp_path / "t", many(2_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("room", [2_500, 6_000])
def test_what_cannot_be_repeated_is_kept_when_the_disk_is_full(tmp_path: Path, room: int) -> None:
    events = list(many(4_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        with TraceWriter(tmp_path / "t", keep=True) as writer:
            for event in events:
                writer.write(event)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "t").stat().st_size <= room
    *kept, gap, ended = read_events(tmp_path / "t")
    assert kept == events[: len(kept)]
    assert gap == TakenUp(ended.ns, len(events) - 1 - len(kept))
    assert ended == events[-1]
    assert 0 < writer.dropped == len(events) - 1 - len(kept)


def test_without_room_for_anything_there_is_no_trace(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(TraceError, match="File too large"):
            TraceWriter(tmp_path / "t", keep=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_after_an_error_nothing_more_is_written(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t") as writer:
        with pytest.raises(TraceError, match="cannot hold Shown"):
            writer.write(Shown(1 << 200, "a"))
        with pytest.raises(TraceError, match="cannot hold Shown"):
            writer.write(END)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_goes_away_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    writer = TraceWriter(tmp_path / "gone" / "t")
    writer.write(END)
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(TraceError, match="No such file"):
        writer.close()
