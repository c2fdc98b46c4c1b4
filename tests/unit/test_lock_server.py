"""The lock server in virtual time: requests of programs, deaths, and budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headway.engine.locks.budgets import BudgetSettings
from headway.engine.locks.clusters import Clusters
from headway.engine.locks.jobs import LockError
from headway.engine.locks.system import LockSystem
from headway.live.devices import lock_tasks
from headway.live.devices.lock_server import LockServer
from headway.live.gate.channel import Peer

MS = 1_000_000


class Program:
    """One connection: what the server told it without being asked."""

    def __init__(self, pid: int = 1, uid: int = 0) -> None:
        self.peer = Peer(pid, uid, 0)
        self.keeps = False
        self.told: list[dict[str, Any]] = []


class Server:
    """A lock server, and a clock that the test moves."""

    def __init__(self, system: LockSystem) -> None:
        self.now_ns = 0
        self.processes: dict[int, Callable[[], None]] = {}
        """What is done at the end of each process that something lasts as long as."""
        self.locks = LockServer(
            system,
            lambda caller, words: caller.told.append(words),  # type: ignore[attr-defined]
            self.outlive,
        )

    def outlive(self, pid: int, then: Callable[[], None]) -> Callable[[], None]:
        self.processes[pid] = then
        return lambda: self.processes.pop(pid, None) and None

    def ask(self, program: Program, act: str, **more: Any) -> dict[str, Any]:
        request = {"do": "lock", "act": act, **more}
        return self.locks.handle(request, program, self.now_ns)  # type: ignore[arg-type]

    def at(self, ns: int) -> None:
        """The clock, with everything that is due until then."""
        while (due_ns := self.locks.due_ns()) is not None and due_ns <= ns:
            self.now_ns = due_ns
            self.locks.tick(due_ns)
        self.now_ns = ns

    def dies(self, program: Program) -> None:
        self.locks.gone(program)  # type: ignore[arg-type]

    def look(self, cluster: int = 0) -> dict[str, Any]:
        return self.locks.describe()[cluster]


def machine(policy: str = "none", **more: Any) -> LockSystem:
    settings: dict[str, Any] = {"rho": 1, "unit_order": "priority", **more}
    drain = "bwi" if policy == "bwi" else "cpu+gpu"
    return LockSystem(Clusters(2, 2, 1, 1), budgets=BudgetSettings(policy, drain), **settings)


def holders(server: Server) -> list[str]:
    return [queue[0] if queue else "" for queue in server.look()["queues"]]


def test_within_a_level_whoever_is_due_first_goes_first() -> None:
    server = Server(machine(allocator="priority"))
    first, *others = (Program(pid) for pid in range(5))
    server.ask(first, "token", name="first")
    server.ask(others[0], "token", name="late", period_ns=50 * MS)
    server.ask(others[1], "token", name="soon", period_ns=10 * MS)
    server.ask(others[2], "token", name="none")
    server.ask(others[3], "token", name="level", priority=1)
    order = []
    for _ in range(4):
        server.ask(first, "release")
        (first,) = [program for program in others if program.told]
        others.remove(first)
        order.append(holders(server)[0].split(".")[0])
    assert order == ["level", "soon", "late", "none"]


def test_early_release_postpones_the_deadline_of_who_used_its_budget() -> None:
    """The budget of 4 ms drains while the job owns units; its deadline of 20 ms is 40 ms from then
    on, so that somebody due at 30 ms goes first at the unit."""
    server = Server(machine("early", rho=3))
    slow, other, third = Program(1), Program(2), Program(3)
    server.ask(slow, "token", name="slow", period_ns=20 * MS, budget_ns=4 * MS)
    server.ask(other, "token", name="other", period_ns=30 * MS)
    server.ask(third, "token", name="third")
    server.ask(slow, "unit", unit="compute")
    server.at(2 * MS)
    server.ask(slow, "give back")
    server.at(9 * MS)  # nothing drains while the job owns nothing
    server.ask(third, "unit", unit="compute")
    assert server.ask(slow, "unit", unit="compute") == {"wait": True}
    assert server.ask(other, "unit", unit="compute") == {"wait": True}
    server.ask(third, "give back")
    assert slow.told[-1]["granted"]  # due at 20 ms, the other at 30
    server.at(12 * MS)  # 2 ms + 3 ms: beyond its budget since 11
    server.ask(slow, "give back")
    server.ask(other, "give back")
    server.ask(third, "unit", unit="compute")
    slow.told.clear()
    server.ask(slow, "unit", unit="compute")
    server.ask(other, "unit", unit="compute")
    server.ask(third, "give back")
    assert not slow.told
    # The next job is released at 40 ms, however soon it asks: its deadline is 60.
    server.ask(other, "give back")
    server.ask(slow, "give back")
    server.ask(slow, "release")
    server.ask(slow, "token", name="slow", period_ns=20 * MS, budget_ns=4 * MS)
    (job,) = [job for job in server.locks._by_job if str(job.name).startswith("slow")]
    assert job.base[0] % 2**64 == 2**64 - 60 * MS


def test_who_overran_under_bandwidth_inheritance_makes_room_in_its_queue() -> None:
    """One token, queues of two: the holder overruns, and the one from the overflow comes in."""
    server = Server(machine("bwi"))
    programs = [Program(pid) for pid in range(4)]
    for number, program in enumerate(programs):
        budget_ms = 30 if number else 3
        terms = {"period_ns": (number + 1) * 10 * MS, "budget_ns": budget_ms * MS}
        server.ask(program, "token", name=f"t{number}", **terms)
    assert [len(queue) for queue in server.look()["queues"]] == [2]
    server.at(3 * MS)
    assert server.look()["unlocked"] == ["t0.0"]
    assert [len(queue) for queue in server.look()["queues"]] == [3]
    server.ask(programs[0], "release")
    assert programs[1].told[-1]["granted"]


def test_only_the_most_important_pay_under_bandwidth_inheritance() -> None:
    server = Server(machine("bwi"))
    programs = [Program(pid) for pid in range(3)]
    for number, program in enumerate(programs):
        server.ask(
            program, "token", name=f"t{number}", period_ns=(number + 1) * 10 * MS, budget_ns=20 * MS
        )
    server.at(MS)
    terms = list(server.locks._policing._terms.values())
    assert [t.budget is not None and t.budget.drains for t in terms] == [True, True, False]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"budget_ns": 5 * MS}, "expected period= beside budget="),
        ({"budget_ns": 5, "period_ns": MS}, "expected at least 100000 ns"),
        ({"budget_ns": -1, "period_ns": MS}, "budget: found -1 ns"),
        ({"period_ns": "1ms"}, "period: found '1ms' ns"),
        ({"period_ns": 10**30}, "period: found"),
        ({"priority": 1.5}, "priority: found 1.5"),
        ({"priority": 2**40}, "priority: found"),
        ({"cluster": -1}, "cluster: found -1"),
        ({"cluster": True}, "cluster: found True"),
        ({"name": "a\nb"}, "name: expected printable text"),
        ({"name": 7}, "name: expected printable text"),
    ],
)
def test_a_token_on_impossible_terms_is_refused_and_nothing_is_held(
    words: dict[str, Any], problem: str
) -> None:
    server = Server(machine("early"))
    program = Program()
    with pytest.raises(LockError, match=problem):
        server.ask(program, "token", **words)
    assert server.look()["queues"] == [[]]
    assert not program.keeps
    server.ask(program, "token")


@pytest.mark.parametrize(
    ("act", "words", "problem"),
    [
        ("release", {}, "has or waits for units"),
        ("unit", {"unit": "h2d"}, "but owns ee"),
        ("unit", {"unit": "ce0"}, "expected one of compute"),
        ("token", {}, "a second token"),
        ("unit", {"unit": "peer", "home": 0}, "expected a GPU of"),
        ("unit", {"unit": "peer", "home": "1"}, "expected a GPU of"),
        ("unit", {"unit": "peer", "home": 7}, "expected a GPU of"),
        ("unit", {}, "unit: found None"),
        ("take all", {}, "act: found 'take all'"),
    ],
)
def test_calls_out_of_order_change_nothing(act: str, words: dict[str, Any], problem: str) -> None:
    server = Server(replace(machine(), clusters=Clusters(2, 2, 2, 2)))
    program = Program()
    server.ask(program, "token")
    server.ask(program, "unit", unit="compute")
    before = server.look()
    with pytest.raises(LockError, match=problem):
        server.ask(program, act, **words)
    assert server.look() == before
    server.ask(program, "give back")
    with pytest.raises(LockError, match="owns none"):
        server.ask(program, "give back")
    server.ask(program, "release")
    with pytest.raises(LockError, match="without a token"):
        server.ask(program, "release")


def test_a_name_in_two_clusters_is_two_tasks() -> None:
    server = Server(LockSystem(Clusters(2, 2, 4, 2), rho=1))
    program = Program()
    assert server.ask(program, "token", name="t", cluster=0)["home"] is None
    server.ask(program, "release")
    assert server.ask(program, "token", name="t", cluster=1)["home"] is None
    server.ask(program, "release")
    assert server.ask(program, "token", name="t", cluster=1)["home"] in (2, 3)


def test_many_names_push_out_those_of_their_own_user_and_none_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lock_tasks, "MAX_TASKS", 5)
    server = Server(LockSystem(Clusters(2, 2, 1, 1), rho=2))
    quiet, holder, flood = Program(1, uid=1), Program(2, uid=2), Program(3, uid=2)
    server.ask(quiet, "token", name="quiet")
    server.ask(quiet, "release")
    server.ask(holder, "token", name="held")
    for number in range(20):
        server.ask(flood, "token", name=f"n{number}")
        server.ask(flood, "release")
    server.ask(holder, "release")
    assert server.ask(quiet, "token", name="quiet")["home"] == 0
    assert server.ask(holder, "token", name="held")["home"] == 0


# -- places of programs ----------------------------------------------------------------------


def test_a_kept_token_lasts_as_long_as_the_process_and_units_come_by_another_connection() -> None:
    server = Server(machine())
    launcher, shim, other = Program(7), Program(8), Program(9)
    server.ask(launcher, "token", name="program")
    key = server.ask(launcher, "keep")["place"]
    server.dies(launcher)
    assert holders(server) == ["program.7"]
    assert server.locks.busy
    assert server.ask(shim, "attach", place=key) == {"device": 0, "chunk": 2 << 20}
    server.ask(shim, "unit", unit="compute")
    assert server.look()["units"] == {"ee of device 0": "program.7"}
    with pytest.raises(LockError, match="another process"):
        server.ask(other, "attach", place=key)
    server.dies(shim)
    assert server.look()["units"] == {}
    assert holders(server) == ["program.7"]
    server.ask(other, "attach", place=key)
    server.ask(other, "unit", unit="h2d")
    server.processes[7]()
    assert server.look()["queues"] == [[]]
    assert server.look()["units"] == {}
    assert not server.locks.busy
    with pytest.raises(LockError, match="without a token"):
        server.ask(other, "unit", unit="h2d")


def test_a_process_that_became_another_program_has_lost_what_the_first_one_owned() -> None:
    server = Server(machine())
    launcher, first, second = Program(7), Program(7), Program(7)
    server.ask(launcher, "token")
    key = server.ask(launcher, "keep")["place"]
    server.ask(first, "attach", place=key)
    server.ask(first, "unit", unit="compute")
    server.ask(second, "attach", place=key)
    assert server.look()["units"] == {}
    server.dies(first)
    server.ask(second, "unit", unit="compute")
    assert len(server.look()["units"]) == 1


def test_who_waits_for_a_unit_and_dies_leaves_the_place() -> None:
    server = Server(machine(rho=2))
    launcher, shim, other = Program(7), Program(8), Program(9)
    server.ask(launcher, "token")
    key = server.ask(launcher, "keep")["place"]
    server.ask(shim, "attach", place=key)
    server.ask(other, "token")
    server.ask(other, "unit", unit="compute")
    assert server.ask(shim, "unit", unit="compute") == {"wait": True}
    server.dies(shim)
    server.ask(other, "give back")
    assert server.look()["units"] == {}
    assert [len(queue) for queue in server.look()["queues"]] == [1, 1]


@pytest.mark.parametrize(
    ("act", "words", "problem"),
    [
        ("keep", {}, "kept already"),
        ("release", {}, "at the program's end"),
        ("withdraw", {}, "at the program's end"),
        ("attach", {}, "has a token of its own"),
    ],
)
def test_calls_that_places_forbid_change_nothing(
    act: str, words: dict[str, Any], problem: str
) -> None:
    server = Server(machine())
    launcher, waiter, stranger = Program(7), Program(8), Program(9, uid=1)
    server.ask(launcher, "token")
    key = server.ask(launcher, "keep")["place"]
    server.ask(waiter, "token")
    before = server.look()
    with pytest.raises(LockError, match=problem):
        server.ask(launcher, act, **words)
    with pytest.raises(LockError, match="wait for it"):
        server.ask(waiter, "keep")
    for place in (key, "0" * 32, None, 7):
        with pytest.raises(LockError, match="no such place"):
            server.ask(stranger, "attach", place=place)
    assert server.look() == before


def test_any_cluster_is_the_one_with_the_fewest_jobs_for_each_token() -> None:
    server = Server(LockSystem(Clusters(2, 1, 2, 1), rho=2))
    programs = [Program(pid) for pid in range(3)]
    devices = [server.ask(program, "token", cluster="any")["device"] for program in programs]
    assert devices == [0, 1, 0]


# -- deaths at any point ---------------------------------------------------------------------

PROGRAMS = 7


class Machine(RuleBasedStateMachine):
    """Programs ask, give back, give up and die in any order; nothing is lost or doubled."""

    @initialize(
        policy=st.sampled_from(["none", "early", "bwi"]),
        allocator=st.sampled_from(["r2dglp-wc", "kfmlp", "priority"]),
        order=st.sampled_from(["fifo", "priority"]),
        rho=st.integers(1, 2),
        affinity=st.booleans(),
    )
    def begin(self, policy: str, allocator: str, order: str, rho: int, affinity: bool) -> None:
        more = {"allocator": allocator, "unit_order": order, "rho": rho, "affinity": affinity}
        system = machine(policy, **more)
        self.server = Server(replace(system, clusters=Clusters(2, 2, 2, 2)))
        self.programs = [Program(pid) for pid in range(PROGRAMS)]
        self.state = ["out"] * PROGRAMS
        self.peers: dict[int, int] = {}

    def _hear(self) -> None:
        for number, program in enumerate(self.programs):
            for words in program.told:
                assert words["granted"]
                assert self.state[number].startswith("wait"), "granted without asking"
                self.state[number] = "token" if self.state[number] == "wait token" else "unit"
            program.told.clear()

    @rule(number=st.integers(0, PROGRAMS - 1), period=st.integers(1, 5), level=st.integers(0, 1))
    def goes_on(self, number: int, period: int, level: int) -> None:
        program, state = self.programs[number], self.state[number]
        if state == "out":
            terms = {"period_ns": period * MS, "budget_ns": MS, "priority": level}
            answer = self.server.ask(program, "token", name="t", **terms)
            self.state[number] = "wait token" if answer.get("wait") else "token"
        elif state == "token":
            unit = ["compute", "h2d", "d2h"][period % 3]
            answer = self.server.ask(program, "unit", unit=unit)
            self.state[number] = "wait unit" if answer.get("wait") else "unit"
        elif state == "unit":
            self.server.ask(program, "give back")
            self.state[number] = "token"
        self._hear()

    @rule(number=st.integers(0, PROGRAMS - 1))
    def moves_state(self, number: int) -> None:
        if self.state[number] == "token":
            queues = self.server.look()["queues"]
            (token,) = [i for i, queue in enumerate(queues) if queue[:1] == [f"t.{number}"]]
            here = token % 2
            answer = self.server.ask(self.programs[number], "unit", unit="peer", home=1 - here)
            self.state[number] = "wait unit" if answer.get("wait") else "unit"
            self._hear()

    @rule(number=st.integers(0, PROGRAMS - 1))
    def releases(self, number: int) -> None:
        if self.state[number] == "token":
            self.server.ask(self.programs[number], "release")
            self.state[number] = "out"
            self._hear()

    @rule(number=st.integers(0, PROGRAMS - 1))
    def gives_up(self, number: int) -> None:
        if self.state[number].startswith("wait"):
            self.server.ask(self.programs[number], "withdraw")
            self.state[number] = "token" if self.state[number] == "wait unit" else "out"
            self._hear()

    @rule(number=st.integers(0, PROGRAMS - 1))
    def dies(self, number: int) -> None:
        self.server.dies(self.programs[number])
        self.state[number] = "out"
        self._hear()

    @rule(ms=st.integers(1, 3))
    def time_passes(self, ms: int) -> None:
        self.server.at(self.server.now_ns + ms * MS)
        self._hear()

    @invariant()
    def what_programs_were_told_is_what_the_locks_say(self) -> None:
        found = self.server.look()
        for number, state in enumerate(self.state):
            name = f"t.{number}"
            places = [queue.index(name) for queue in found["queues"] if name in queue]
            waits = name in found["waiting"]
            if state == "out":
                assert not places
                assert not waits
            elif state == "wait token":
                assert waits or places > [0]
            else:
                assert places == [0]
            assert (name in found["units"].values()) or state != "unit"
        held = sum(bool(queue) for queue in found["queues"])
        assert held == sum(state not in ("out", "wait token") for state in self.state)
        if (
            any(state == "wait token" for state in self.state)
            and not self.server.locks.system.affinity
        ):
            assert held == len(found["queues"])

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        for program in self.programs:
            self.server.dies(program)
        found = self.server.look()
        assert not any(found["queues"])
        assert found["waiting"] == []
        assert found["units"] == {}
        assert self.server.locks.due_ns() is None


TestDeaths = Machine.TestCase
TestDeaths.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
