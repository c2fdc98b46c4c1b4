"""Recording never waits: a reader that does not read costs records, which are counted, and when it
reads again the stream can be understood without them."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from headway.engine.core import Engine
from headway.engine.events import (
    Began,
    Completed,
    Dispatched,
    Ended,
    Event,
    Found,
    Passed,
    Submitted,
    TakenUp,
)
from headway.engine.model import Group, Task
from headway.live.watch import recording
from headway.live.watch.following import Follower, StreamError
from headway.live.watch.recording import Recordings, TooMany
from headway.trace.checker import check

MS = 1_000_000


class Stage:
    """An engine whose clock we turn, recorded to a socket."""

    def __init__(self) -> None:
        self.now_ns = time.monotonic_ns()
        self.engine = Engine(now_ns=self.now_ns)
        self.task, _ = self.engine.add_task("a", self.now_ns)
        self.other, _ = self.engine.add_task("b", self.now_ns, policy="ht")
        self.recordings = Recordings()
        ours, self.reader = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.index = {self.task: 0, self.other: 0}
        self.recordings.start(ours, [self.engine], "us")

    def group(self, task: Task) -> None:
        self.now_ns += MS
        group = Group(task, self.index[task])
        self.index[task] += 1
        self.engine.submit(group, self.now_ns)
        assert self.engine.dispatch(self.now_ns) is group
        self.now_ns += MS
        self.engine.complete(group, self.now_ns - MS, self.now_ns)

    def groups(self, count: int) -> None:
        for _ in range(count):
            self.group(self.task)
            self.group(self.other)

    def send(self) -> None:
        """Long enough later for it to be time."""
        self.now_ns += 100 * MS
        self.recordings.send([self.engine], self.now_ns)

    def end(self) -> list[Event]:
        """All that comes until the end."""
        self.recordings.end("us", self.now_ns)
        return list(Follower(self.reader).events(self._more))

    def _more(self) -> bool:
        self.send()
        return True


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(recording, "QUEUE", 20_000)
    monkeypatch.setattr(recording, "BUFFER", 4096)
    made = Stage()
    yield made
    made.reader.close()
    made.groups(1)
    made.send()  # and hears that nobody reads
    made.recordings.close([made.engine])


def test_everything_comes_while_somebody_reads(stage: Stage) -> None:
    stage.groups(20)
    events = stage.end()
    assert [type(event) for event in events[:2]] == [Began, TakenUp]
    assert isinstance(events[-1], Ended)
    assert events[-1].complete
    assert sum(isinstance(event, Completed) for event in events) == 40
    assert check(events).count == 0


def test_a_reader_that_does_not_read_costs_records_that_are_counted(stage: Stage) -> None:
    for _ in range(100):
        stage.groups(10)
        stage.send()
    events = stage.end()
    done = sum(isinstance(event, Completed) for event in events)
    assert done < 2000
    checker = check(events)
    assert checker.count == 0
    assert checker.ended
    told = sum(isinstance(e, Submitted | Dispatched | Completed) for e in events)
    assert checker.lost == 3 * 2000 - told


def test_after_a_gap_the_stream_goes_on_with_what_there_is(stage: Stage) -> None:
    for _ in range(50):
        stage.groups(10)
        stage.send()
    follower = Follower(stage.reader)
    read: list[Event] = []
    more = iter([True] * 60)

    def wants_more() -> bool:
        stage.send()
        return next(more, False)

    for event in follower.events(wants_more):
        read.append(event)
        if isinstance(event, Found) and len(read) > 10:
            break
    gap = next(e for e in read[2:] if isinstance(e, TakenUp))
    assert gap.dropped > 0
    assert check(read).count == 0


def test_a_reader_that_is_gone_ends_its_recording_and_nothing_else(stage: Stage) -> None:
    stage.reader.close()
    stage.groups(5)
    stage.send()
    assert stage.recordings.due_ns is None
    assert stage.recordings.observers() == ()
    stage.groups(5)


def test_a_second_engine_begins_with_nothing(stage: Stage) -> None:
    """The engine was in doubt: the tasks are gone, and come back under the same names."""
    stage.groups(3)
    stage.engine = Engine(observers=stage.recordings.observers(), now_ns=stage.now_ns)
    stage.task, _ = stage.engine.add_task("a", stage.now_ns)
    stage.other, _ = stage.engine.add_task("b", stage.now_ns)
    stage.index = {stage.task: 0, stage.other: 0}
    stage.groups(3)
    assert check(stage.end()).count == 0


def test_what_passed_under_a_lease_is_recorded(stage: Stage) -> None:
    stage.engine.tell("passed", stage.task, 5, 4, 3 * MS, at_ns=7 * MS)
    assert Passed(7 * MS, "a", 5, 4, 3 * MS) in stage.end()


def test_there_is_an_end_to_how_many_record(stage: Stage) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(recording.MAX_RECORDINGS):
            ours, theirs = map(stack.enter_context, socket.socketpair())
            if number < recording.MAX_RECORDINGS - 1:
                stage.recordings.start(ours, [stage.engine], number)
        with pytest.raises(TooMany, match="end one of them first"):
            stage.recordings.start(ours, [stage.engine], "one more")
        assert theirs.fileno() >= 0


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x05\x00\x00\x00hello"])
def test_something_else_than_records_is_refused(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(data)
        with pytest.raises(StreamError, match="the daemon sent"):
            list(Follower(theirs).events(lambda: True))


def test_a_daemon_that_dies_leaves_a_stream_that_says_so() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        (event,) = Follower(theirs).events(lambda: True)
    assert isinstance(event, Ended)
    assert not event.complete
