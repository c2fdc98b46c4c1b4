"""What `headway explain` says, state by state, with our clock: the daemon's facts and the words."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.live.gate.channel import Channel, Peer
from headway.live.server.daemon import Daemon
from headway.live.watch.explain import explain
from headway.live.wire.pages import Pages
from headway.live.wire.protocol import COMPLETE, SUBMIT, Message
from headway.view.explaining import rough, sentences
from tests.pages import say

MS = 1_000_000
S = 1_000_000_000


class Stage:
    """A daemon that is not served, and channels whose programs are played by the test. Time counts
    from a full second, so that the window is easy to reckon with."""

    def __init__(self, folder: Path) -> None:
        self.daemon = Daemon(folder)
        self._ends: list[socket.socket] = []

    def add(
        self,
        name: str,
        level: int = 0,
        *,
        policy: str = "prt",
        reserve: ReserveSpec | None = None,
        background: bool = False,
    ) -> Channel:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel = Channel(len(self.daemon.channels), ours, Peer(1, 0, 0), 0)
        channel.name, channel.pages = name, Pages()
        engine = self.daemon.schedulers.first.engine
        if background:
            channel.task = engine.add_background_task(name, S)
        else:
            channel.task, _ = engine.add_task(
                name, S, policy=policy, priority=Fixed(level), reserve=reserve
            )
        self.daemon.schedulers.first.arbiter.add(channel)
        self.daemon.channels[channel.number] = channel
        self._ends.append(theirs)
        return channel

    def submit(self, channel: Channel, at_ms: float) -> None:
        self.daemon.schedulers.first.arbiter.heard(
            channel, Message(SUBMIT, channel.request.seq + 1), S + int(at_ms * MS)
        )

    def complete(self, channel: Channel, at_ms: float) -> None:
        self.daemon.schedulers.first.arbiter.heard(
            channel, Message(COMPLETE, channel.request.seq), S + int(at_ms * MS)
        )

    def tick(self, at_ms: float) -> None:
        self.daemon.schedulers.first.arbiter.tick(S + int(at_ms * MS))

    def lease(self, channel: Channel, *, busy: bool) -> None:
        """One ms of work, and then a lease."""
        self.submit(channel, 0)
        self.complete(channel, 1)
        assert channel.leased
        say(channel, "busy", busy)

    def facts(self, channel: Channel, at_ms: float) -> dict[str, Any]:
        (facts,) = explain(self.daemon, [channel], S + int(at_ms * MS))
        return facts

    def said(self, channel: Channel, at_ms: float) -> list[str]:
        return sentences(self.facts(channel, at_ms))

    def close(self) -> None:
        for channel in self.daemon.channels.values():
            channel.close()
        for end in self._ends:
            end.close()
        self.daemon.loop.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


# -- not waiting ---------------------------------------------------------------------------------


def test_who_wants_nothing_hears_whom_it_could_wait_for(stage: Stage) -> None:
    idle = stage.add("tool", 1)
    for number in range(5):
        stage.add(f"game{number}", 5 + number)
    stage.add("twin", 1)
    stage.add("low", 0)
    assert stage.said(idle, 100) == [
        "tool (priority 1) does not wait: it wants nothing of the GPU now. It could wait for game4"
        " (priority 9), game3 (priority 8), game2 (priority 7), 2 more that are more important and"
        " 1 program of the same priority.",
        "In the last 100 ms it never waited; it had 0 % of the GPU.",
    ]


def test_who_is_alone_hears_that_nobody_goes_before_it(stage: Stage) -> None:
    alone = stage.add("game", 9)
    stage.submit(alone, 50)
    assert stage.said(alone, 100) == [
        "game (priority 9) does not wait: it is on the GPU now. Nobody goes before it.",
        "In the last 100 ms it never waited; it had 50 % of the GPU.",
    ]


def test_who_has_a_lease_hears_so(stage: Stage) -> None:
    holder = stage.add("game", 9)
    stage.lease(holder, busy=True)
    assert stage.said(holder, 100)[0] == (
        "game (priority 9) does not wait: it has the GPU until somebody wants it who may go first"
        " (a lease), and passes without asking. Nobody goes before it."
    )


def test_who_has_a_budget_hears_what_is_left(stage: Stage) -> None:
    channel = stage.add("video", 3, reserve=ReserveSpec("pe", 5 * MS, 20 * MS))
    stage.submit(channel, 0)
    stage.complete(channel, 2)
    assert stage.said(channel, 10)[0] == (
        "video (priority 3) does not wait: it wants nothing of the GPU now. Nobody goes before it;"
        " 3 ms are left of its budget, 5ms every 20ms."
    )


# -- waiting -------------------------------------------------------------------------------------


def test_behind_somebody_more_important(stage: Stage) -> None:
    game, tool = stage.add("game", 9), stage.add("tool", 5)
    stage.submit(game, 90)
    stage.submit(tool, 95)
    assert stage.said(tool, 100) == [
        "tool (priority 5) has waited 5 ms: game (priority 9) has been on the GPU for 10 ms,"
        " and had it for 10 % of the last 100 ms; it is more important.",
        "In the last 100 ms it waited 5 ms in all: 100 % for game (priority 9) on the GPU;"
        " it had 0 % of the GPU.",
    ]


def test_behind_somebody_less_important_who_is_not_interrupted(stage: Stage) -> None:
    bomb, rival, game = stage.add("bomb", 1), stage.add("rival", 10), stage.add("game", 9)
    stage.submit(bomb, 80)
    stage.submit(rival, 90)
    stage.submit(game, 97)
    assert stage.said(game, 100)[0] == (
        "game (priority 9) has waited 3 ms: bomb (priority 1) has been on the GPU for 20 ms,"
        " and had it for 20 % of the last 100 ms; it is less important, but what runs is not"
        " interrupted; 1 other goes before it."
    )


def test_behind_an_equal_who_came_first(stage: Stage) -> None:
    one, two = stage.add("one", 3), stage.add("two", 3)
    stage.submit(one, 0)
    stage.submit(two, 1)
    assert "it is as important and came first" in stage.said(two, 2)[0]


def test_behind_a_lease_in_use(stage: Stage) -> None:
    game, tool = stage.add("game", 9), stage.add("tool", 5)
    stage.lease(game, busy=True)
    stage.submit(tool, 95)
    assert stage.said(tool, 96)[0].startswith(
        "tool (priority 5) has waited 1 ms: game (priority 9) is on the GPU under a lease that it"
        " goes on using, and had it for "
    )


def test_behind_a_lease_that_is_kept_for_the_hold_off(stage: Stage) -> None:
    game, tool = stage.add("game", 9), stage.add("tool", 5)
    stage.lease(game, busy=False)
    stage.submit(tool, 2)
    assert stage.said(tool, 2.5)[0].startswith(
        "tool (priority 5) has waited 500 us: game (priority 9) used the GPU just now and keeps its"
        " lease for a moment (hold-off), and had it for "
    )


def test_behind_a_lease_that_was_taken_back(stage: Stage) -> None:
    tool, game = stage.add("tool", 5), stage.add("game", 9)
    stage.lease(tool, busy=True)
    stage.submit(game, 10)
    assert tool.revoked
    said = stage.said(game, 11)[0]
    assert "tool (priority 5) is on the GPU, finishing what it began under a lease" in said
    assert "what runs is not interrupted" in said


def test_while_the_gpu_is_kept_free(stage: Stage) -> None:
    stage.daemon.schedulers.first.arbiter.bounds = type(
        stage.daemon.schedulers.first.arbiter.bounds
    )(leases=False)
    game, tool = stage.add("game", 9), stage.add("tool", 5)
    stage.submit(game, 0)
    stage.submit(tool, 0.5)
    stage.complete(game, 4)
    assert stage.said(tool, 5) == [
        "tool (priority 5) has waited 4.5 ms: the GPU is idle, but kept for a moment for game"
        " (priority 9), which is more important and used it last (hold-off); it may go in 1 ms.",
        "In the last 5 ms it waited 4.5 ms in all: 78 % for game (priority 9) on the GPU and 22 %"
        " while the GPU was kept for game (priority 9) (hold-off); it had 0 % of the GPU.",
    ]


def test_out_of_budget_with_debt(stage: Stage) -> None:
    channel = stage.add("bomb", 1, reserve=ReserveSpec("pe", 2_500_000, 25 * MS))
    stage.submit(channel, 0)
    stage.complete(channel, 8)  # 5.5 ms too much: the third replenishment brings it above zero
    stage.submit(channel, 8)
    assert stage.said(channel, 10) == [
        "bomb (priority 1) has waited 2 ms: its budget, 2.5ms every 25ms, is used up, with 5.5 ms"
        " of debt to be paid first; it may go in 65 ms.",
        "In the last 10 ms it waited 2 ms in all (half of its groups not at all, 99 % not at all,"
        " the longest 0): 100 % for its budget; it had 80 % of the GPU.",
        "The group is expected to take 8 ms, at most 8 ms (recent).",
    ]
    stage.tick(74.9)
    assert stage.facts(channel, 74.9)["state"] == "budget"
    stage.tick(75)  # as it was told
    assert stage.facts(channel, 75)["state"] == "running"


def test_out_of_budget_to_the_nanosecond(stage: Stage) -> None:
    channel = stage.add("bomb", 1, reserve=ReserveSpec("pe", 2 * MS, 20 * MS))
    stage.submit(channel, 0)
    stage.complete(channel, 2)
    stage.submit(channel, 3)
    assert "its budget, 2ms every 20ms, is used up; it may go in 15 ms" in stage.said(channel, 5)[0]


def test_a_budget_that_is_too_small_for_the_group(stage: Stage) -> None:
    spec = ReserveSpec("ae", 2 * MS, 20 * MS, predict="history")
    channel = stage.add("video", 1, reserve=spec)
    stage.submit(channel, 0)
    stage.complete(channel, 1.5)
    stage.submit(channel, 2)
    facts = stage.facts(channel, 5)
    assert facts["reserve"]["predicted_ns"] == 1_500_000
    assert sentences(facts)[0] == (
        "video (priority 1) has waited 3 ms: its budget, 2ms every 20ms, has 500 us left, and the"
        " group is predicted to take 1.5 ms; it may go in 15 ms."
    )


def test_a_pool_that_is_used_up(stage: Stage) -> None:
    spec = ReserveSpec("pe", 2 * MS, 20 * MS, shared="bombs")
    one, two = stage.add("one", 1, reserve=spec), stage.add("two", 1, reserve=spec)
    stage.submit(one, 0)
    stage.complete(one, 2)
    stage.submit(two, 3)
    assert stage.said(two, 5)[0] == (
        "two (priority 1) has waited 2 ms: the budget of its pool @bombs (2 members), 2ms every"
        " 20ms, is used up; it may go in 15 ms."
    )


def test_background(stage: Stage) -> None:
    channel = stage.add("stranger", background=True)
    channel.note = "no entry of the spec matches it: Background"
    stage.submit(channel, 0)
    stage.complete(channel, 3)
    stage.submit(channel, 3)
    said = stage.said(channel, 5)
    assert said[0] == (
        "stranger (Background, the lowest priority) has waited 2 ms: the budget of all Background"
        " programs together, 2.5ms every 25ms, is used up, with 500 us of debt to be paid first;"
        " it may go in 20 ms."
    )
    assert said[2] == "Note: no entry of the spec matches it: Background."
    other = stage.add("game", 1)
    assert "for stranger (Background) on the GPU" not in stage.said(other, 5)[1]


def test_behind_ones_own_group(stage: Stage) -> None:
    facts = stage.facts(stage.add("game", 9), 10)
    facts |= {"why": {"kind": "own", "ahead": 0}, "waiting_ns": 2 * MS}
    assert sentences(facts)[0] == (
        "game (priority 9) has waited 2 ms: its own group before this one is still on the GPU."
    )


def test_a_policy_that_waits_for_its_tick(stage: Stage) -> None:
    one, two = stage.add("one", policy="germ"), stage.add("two", policy="germ")
    stage.submit(one, 0.1)
    stage.submit(two, 0.2)
    waiting = two if two.task is not None and two.task.waiting is not None else one
    assert "its policy germ does not let it go yet" in stage.said(waiting, 0.3)[0]


def test_inherited_priority_is_told(stage: Stage) -> None:
    facts = stage.facts(stage.add("server", 1), 10) | {"effective": 9}
    assert sentences(facts)[0].startswith(
        "server (priority 9 for a client, its own is 1) does not wait"
    )


def test_what_was_waited_for_is_told_from_the_most_to_the_least(stage: Stage) -> None:
    facts = stage.facts(stage.add("tool", 1), 10)
    gone = {"priority": None, "share": None}
    facts |= {
        "waited_ns": 1000 * MS,
        "span_ns": 5 * S,
        "causes": [
            {"kind": "gpu", "task": "gone", "ns": 500 * MS, **gone},
            {"kind": "others", "task": "", "ns": 300 * MS, **gone},
            {"kind": "own", "task": "tool", "ns": 100 * MS, **gone},
            {"kind": "free", "task": "", "ns": 99 * MS, **gone},
            {"kind": "budget", "task": "", "ns": 1 * MS, **gone},
        ],
    }
    assert sentences(facts)[1] == (
        "In the last 5 s it waited 1 s in all: 50 % for gone on the GPU, 30 % for others in quick"
        " succession, 10 % for its own group before and 10 % for something else; it had 0 % of the"
        " GPU."
    )


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0"), (7, "7 ns"), (1234, "1.23 us"), (99_949_999, "99.9 ms"), (99_960_000, "100 ms"),
     (999_999, "1000 us"), (5_213_000_000, "5.21 s"), (3_600_000_000_000, "3600 s")],
)  # fmt: skip
def test_durations_have_about_three_digits(ns: int, text: str) -> None:
    assert rough(ns) == text


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        (0.0, "; it has the GPU for itself meanwhile."),
        (0.5, "; less important programs may run beside it for 50 % of that."),
        (1.0, "; less important programs may run beside it."),
    ],
)
def test_how_busy_the_gpu_is_in_its_jobs_and_who_may_be_there(
    stage: Stage, beside: float, said: str
) -> None:
    channel = stage.add("detector")
    assert channel.task is not None
    assert not any("jobs wait" in line for line in stage.said(channel, 0))
    for _ in range(4):
        channel.jobs.usage.alone(100 * MS, 14 * MS, 10)
    channel.task.corun = beside
    line = f"Its jobs wait for the GPU for 14 % of their time{said}"
    assert line in stage.said(channel, 0)
