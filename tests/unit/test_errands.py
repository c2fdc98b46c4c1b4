"""What is done between decisions: in turns, and for a part of the time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.live.devices import mps
from headway.live.gate.channel import Peer
from headway.live.server.errands import Errands
from headway.live.server.loop import Loop
from headway.live.server.scout import Scout, Sight
from headway.live.server.sharing import Shared, Telling
from tests.bench.asking import finish

MS = 1_000_000
S = 1_000 * MS


def noting(names: list[str], name: str, times: int = 1) -> Callable[[], bool]:
    """A step that is done so many times."""
    left = [times]

    def step() -> bool:
        names.append(name)
        left[0] -= 1
        return left[0] > 0

    return step


def test_users_take_turns_and_so_do_their_processes_and_requests() -> None:
    names: list[str] = []
    errands = Errands(1, S, S)
    for number in range(4):
        errands.add(Peer(1, 100, 0), noting(names, f"flood{number}"))
    errands.add(Peer(2, 100, 0), noting(names, "mate", 2))
    errands.add(Peer(3, 200, 0), noting(names, "other", 2))
    errands.run(time.monotonic_ns())
    assert names == [
        "flood0", "other", "mate", "other", "flood1", "mate", "flood2", "flood3",
    ]  # fmt: skip
    assert errands.due_ns() is None


def test_a_step_that_fails_costs_only_itself(capfd: pytest.CaptureFixture[str]) -> None:
    names: list[str] = []
    errands = Errands(1, S, S)
    errands.add(Peer(1, 1, 0), lambda: bool(1 // 0))
    errands.add(Peer(2, 2, 0), noting(names, "next"))
    errands.run(time.monotonic_ns())
    assert names == ["next"]
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_all_who_ask_meanwhile_get_one_text_that_begins_after_they_asked() -> None:
    begun: list[int] = []

    def telling() -> Telling:
        begun.append(len(begun))
        text = b"%d" % begun[-1]
        for _ in range(30):
            yield
        return text

    shared = Shared(telling)
    first = shared.answering()
    next(first)
    late = [shared.answering() for _ in range(5)]
    for answering in late:
        next(answering)
    assert finish(first) == b"0"
    assert [finish(answering) for answering in late] == [b"1"] * 5
    assert len(begun) == 2


def test_a_text_that_cannot_be_made_is_tried_again_for_the_next() -> None:
    fails = [True]

    def telling() -> Telling:
        yield
        if fails.pop():
            raise KeyError("a mistake")
        return b"told"

    shared = Shared(telling)
    with pytest.raises(KeyError):
        finish(shared.answering())
    fails.append(False)
    assert finish(shared.answering()) == b"told"


# -- what is read that programs chose --------------------------------------------------------------


def test_a_program_that_cannot_be_looked_at_keeps_only_its_own_user_unknown() -> None:
    stuck = threading.Event()

    def look(pid: int) -> Sight:
        if pid == 666:
            stuck.wait(30)
        return Sight(f":{pid}", side_by_side=False)

    loop, seen = Loop(), list[str]()
    scout = Scout(loop, look)
    for uid, pid in ((1, 666), (1, 5), (2, 7)):
        scout.look(Peer(pid, uid, 0), lambda sight: seen.append(sight.display))
    end = time.monotonic() + 20
    while not seen and time.monotonic() < end:
        loop.turn(0.1)
    assert seen == [":7"]
    stuck.set()
    while len(seen) < 3 and time.monotonic() < end:
        loop.turn(0.1)
    assert seen == [":7", ":666", ":5"]
    scout.close()
    loop.close()


def test_of_a_folder_that_a_program_named_no_more_is_read_than_whether_there_is_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of one with 120 000 files was listed at every hello."""
    for number in range(3):
        (tmp_path / f"file{number}").touch()
    scandir, read = os.scandir, []

    class Counted:
        def __init__(self, folder: str) -> None:
            self._entries = scandir(folder)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None:
            self._entries.close()

        def __iter__(self) -> Counted:
            return self

        def __next__(self) -> os.DirEntry[str]:
            read.append(entry := next(self._entries))
            return entry

    monkeypatch.setattr(os, "scandir", Counted)
    monkeypatch.setattr(mps, "variables_of", lambda pid, *names: {mps.PIPES: str(tmp_path)})
    assert mps.may_use(os.getpid())
    assert len(read) == 1
