"""The share server: who may join, what launchers are told, and when, by a clock of our own."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headway.engine.actuation import BETWEEN_NS, RESTARTS, RESTARTS_NS
from headway.engine.turns.spaces import Spaces
from headway.live.devices.share_server import MOST_OF_USER, Member, ShareError, ShareServer
from headway.live.server.callers import Caller

MS = 1_000_000
PERIOD_NS = 10 * MS


class Launcher:
    """A launcher with programs that obey: an important one that misses while the other has more
    than `limit`, and that other one, whose share changes when this says so."""

    def __init__(self, controller: str, *, restarts: bool = True, uid: int = 1) -> None:
        self.told: list[tuple[int, int]] = []
        self.recorded: list[tuple[str, tuple[object, ...]]] = []
        self.server = ShareServer(controller, self._hear, self._record, Spaces(self._record))
        self.caller = cast(
            Caller, SimpleNamespace(peer=SimpleNamespace(uid=uid, pid=7), keeps=False)
        )
        self.now_ns = 0
        self.restarts = restarts

    def _hear(self, caller: Caller, words: dict[str, Any]) -> None:
        assert caller is self.caller
        assert (words["event"], words["task"]) == ("share", "low")
        self.told.append((self.now_ns, words["share"]))

    def _record(self, hook: str, *args: object, at_ns: int) -> None:
        self.recorded.append((hook, args))

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.server.handle(request, self.caller, self.now_ns)

    def join(self, name: str, priority: int, **more: Any) -> int:
        asked = {"task": name, "priority": priority, "restarts": self.restarts, **more}
        return int(self.ask(act="join", **asked)["share"])

    def says(self, name: str, jobs: str) -> None:
        self.ask(act="jobs", task=name, jobs=jobs)

    def applies(self, share: int) -> None:
        self.ask(act="applied", task="low", share=share)

    def go(self, ns: int) -> None:
        self.now_ns += ns

    @property
    def low(self) -> Member:
        return self.server.members["low"]


@pytest.fixture
def launcher() -> Launcher:
    made = Launcher("aimd")
    assert made.join("high", 5) == 1000
    assert made.join("low", 1) == 1000
    made.go(2 * BETWEEN_NS)
    made.says("high", "p")
    return made


def last(launcher: Launcher) -> int:
    return launcher.told[-1][1]


def test_a_miss_takes_half_from_who_is_less_important(launcher: Launcher) -> None:
    launcher.go(PERIOD_NS)
    launcher.says("high", "m")
    assert launcher.told == [(launcher.now_ns, 500)]
    launcher.says("low", "m")
    assert len(launcher.told) == 1, "nobody is below the last"


def test_jobs_that_ran_beside_the_share_before_say_nothing(launcher: Launcher) -> None:
    """From the miss to the first word of the restarted program, and one more job that had begun."""
    launcher.says("low", "p")
    launcher.go(PERIOD_NS)
    launcher.says("high", "m")
    for _ in range(20):
        launcher.go(PERIOD_NS)
        launcher.says("high", "mm")
    launcher.applies(500)
    for _ in range(200):
        launcher.go(PERIOD_NS)
        launcher.says("high", "m")
    launcher.go(PERIOD_NS // 2)
    launcher.says("low", "p")
    launcher.go(PERIOD_NS // 2)
    launcher.says("high", "m")
    assert last(launcher) == 500, "it had begun before the other had loaded"
    launcher.go(PERIOD_NS)
    launcher.says("high", "m")
    assert [share for _, share in launcher.told] == [500, 250]


def plant(launcher: Launcher, limit: int, seconds: int, restart_ns: int = 50 * MS) -> list[int]:
    """Run the two programs for so long: the shares that were told."""
    share, due_ns, said = 1000, None, len(launcher.told)
    for _ in range(seconds * 100):
        launcher.go(PERIOD_NS)
        launcher.says("high", "m" if share > limit else "p")
        if due_ns is None and len(launcher.told) > said:
            due_ns = launcher.now_ns + restart_ns
        if due_ns is not None and launcher.now_ns >= due_ns:
            share, said, due_ns = last(launcher), len(launcher.told), None
            launcher.applies(share)
        if due_ns is None:
            launcher.says("low", "p")
    return [share for _, share in launcher.told]


def test_the_reports_controller_with_restarts_halves_and_rises_in_steps_worth_a_restart() -> None:
    launcher = Launcher("aimd")
    launcher.join("high", 5)
    launcher.join("low", 1)
    told = plant(launcher, 300, 12)
    assert told[:2] == [500, 250]
    for before, after in pairwise(told):
        assert after == before // 2 or before + 100 <= after <= before + 110, told
    times = [at_ns for at_ns, _ in launcher.told]
    assert all(b - a >= BETWEEN_NS for a, b in pairwise(times))


def test_the_better_controller_finds_the_share_and_stays() -> None:
    launcher = Launcher("bisection")
    launcher.join("high", 5)
    launcher.join("low", 1)
    told = plant(launcher, 300, 60)
    assert told[:2] == [500, 250]
    assert {share for share in told[2:] if share <= 300} == {250}
    trials = [at_ns for at_ns, share in launcher.told[2:] if share > 300]
    waits = [after - before for before, after in pairwise(trials)]
    assert all(after > 1.5 * before for before, after in pairwise(waits[1:]))
    assert len(trials) <= 6


def test_without_restarts_every_change_is_told_at_once() -> None:
    launcher = Launcher("aimd", restarts=False)
    launcher.join("high", 5)
    launcher.join("low", 1)
    for job in "pmmpp":
        launcher.go(PERIOD_NS)
        launcher.says("high", job)
        if launcher.low.is_pending:
            launcher.applies(last(launcher))
    assert [share for _, share in launcher.told] == [500, 250, 260, 270]


def test_restarts_are_limited(launcher: Launcher) -> None:
    launcher.server.choose("aimd")
    for _ in range(500):
        launcher.go(BETWEEN_NS // 5)
        launcher.says("high", "m" if launcher.low.applied > 10 else "pppppppppppp")
        if launcher.low.is_pending:
            launcher.applies(last(launcher))
            launcher.says("low", "p")
    times = [at_ns for at_ns, _ in launcher.told]
    for number in range(len(times) - RESTARTS):
        assert times[number + RESTARTS] - times[number] >= RESTARTS_NS


def test_a_program_that_cannot_be_changed_is_left_at_its_share(launcher: Launcher) -> None:
    launcher.go(PERIOD_NS)
    launcher.says("high", "m")
    launcher.ask(act="stuck", task="low", why="it ignores SIGINT")
    for _ in range(50):
        launcher.go(BETWEEN_NS)
        launcher.says("high", "m")
    assert len(launcher.told) == 1
    (high, low) = launcher.ask(act="look")["tasks"]
    assert (high["task"], low["share"], low["stuck"]) == ("high", 1000, "it ignores SIGINT")
    with pytest.raises(ShareError, match="low keeps its share: it ignores SIGINT"):
        launcher.ask(act="set", task="low", share="50%")


def test_ranges_and_priorities_change_while_programs_run(launcher: Launcher) -> None:
    launcher.ask(act="set", task="low", share="10%..40%")
    assert last(launcher) == 400
    launcher.applies(400)
    launcher.ask(act="set", task="low", priority=9)
    launcher.says("low", "p")
    launcher.go(2 * BETWEEN_NS)
    launcher.says("high", "m")
    assert last(launcher) == 400, "it is the more important one now"


def test_all_that_happens_is_recorded_for_traces(launcher: Launcher) -> None:
    launcher.go(PERIOD_NS)
    launcher.says("high", "m")
    launcher.applies(500)
    hooks = [hook for hook, _ in launcher.recorded]
    assert hooks == ["share_set", "share_set", "job_ended", "job_ended", "share_set"]
    assert launcher.recorded[-1][1] == (launcher.low, 500)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"act": "join", "task": "low", "priority": 1}, "a task is called 'low' already"),
        ({"act": "join", "task": "x", "priority": "1"}, "priority: found '1', expected a whole"),
        ({"act": "join", "task": "x", "priority": 10**9}, "priority: found"),
        ({"act": "join", "task": "\n", "priority": 1}, "task: expected printable text"),
        ({"act": "join", "task": "x", "priority": 1, "share": "0%"}, "from 1% to 100%"),
        ({"act": "join", "task": "x", "priority": 1, "share": 5}, 'such as "25%..100%"'),
        ({"act": "jobs", "task": "nobody", "jobs": "p"}, "no launched task of yours is called"),
        ({"act": "jobs", "task": "low", "jobs": "px"}, "jobs: expected p for each in time"),
        ({"act": "jobs", "task": "low", "jobs": "p" * 1001}, "jobs: expected p"),
        ({"act": "applied", "task": "low", "share": 0}, "share: found 0"),
        ({"act": "applied", "task": "low", "share": True}, "share: found True"),
        ({"act": "dance"}, "act: found 'dance', expected join"),
    ],
)
def test_mistakes_are_told(launcher: Launcher, request_: dict[str, Any], why: str) -> None:
    with pytest.raises(ShareError, match=why):
        launcher.ask(**request_)


def test_another_users_task_is_nobodys_business(launcher: Launcher) -> None:
    other = cast(Caller, SimpleNamespace(peer=SimpleNamespace(uid=2, pid=8), keeps=False))
    with pytest.raises(ShareError, match="no launched task of yours"):
        launcher.server.handle({"act": "leave", "task": "low"}, other, launcher.now_ns)


def test_a_launcher_that_is_gone_leaves_nothing(launcher: Launcher) -> None:
    assert launcher.server.busy
    launcher.server.gone(launcher.caller)
    assert not launcher.server.busy
    assert launcher.join("low", 1) == 1000


def test_a_user_has_so_much_room(launcher: Launcher) -> None:
    for number in range(MOST_OF_USER - 2):
        launcher.join(f"more{number}", 1)
    with pytest.raises(ShareError, match="tasks of this user are there"):
        launcher.join("one too many", 1)


def test_an_unknown_controller_is_refused() -> None:
    with pytest.raises(ShareError, match="expected one of aimd, alone, bisection, slowdown"):
        Launcher("magic")
