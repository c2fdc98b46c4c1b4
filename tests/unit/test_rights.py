"""Who may do what on a daemon that several users share."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from fractions import Fraction

import pytest

from headway.engine.core import Engine
from headway.engine.events import Observer
from headway.engine.model import Group, Task
from headway.engine.policies import policies
from headway.engine.priorities import Fixed
from headway.engine.reserves import ReserveSpec
from headway.engine.spec import Spec, parse_spec
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.options import TaskOptions, parse_reserve
from headway.live.identity.registry import Registry
from headway.live.identity.rights import Allow, Rights
from headway.live.wire.protocol import Hello
from tests.bench.gate import MS, GateBench

ME = os.geteuid()
OWNER = Peer(10, ME, ME)
ANN, BOB = Peer(11, ME + 1001, ME + 1001), Peer(12, ME + 1002, ME + 1002)
USERS = f"[allow]\nuids = [{ANN.uid}, {BOB.uid}]\n"


def rights(more: str = "") -> Rights:
    return Rights(parse_spec(USERS + more))


# -- connections -----------------------------------------------------------------------------------


def test_other_users_are_served_only_if_the_owner_named_them() -> None:
    stranger, member = Peer(1, ME + 7, ME + 7), Peer(1, ME + 8, 777)
    allow = Allow(uids=frozenset({ANN.uid}), gids=frozenset({777}), channels=2)
    rights = Rights(Spec(), allow)
    assert not rights.arrive(stranger)
    assert [rights.arrive(member) for _ in range(3)] == [True, True, False]
    rights.leave(member)
    assert rights.arrive(member)
    assert rights.may_manage(OWNER, ANN.uid)
    assert rights.may_manage(ANN, ANN.uid)
    assert not rights.may_manage(ANN, BOB.uid)
    assert rights.may_rule(OWNER)
    assert not rights.may_rule(ANN)


def test_greedy_users_leave_room_for_whoever_comes_last() -> None:
    shared = rights()
    shared.room = 90
    assert sum(shared.arrive(ANN) for _ in range(100)) == 45, "no more than are still free"
    assert sum(shared.arrive(BOB) for _ in range(100)) == 23
    assert sum(shared.arrive(OWNER) for _ in range(20)) == 20, "the owner asks nobody"
    for _ in range(45):
        shared.leave(ANN)
    assert sum(shared.arrive(BOB) for _ in range(100)) > 0


# -- priorities and policies -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "overlap"])
def test_a_policy_that_passes_others_needs_a_right(policy: str) -> None:
    chosen = TaskOptions(policy=policy, priority=Fixed(0))
    allowed, problem = rights().within(ANN, chosen)
    assert allowed.policy is None
    assert policy in problem
    assert rights().within(OWNER, chosen) == (chosen, "")
    assert rights(f'policies = ["{policy}"]\n').within(ANN, chosen) == (chosen, "")


def test_a_priority_is_bounded_by_the_spec() -> None:
    within, beyond = TaskOptions(priority=Fixed(5)), TaskOptions(priority=Fixed(6))
    shared = rights("priority = 5\n")
    assert shared.within(ANN, within) == (within, "")
    allowed, problem = shared.within(ANN, beyond)
    assert allowed.priority is None
    assert problem == "its user may not go above priority 5"
    assert shared.within(OWNER, TaskOptions(priority=Fixed(1000)))[1] == ""


class _Promise(Observer):
    """Notes tasks that went past a more important one, as `keeps_rank` says they never do."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.broken: set[str] = set()

    def dispatched(self, group: Group, now_ns: int) -> None:
        assert self.engine is not None
        for other in self.engine.ready():
            lets = other.task.policy.name in ("prt", "ht") or len(group.gpu.online) > 1
            if other.task.rank < group.task.rank and lets:
                self.broken.add(group.task.policy.name)


def test_policies_keep_what_they_promise() -> None:
    """All of Headway's own policies at once, at random: those that promise it never pass a more
    important group, and the others do."""
    ours = {n: p for n, p in policies().items() if p.__module__.startswith("headway.")}
    watcher = _Promise()
    for seed in range(60):
        rng = random.Random(seed)
        engine = watcher.engine = Engine(observers=[watcher])
        tasks = []
        for i in range(8):
            policy = rng.choice(sorted(ours))
            task, _ = engine.add_task(str(i), 0, policy=policy, priority=Fixed(i // 2))
            tasks.append(task)
        _run_at_random(engine, tasks, rng)
    keeping = {name for name, policy in ours.items() if policy.keeps_rank}
    assert keeping == {"prt", "ht", "germ"}
    assert not watcher.broken & keeping
    assert watcher.broken == set(ours) - keeping


def _run_at_random(engine: Engine, tasks: list[Task], rng: random.Random) -> None:
    (gpu,) = engine.gpus
    for step in range(1, 300):
        now_ns = step * MS // 2
        if gpu.online and rng.random() < 0.4:
            engine.complete(gpu.online[0], now_ns, now_ns)
        task = rng.choice(tasks)
        if task.waiting is None:
            engine.submit(Group(task, step), now_ns)
        while engine.dispatch(now_ns) is not None:
            pass


def test_processes_stand_in_the_queue_and_users_whom_the_spec_names() -> None:
    assert rights().parties_of(OWNER) == (f"process {OWNER.pid}",)
    assert rights().parties_of(ANN) == (f"user {ANN.uid}", f"process {ANN.pid}")


# -- reserves --------------------------------------------------------------------------------------


class Shared(GateBench):
    """A bench with a registry."""

    def __init__(self, spec: str = USERS) -> None:
        super().__init__()
        self.registry = Registry(lambda _: self.engine, lambda: [self.engine], parse_spec(spec))
        self.engine.limit = self.registry.spec.settings.limit

    def join(self, peer: Peer, name: str, **chosen: object) -> Channel:
        """A program of this user, started with these options."""
        channel = self.channel("", peer=peer)
        assert channel.task is not None
        self.engine.remove_task(channel.task, 0)
        made = TaskOptions(name=name, uid=peer.uid, **chosen)  # type: ignore[arg-type]
        token = self.registry.launches.expect(made)
        channel.task = self.registry.enrol(channel, Hello(name, token), 0)
        return channel


@pytest.fixture
def shared() -> Iterator[Shared]:
    bench = Shared()
    yield bench
    bench.close()


def reserve(text: str, shared: str | None = None) -> ReserveSpec:
    return parse_reserve(text, shared)


def name_of_reserve(channel: Channel) -> str | None:
    assert channel.task is not None
    return None if channel.task.reserve is None else channel.task.reserve.name


def test_a_pool_of_one_user_is_not_the_pool_of_another(shared: Shared) -> None:
    own = shared.join(OWNER, "own", reserve=reserve("5ms/20ms", "video"))
    ann = shared.join(ANN, "ann", reserve=reserve("1ms/20ms", "video"))
    bob = shared.join(BOB, "bob", reserve=reserve("2ms/20ms", "video"))
    again = shared.join(ANN, "again", reserve=reserve("1ms/20ms", "video"))
    assert name_of_reserve(own) == "@video"
    assert name_of_reserve(ann) == name_of_reserve(again) == f"@{ANN.uid}/video"
    assert name_of_reserve(bob) == f"@{BOB.uid}/video"
    assert shared.registry.change_reserve(ann, reserve("0.1ms/20ms", "video"), ANN.uid, 0) == ""
    assert own.task is not None
    assert own.task.reserve is not None
    assert own.task.reserve.capacity_ns == 5 * MS, "only the pool of whoever asked has shrunk"


def test_the_reserve_of_a_program_cannot_be_joined_by_its_name(shared: Shared) -> None:
    own = shared.join(OWNER, "game", reserve=reserve("5ms/20ms"))
    wanted = f"game.{OWNER.pid}"
    assert name_of_reserve(own) == f"@{wanted}"
    thief = shared.join(ANN, "thief", reserve=reserve("0.1ms/20ms", wanted))
    assert name_of_reserve(thief) != name_of_reserve(own)
    ann = shared.join(ANN, "tool", reserve=reserve("5ms/20ms"))
    named = f"{ANN.uid}/tool.{ANN.pid}"
    assert name_of_reserve(ann) == f"@{named}"
    bob = shared.join(BOB, "thief", reserve=reserve("0.1ms/20ms", named))
    assert name_of_reserve(bob) == f"@{BOB.uid}/{named}"


POOL = """pools = ["video"]
[[task]]
name = "player"
reserve = { capacity = "5ms", period = "20ms", shared = "video" }
"""


def test_a_pool_that_the_spec_opens_may_be_joined_but_not_changed() -> None:
    bench = Shared(USERS + POOL)
    ann = bench.join(ANN, "ann", reserve=reserve("0.1ms/20ms", "video"))
    assert name_of_reserve(ann) == "@video"
    assert ann.task is not None
    assert ann.task.reserve is not None
    assert ann.task.reserve.capacity_ns == 5 * MS, "the numbers are those of the spec"
    assert bench.registry.change_reserve(ann, reserve("0.1ms/20ms", "video"), ANN.uid, 0) == ""
    assert ann.task.reserve.capacity_ns == 5 * MS
    own = bench.join(OWNER, "own", reserve=reserve("4ms/20ms", "video"))
    assert own.task is not None
    assert own.task.reserve is ann.task.reserve
    assert bench.registry.change_reserve(own, reserve("4ms/20ms", "video"), ME, 0) == ""
    assert ann.task.reserve.capacity_ns == 4 * MS
    bench.close()


def test_without_that_right_an_entry_gives_every_user_a_pool_of_their_own() -> None:
    bench = Shared(USERS + POOL.replace('pools = ["video"]', ""))
    own, ann = bench.join(OWNER, "player"), bench.join(ANN, "player")
    assert name_of_reserve(own) == "@video"
    assert name_of_reserve(ann) == f"@{ANN.uid}/video"
    bench.close()


def test_a_user_has_so_many_reserves_and_no_more() -> None:
    bench = Shared(USERS + "reserves = 2\n")
    made = [bench.join(ANN, f"p{i}", reserve=reserve("1ms/20ms", f"x{i}")) for i in range(3)]
    assert name_of_reserve(made[1]) == f"@{ANN.uid}/x1"
    assert name_of_reserve(made[2]) == "@background"
    assert "has 2 reserves, and may have 2" in made[2].note
    bob = bench.join(BOB, "bob", reserve=reserve("1ms/20ms"))
    assert name_of_reserve(bob) == f"@{BOB.uid}/bob.{BOB.pid}"
    bench.close()


def test_one_user_cannot_reserve_what_others_need() -> None:
    bench = Shared(USERS + "[admission]\nlimit = 80\n")
    ann = bench.join(ANN, "ann", reserve=reserve("8ms/20ms"))
    assert name_of_reserve(ann) == f"@{ANN.uid}/ann.{ANN.pid}"
    more = bench.join(ANN, "more", reserve=reserve("1ms/20ms"))
    assert "45 % of the GPU reserved, and may have 40 %" in more.note
    assert name_of_reserve(more) == "@background"
    why = bench.registry.change_reserve(ann, reserve("12ms/20ms"), ANN.uid, 0)
    assert "60 % of the GPU reserved, and may have 40 %" in why
    assert bench.registry.change_reserve(ann, reserve("12ms/20ms"), ME, 0) == "", "the owner may"
    bench.close()


def test_a_limit_of_the_spec_holds_without_admission_control() -> None:
    bench = Shared(USERS + "limit = 12.5\n")
    assert bench.registry.rights.allow.limit == Fraction(1, 8)
    ann = bench.join(ANN, "ann", reserve=reserve("5ms/20ms"))
    assert name_of_reserve(ann) == "@background"
    bench.close()


def test_an_entry_of_the_spec_gives_others_no_more_than_they_may_have() -> None:
    entry = '[[task]]\nname = "game"\npolicy = "fifo"\npriority = 9\n'
    bench = Shared(USERS + "priority = 3\n" + entry)
    own, ann = bench.join(OWNER, "game"), bench.join(ANN, "game")
    assert own.task is not None
    assert (own.task.policy.name, own.task.priority) == ("fifo", 9)
    assert ann.task is not None
    assert (ann.task.policy.name, ann.task.priority) == ("prt", 0)
    assert "may not go above priority 3" in ann.note
    assert "may not use the policy fifo" in ann.note
    bench.close()


def test_names_that_look_like_those_of_others_keep_nobody_out(shared: Shared) -> None:
    first = shared.join(OWNER, "game")
    shared.join(ANN, f"game.{OWNER.pid}.1.2")
    for _ in range(4):
        shared.join(OWNER, "game")
    assert first.task is not None
    assert len(shared.engine.tasks) == 6
