"""The checker: silent on what the engine does, loud on every way of doing it wrong."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import (
    Completed,
    Dispatched,
    Ended,
    Entered,
    Event,
    Joined,
    Left,
    Moved,
    Ranked,
    Recorder,
    Replenished,
    ReserveSet,
    Submitted,
    TaskAdded,
)
from headway.engine.inheritance import Request
from headway.engine.model import Group, Task
from headway.engine.priorities import Automatic, EarliestDeadline, Fixed, PriorityRule
from headway.engine.reserves import Reserve, ReserveSpec
from headway.trace.checker import KEPT, RULES, Checker, Violation, check, describe_rules

MS = 1_000_000
NEVER = 1 << 62


def pe(capacity_ms: int, period_ms: int, shared: str | None = None) -> ReserveSpec:
    return ReserveSpec("pe", capacity_ms * MS, period_ms * MS, shared)


def ae(capacity_ms: int, period_ms: int, shared: str | None = None) -> ReserveSpec:
    return ReserveSpec("ae", capacity_ms * MS, period_ms * MS, shared)


class Drive:
    """Drives an engine in the order of the contract and keeps what it tells. Times are in ms."""

    def __init__(
        self, *, gpus: int = 1, switch_ms: int = 0, limit: int = 1, late_ns: int = 0
    ) -> None:
        self.events: list[Event] = []
        recorder = Recorder(self.events.append)
        self.engine = Engine(gpus=gpus, limit=Fraction(limit), observers=[recorder])
        self.requests: list[Request] = []
        self.plan = [f"Drive(gpus={gpus}, switch_ms={switch_ms}, late_ns={late_ns})"]
        self._switch_ns = switch_ms * MS
        self._late_ns = late_ns
        """By how much timers go off too late, as they do outside simulations."""
        self._free_ns = [0] * gpus
        self._script: list[tuple[int, bool, int, Callable[[int], None]]] = []
        self._backlog: dict[str, deque[int]] = {}
        self._indices: Counter[Task] = Counter()

    def task(
        self,
        name: str,
        priority: int | PriorityRule = 0,
        policy: str = "prt",
        reserve: ReserveSpec | None = None,
        pix: bool = False,
        rix: bool = False,
    ) -> Task:
        rule = Fixed(priority) if isinstance(priority, int) else priority
        task, _ = self.engine.add_task(
            name,
            self.engine.now_ns,
            policy=policy,
            priority=rule,
            reserve=reserve,
            pix=pix,
            rix=rix,
        )
        return task

    def at(self, ms: int, do: Callable[[int], Any], *, early: bool = False) -> None:
        """Do something at an instant: among the submissions, or `early`, before replenishments."""
        heappush(self._script, (ms * MS, not early, len(self._script), do))

    def submit(self, ms: int, name: str, *costs_ms: int) -> None:
        """The task submits these groups from this instant on, each when the one before it went."""

        def do(now_ns: int) -> None:
            backlog = self._backlog.setdefault(name, deque())
            backlog.extend(cost * MS for cost in costs_ms)
            self._submit_next(name, now_ns)

        self.at(ms, do)

    def enter(self, ms: int, client: str, server: str, *, early: bool = False) -> None:
        def do(now_ns: int) -> None:
            tasks = self.engine.tasks
            self.requests.append(self.engine.enter(tasks[client], tasks[server], now_ns))

        self.at(ms, do, early=early)

    def leave(self, ms: int, number: int = 0) -> None:
        self.at(ms, lambda now_ns: self.engine.leave(self.requests[number], now_ns))

    def remove(self, ms: int, name: str) -> None:
        self.at(ms, lambda now_ns: self.engine.remove_task(self.engine.tasks[name], now_ns))

    def set_reserve(self, ms: int, name: str, spec: ReserveSpec | None) -> None:
        tasks = self.engine.tasks
        self.at(ms, lambda now_ns: self.engine.set_reserve(tasks[name], spec, now_ns))

    def charge(self, ms: int, name: str, amount_ms: int) -> None:
        """So much of the task's executing group, if it ran for so long, and it goes on."""

        def do(now_ns: int) -> None:
            for gpu in self.engine.gpus:
                if gpu.online and gpu.online[0].task.name == name:
                    self.charge_part(gpu.online[0], amount_ms * MS, now_ns, now_ns)

        self.at(ms, do, early=True)

    def charge_part(self, group: Group, amount_ns: int, until_ns: int, now_ns: int) -> None:
        amount_ns = min(amount_ns, until_ns - group.started_ns - group.charged_ns)
        if amount_ns > 0:
            self.engine.charge(group, amount_ns, until_ns, now_ns)

    def set_priority(self, ms: int, name: str, rule: PriorityRule) -> None:
        tasks = self.engine.tasks
        self.at(ms, lambda now_ns: self.engine.set_priority(tasks[name], rule, now_ns))

    def _submit_next(self, name: str, now_ns: int) -> None:
        task = self.engine.tasks.get(name)
        backlog = self._backlog.get(name)
        if task is None or task.waiting is not None or not backlog:
            return
        cost_ns = backlog.popleft()
        group = Group(task, self._indices[task], cost_ns, now_ns + 3 * cost_ns)
        self._indices[task] += 1
        self.engine.submit(group, now_ns)

    def run(self, until_ms: int = 1000) -> list[Event]:
        """Let it all happen; the answer is the stream."""
        engine = self.engine
        while True:
            heads = [gpu.online[0] for gpu in engine.gpus if gpu.online]
            timer_ns = engine.next_timer_ns()
            now_ns = min(
                min((group.finished_ns for group in heads), default=NEVER),
                NEVER if timer_ns is None else timer_ns + self._late_ns,
                self._script[0][0] if self._script else NEVER,
            )
            if now_ns > until_ms * MS:
                break
            for group in heads:
                if group.finished_ns == now_ns:
                    engine.complete(group, group.started_ns, now_ns)
            self.charge_heads(now_ns)
            self._act(now_ns, late=False)
            engine.advance(now_ns)
            self._act(now_ns, late=True)
            while (decided := engine.dispatch(now_ns)) is not None:
                self._start(decided, now_ns)
                self._submit_next(decided.task.name, now_ns)
        engine.now_ns = until_ms * MS
        engine.tell("ended", True)
        return self.events

    def charge_heads(self, now_ns: int) -> None:
        """For drives that charge groups which go on."""

    def _act(self, now_ns: int, *, late: bool) -> None:
        while self._script and self._script[0][:2] <= (now_ns, late):
            heappop(self._script)[3](now_ns)

    def _start(self, group: Group, now_ns: int) -> None:
        gpu = group.gpu.index
        group.started_ns = max(now_ns, self._free_ns[gpu]) + self._switch_ns * group.switched
        group.finished_ns = self._free_ns[gpu] = group.started_ns + group.exact_ns


def complaints(events: Iterable[Event], tolerance_ns: int = 0) -> list[str]:
    """What the checker says of a stream, in words."""
    return [str(violation) for violation in check(events, tolerance_ns).violations]


def broken(events: Iterable[Event], tolerance_ns: int = 0) -> set[str]:
    """The rules that a stream breaks."""
    return {violation.rule for violation in check(events, tolerance_ns).violations}


# -- what the engine does is right -----------------------------------------------------------


def prt_run() -> list[Event]:
    """Three tasks take turns by priority, and equal ones by submission and order."""
    drive = Drive()
    drive.task("low", 1)
    drive.task("high", 3)
    drive.task("other", 1)
    drive.submit(0, "low", 2, 2, 2)
    drive.submit(1, "high", 1, 1)
    drive.submit(1, "other", 2, 2)
    return drive.run()


def ht_run() -> list[Event]:
    """An ht task's groups follow each other until a more important task waits."""
    drive = Drive()
    drive.task("throughput", 1, "ht")
    drive.task("high", 2)
    drive.submit(0, "throughput", 3)
    drive.submit(1, "throughput", 1)
    drive.submit(2, "high", 2)
    drive.submit(3, "throughput", 1, 1)
    return drive.run()


def pe_run() -> list[Event]:
    """Overruns, debt that takes several periods to pay, and a long time full and idle."""
    drive = Drive()
    drive.task("video", 3, reserve=pe(2, 10))
    drive.task("batch", 1)
    drive.submit(0, "video", 1, 5, 1, 1)
    drive.submit(0, "batch", 4, 4, 4)
    drive.submit(203, "video", 9, 2)
    return drive.run()


def ae_run() -> list[Event]:
    """Groups that fit, groups that must wait, and one that saves up over several periods."""
    drive = Drive()
    drive.task("video", 3, reserve=ae(2, 10))
    drive.task("batch", 1)
    drive.submit(0, "video", 2, 1, 7, 1)
    drive.submit(3, "batch", 4, 4)
    return drive.run()


def shared_run() -> list[Event]:
    """Two tasks live on one reserve, one of them under ht."""
    drive = Drive()
    drive.task("a", 2, reserve=pe(3, 10, "pool"))
    drive.task("b", 1, "ht", reserve=pe(3, 10, "pool"))
    drive.task("rest", 0)
    drive.submit(0, "a", 2, 2)
    drive.submit(1, "b", 2, 2, 2, 2)
    drive.submit(1, "rest", 5, 5, 5)
    return drive.run()


def pix_run() -> list[Event]:
    """Requests are answered in another order than they came, and ranks pass through two servers."""
    drive = Drive()
    drive.task("high", 3)
    drive.task("middle", 2)
    drive.task("low", 1)
    drive.task("server", 0, pix=True)
    drive.task("backend", 0, pix=True)
    drive.submit(0, "low", 3, 3, 3)
    drive.submit(0, "middle", 3, 3, 3)
    drive.submit(0, "server", 1, 1, 1, 1)
    drive.enter(1, "high", "server")
    drive.enter(2, "low", "server")
    drive.enter(4, "server", "backend")
    drive.set_priority(5, "high", Fixed(5))
    drive.submit(5, "backend", 1, 1)
    drive.leave(6, 1)
    drive.leave(7, 0)
    drive.leave(8, 2)
    drive.enter(20, "middle", "server")
    drive.leave(22, 3)
    return drive.run()


def rix_run() -> list[Event]:
    """Two clients lend to a server, which uses part of it; both are replenished meanwhile."""
    drive = Drive()
    drive.task("a", 3, reserve=pe(3, 10))
    drive.task("b", 2, reserve=pe(2, 8))
    drive.task("server", 1, reserve=pe(1, 12), pix=True, rix=True)
    drive.submit(0, "a", 1, 1)
    drive.submit(0, "b", 1)
    drive.enter(4, "a", "server")
    drive.enter(5, "b", "server")
    drive.submit(5, "server", 2, 2, 2, 4)
    drive.leave(13, 0)
    drive.leave(25, 1)
    drive.submit(26, "a", 2, 2)
    drive.submit(26, "b", 2, 2)
    return drive.run(100)


def removal_run() -> list[Event]:
    """Tasks go while they wait, while they execute and while they ask; one comes back."""
    drive = Drive()
    drive.task("a", 3, reserve=pe(2, 10))
    drive.task("b", 2, "ht", reserve=pe(3, 10, "pool"))
    drive.task("c", 1, reserve=pe(3, 10, "pool"))
    drive.task("server", 0, reserve=pe(1, 10), pix=True, rix=True)
    drive.submit(0, "a", 5, 1)
    drive.submit(0, "b", 2, 2, 2)
    drive.submit(0, "c", 2, 2)
    drive.submit(0, "server", 1, 1, 1)
    drive.enter(1, "b", "server")
    drive.enter(1, "c", "server")
    drive.remove(2, "a")
    drive.at(3, lambda now_ns: drive.task("a", 4, reserve=pe(1, 10)))
    drive.submit(3, "a", 1, 1)
    drive.remove(4, "b")
    drive.remove(9, "server")
    return drive.run(100)


def change_run() -> list[Event]:
    """Priorities, reserves and the foreground change while groups wait and execute."""
    drive = Drive()
    front = drive.task("front", Automatic())
    drive.task("back", Automatic())
    drive.task("deadlines", EarliestDeadline(-1))
    drive.task("video", 3, reserve=pe(2, 10))
    for name in ("front", "back", "deadlines", "video"):
        drive.submit(0, name, 3, 1, 3, 1)
    drive.set_reserve(2, "video", pe(1, 10))
    drive.set_reserve(5, "video", ae(4, 7))
    drive.set_priority(6, "back", Fixed(5))
    drive.at(8, lambda now_ns: drive.engine.set_foreground([front], now_ns))
    drive.set_reserve(9, "back", pe(1, 7))
    drive.set_reserve(15, "video", pe(2, 10, "pool"))
    drive.at(17, lambda now_ns: drive.engine.change_pool("pool", pe(1, 5, "pool"), now_ns))
    drive.set_reserve(30, "video", None)
    drive.submit(31, "video", 2, 2)
    return drive.run(100)


def charge_run() -> list[Event]:
    """Groups that go on over periods are charged in parts, of budgets of each kind, and of a task
    that is gone by then."""
    drive = Drive()
    drive.task("turns", 3, reserve=pe(7, 10))
    drive.task("mate", 1, reserve=pe(4, 10, "pool"))
    drive.task("other", 2, reserve=pe(4, 10, "pool"))
    drive.task("careful", 2, reserve=ae(3, 8))
    drive.task("rest", 0)
    drive.submit(0, "turns", 25, 3, 2)
    drive.submit(1, "rest", 3, 3)
    drive.charge(10, "turns", 10)
    drive.charge(14, "turns", 1)
    drive.charge(20, "turns", 8)
    drive.submit(60, "mate", 12, 1)
    drive.submit(61, "other", 2, 2)
    drive.charge(70, "mate", 9)
    drive.remove(71, "mate")
    drive.submit(100, "careful", 6, 2)
    drive.charge(107, "careful", 2)
    return drive.run()


def mixed_run() -> list[Event]:
    """Every policy at once, on two GPUs that need time to switch."""
    drive = Drive(gpus=2, switch_ms=1)
    for rank, policy in enumerate(("germ", "prt", "ht", "fifo")):
        drive.task(policy, rank, policy)
        drive.task(f"{policy}2", rank, policy, pe(2, 9))
        drive.submit(rank, policy, 2, 1, 3)
        drive.submit(2, f"{policy}2", 1, 3, 2)
    return drive.run(100)


RUNS = [
    prt_run, ht_run, pe_run, ae_run, shared_run, pix_run, rix_run, removal_run, change_run,
    charge_run, mixed_run,
]  # fmt: skip


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_correct_run_has_no_violation(run: Callable[[], list[Event]]) -> None:
    events = run()
    assert complaints(events) == []
    assert isinstance(events[-1], Ended)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_correct_run_has_no_violation_up_to_any_event(run: Callable[[], list[Event]]) -> None:
    checker = Checker()
    for event in run()[:-1]:
        checker.feed(event)
        assert not checker.violations
        assert not checker.ended


def test_runs_show_what_they_are_for() -> None:
    """The correct runs would prove little if nothing of interest happened in them."""

    def kinds(events: list[Event]) -> set[str]:
        return {event.kind for event in events}

    assert {"moved", "entered", "left", "replenished", "ranked"} <= kinds(rix_run())
    assert {"task_removed", "left", "moved"} <= kinds(removal_run())
    assert {"ranked", "focused", "joined", "reserve_set"} <= kinds(change_run())
    assert {"charged", "replenished"} <= kinds(charge_run())
    budgets = [e.budget_ns for e in pe_run() if isinstance(e, Completed) and e.reserve]
    assert min(budgets) < -2 * MS
    budgets = [e.budget_ns for e in ae_run() if isinstance(e, Replenished)]
    assert max(budgets) > 2 * MS


# -- random runs -----------------------------------------------------------------------------

NAMES = "abcde"
SPECS = [
    None, pe(1, 3), pe(2, 7), pe(4, 5), ae(1, 4), ae(2, 5), ae(3, 8),
    pe(2, 6, "pool0"), ae(2, 5, "pool1"),
]  # fmt: skip
PRIORITIES: list[PriorityRule] = [Fixed(-1), Fixed(0), Fixed(1), Fixed(2), Automatic()]


def specs(*, pools: bool = True) -> st.SearchStrategy[ReserveSpec | None]:
    return st.sampled_from([s for s in SPECS if pools or s is None or s.shared is None])


class RandomDrive(Drive):
    """A drive whose steps may come at a time when they are impossible; then nothing happens."""

    def __repr__(self) -> str:
        """What was planned, for the report of a failing run."""
        return "\n".join(self.plan)

    def step(self, ms: int, kind: str, name: str, other: str, number: int, early: bool) -> None:
        """Plan one step; `number` is whatever number it needs."""
        self.plan.append(f"step{(ms, kind, name, other, number, early)}")

        def do(now_ns: int) -> None:
            task, server = self.engine.tasks.get(name), self.engine.tasks.get(other)
            if task is None:
                return
            if kind == "enter" and server is not None:
                try:
                    self.requests.append(self.engine.enter(task, server, now_ns))
                except ValueError:  # it would wait for itself
                    return
            elif kind == "leave" and self.requests:
                request = self.requests.pop(number % len(self.requests))
                if request.client.alive and request.server.alive:
                    self.engine.leave(request, now_ns)
            elif kind == "remove":
                self.engine.remove_task(task, now_ns)
            elif kind == "focus":
                self.engine.set_foreground([task] if number % 2 else [], now_ns)

        if kind == "submit":
            self.submit(ms, name, *[(number >> bits) % 4 + 1 for bits in range(number % 4 + 1)])
        else:
            self.at(ms, do, early=early and kind in ("enter", "leave"))

    def change(self, ms: int, name: str, spec: ReserveSpec | None) -> None:
        self.plan.append(f"change{(ms, name, spec)}")

        def do(now_ns: int) -> None:
            if name in self.engine.tasks:
                self.engine.set_reserve(self.engine.tasks[name], spec, now_ns)

        self.at(ms, do)


@st.composite
def drives(
    draw: st.DrawFn,
    *,
    rix: bool = False,
    changes: str = "private",
    late_ns: int = 0,
    kind: type[RandomDrive] = RandomDrive,
) -> RandomDrive:
    """Anything an engine can be put through, on a coarse grid so that much coincides.

    `rix`: servers inherit budgets; `changes`: to which reserves tasks go while it runs.
    """
    drive = kind(
        gpus=draw(st.sampled_from((1, 1, 2))),
        switch_ms=draw(st.sampled_from((0, 0, 1))),
        limit=100,
        late_ns=late_ns,
    )
    names = st.sampled_from(NAMES[: draw(st.integers(1, len(NAMES)))])
    for name in NAMES:
        policy = draw(st.sampled_from(("prt", "prt", "ht", "ht", "germ", "fifo")))
        priority = draw(st.sampled_from(PRIORITIES))
        spec, pix = draw(specs()), draw(st.booleans())
        drive.plan.append(f"task{(name, str(priority), policy, spec)}, pix={pix}, rix={rix}")
        drive.task(name, priority, policy, spec, pix=pix, rix=rix)
    kinds = st.sampled_from(("submit",) * 8 + ("enter",) * 3 + ("leave",) * 2 + ("remove", "focus"))
    steps = st.tuples(st.integers(0, 40), kinds, names, names, st.integers(0, 255), st.booleans())
    for step in draw(st.lists(steps, max_size=30)):
        drive.step(*step)
    wishes = st.tuples(st.integers(0, 40), names, specs(pools=changes == "all"))
    for wish in draw(st.lists(wishes, max_size=4 if changes != "none" else 0)):
        drive.change(*wish)
    return drive


@given(drives())
@settings(deadline=None, max_examples=300)
def test_a_random_run_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80)) == []


@given(drives(rix=True, changes="none"))
@settings(deadline=None, max_examples=300)
def test_a_random_run_with_lent_budgets_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80)) == []


@given(drives(rix=True, changes="all"))
@settings(deadline=None, max_examples=300)
def test_a_random_run_with_lent_budgets_and_changes_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80)) == []


@given(drives(late_ns=MS // 3))
@settings(deadline=None, max_examples=100)
def test_a_random_run_with_late_timers_has_no_violation(drive: RandomDrive) -> None:
    assert complaints(drive.run(80), tolerance_ns=MS // 3) == []


# -- cases that random runs found ------------------------------------------------------------


def test_a_lent_reserve_is_replenished_and_its_server_goes_on() -> None:
    drive = Drive()
    drive.task("client", 1, reserve=pe(2, 4))
    drive.task("server", 0, reserve=pe(1, 20), rix=True)
    drive.enter(0, "client", "server")
    drive.submit(0, "server", 3, 1)
    assert complaints(drive.run(30)) == []


def test_a_task_brings_its_debt_into_a_pool_whose_members_wait() -> None:
    drive = Drive()
    drive.task("hog", 5, reserve=pe(1, 10))
    drive.task("other", 4)
    drive.task("member", 0, reserve=pe(1, 10, "pool"))
    drive.submit(0, "hog", 6)
    drive.submit(0, "other", 1, 2)
    drive.submit(1, "member", 1)
    drive.set_reserve(7, "hog", pe(1, 10, "pool"))
    assert complaints(drive.run(60)) == []


def test_a_client_leaves_a_pool_that_gets_its_lent_budget_back() -> None:
    drive = Drive()
    drive.task("client", 1, reserve=pe(2, 20, "pool"))
    drive.task("mate", 0, reserve=pe(2, 20, "pool"))
    drive.task("server", 0, reserve=pe(1, 20), rix=True)
    drive.enter(0, "client", "server")
    drive.submit(1, "mate", 1)
    drive.set_reserve(2, "client", None)
    assert complaints(drive.run(60)) == []


def test_a_server_gets_the_priority_of_the_client_that_it_serves() -> None:
    drive = Drive()
    drive.task("client", 2)
    drive.task("server", 0, pix=True)
    drive.enter(0, "client", "server")
    drive.set_priority(1, "server", Fixed(2))
    drive.leave(2)
    assert complaints(drive.run(5)) == []


# -- each rule can fail ----------------------------------------------------------------------


def place(events: list[Event], wanted: type[Event], nth: int = 0, **fields: object) -> int:
    """Where the nth event of a kind with these fields is; counted from the end if negative."""
    places = [
        i
        for i, event in enumerate(events)
        if isinstance(event, wanted) and all(getattr(event, k) == v for k, v in fields.items())
    ]
    return places[nth]


def altered(events: list[Event], at: int, **fields: Any) -> list[Event]:
    """The stream with one event altered."""
    return [*events[:at], replace(events[at], **fields), *events[at + 1 :]]


def without(events: list[Event], at: int) -> list[Event]:
    return events[:at] + events[at + 1 :]


def moved_to(events: list[Event], at: int, new: int) -> list[Event]:
    """The stream with one event earlier, at the instant of the event it now comes before."""
    rest = without(events, at)
    return [*rest[:new], replace(events[at], ns=rest[new].ns), *rest[new:]]


def delayed(events: list[Event], since: int, by_ns: int) -> list[Event]:
    """The stream with everything from one event on happening later."""
    later: list[Event] = []
    new = {(e.task, e.index) for e in events[since:] if isinstance(e, Submitted)}
    for event in events[since:]:
        changes = {"ns": event.ns + by_ns}
        if isinstance(event, Completed):
            changes["started_ns"] = event.started_ns + by_ns
            if (event.task, event.index) in new:
                changes["submitted_ns"] = event.submitted_ns + by_ns
        later.append(replace(event, **changes))
    return events[:since] + later


def renamed(events: list[Event], since: int, names: dict[str, str]) -> list[Event]:
    """The stream with tasks swapped in what is dispatched and completed from one event on."""
    return events[:since] + [
        replace(event, task=names.get(event.task, event.task))
        if isinstance(event, Dispatched | Completed)
        else event
        for event in events[since:]
    ]


def test_one_online_a_prt_group_joins_another() -> None:
    events = prt_run()
    at = place(events, Dispatched, task="high", index=0)
    executing = place(events, Completed, task="low", index=0)
    assert at > executing
    assert "one-online" in broken(moved_to(events, at, executing))


def test_ht_order_a_group_passes_a_more_important_one() -> None:
    events = ht_run()
    submitted = place(events, Submitted, task="throughput", index=2)
    assert submitted > place(events, Submitted, task="high")
    at = place(events, Dispatched, task="throughput", index=2)
    assert "ht-order" in broken(moved_to(events, at, submitted + 1))


def test_ht_order_a_group_follows_another_task() -> None:
    drive = Drive()
    drive.task("other", 1)
    drive.task("throughput", 1, "ht")
    drive.submit(0, "other", 2)
    drive.submit(1, "throughput", 1)
    events = drive.run()
    assert complaints(events) == []
    at = place(events, Dispatched, task="throughput")
    executing = place(events, Completed, task="other")
    assert broken(moved_to(events, at, executing)) == {"ht-order"}


def test_priority_two_dispatches_are_swapped() -> None:
    drive = Drive()
    drive.task("first", 1)
    drive.task("low", 1)
    drive.task("high", 2)
    drive.submit(0, "first", 1)
    drive.submit(0, "low", 1)
    drive.submit(0, "high", 1)
    events = drive.run()
    assert complaints(events) == []
    assert broken(renamed(events, 0, {"low": "high", "high": "low"})) == {"priority"}


@pytest.mark.parametrize("late", ["a", "b"])
def test_priority_equal_tasks_go_by_submission_and_then_by_order(late: str) -> None:
    """Whoever came later, in time or in the file, is put first."""
    drive = Drive()
    drive.task("a")
    drive.task("b")
    drive.task("executing", 1)
    drive.submit(0, "executing", 5)
    drive.submit(2 if late == "a" else 1, "a", 1)
    drive.submit(1, "b", 1)
    events = drive.run()
    assert complaints(events) == []
    swapped = renamed(events, 0, {"a": "b", "b": "a"})
    swapped = [
        replace(e, submitted_ns=(2 if late == e.task == "a" else 1) * MS)
        if isinstance(e, Completed) and e.task in ("a", "b")
        else e
        for e in swapped
    ]
    assert broken(swapped) == {"priority"}


def test_work_conserving_the_gpu_idles_while_a_group_waits() -> None:
    events = prt_run()
    assert broken(delayed(events, place(events, Dispatched, nth=1), MS)) == {"work-conserving"}


def test_work_conserving_is_not_broken_by_a_reserve_that_is_used_up() -> None:
    drive = Drive()
    drive.task("video", reserve=pe(1, 10))
    drive.submit(0, "video", 3, 1)
    events = drive.run(50)
    assert complaints(events) == []
    dispatched = [e.ns // MS for e in events if isinstance(e, Dispatched)]
    assert dispatched == [0, 30]


@pytest.mark.parametrize("budget_ns", [-2 * MS, 0, 7 * MS])
def test_budget_a_completion_states_another_budget(budget_ns: int) -> None:
    events = pe_run()
    at = place(events, Completed, reserve="video")
    assert broken(altered(events, at, budget_ns=budget_ns)) == {"budget"}


def test_budget_a_replenishment_gives_too_much() -> None:
    events = pe_run()
    at = place(events, Replenished, budget_ns=-2 * MS)
    assert "budget" in broken(altered(events, at, budget_ns=2 * MS))


def test_budget_a_replenishment_is_left_out_while_a_group_waits() -> None:
    events = pe_run()
    messages = complaints(without(events, place(events, Replenished, budget_ns=-2 * MS)))
    assert any("was not replenished at 10000000 ns" in message for message in messages)


def test_budget_a_replenishment_comes_between_boundaries() -> None:
    events = pe_run()
    at = place(events, Replenished, budget_ns=-2 * MS)
    early = altered(events, at, ns=events[at].ns - 1)
    assert "budget" in broken(early)


def test_budget_a_reserve_is_replenished_twice_in_a_period() -> None:
    events = pe_run()
    at = place(events, Replenished, budget_ns=-2 * MS)
    again = Replenished(events[at].ns, "video", 0, events[at].ns)
    twice = [*events[: at + 1], again, *events[at + 1 :]]
    assert any("again within one period" in message for message in complaints(twice))


def test_budget_a_group_is_let_through_with_nothing_left() -> None:
    events = pe_run()
    at = place(events, Dispatched, task="video", index=2)
    early = place(events, Dispatched, task="batch", index=0)
    assert events[early].ns < events[at].ns
    swapped = without(events, early)
    swapped = moved_to(swapped, at - 1, early)
    assert "budget" in broken(swapped)


def test_budget_an_ae_group_is_let_through_that_costs_more_than_is_left() -> None:
    events = ae_run()
    at = place(events, Submitted, task="video", index=1)
    assert broken(altered(events, at, predicted_ns=3 * MS)) >= {"budget"}


@pytest.mark.parametrize(
    ("nth", "change"),
    [(0, {"budget_ns": MS}), (1, {"budget_ns": 2 * MS}), (1, {"anchor_ns": MS})],
    ids=["starts less than full", "gains by a change", "gets other boundaries by a change"],
)
def test_budget_a_reserve_is_set_wrongly(nth: int, change: dict[str, int]) -> None:
    events = change_run()
    at = place(events, ReserveSet, nth=nth, reserve="video")
    assert "budget" in broken(altered(events, at, **change))


def test_budget_a_group_is_charged_to_another_reserve() -> None:
    events = rix_run()
    at = place(events, Completed, task="b")
    assert "budget" in broken(altered(events, at, reserve="a"))


def test_bandwidth_executions_add_up_to_more_than_the_reserve() -> None:
    """Even where every event claims that there is budget left."""
    reserve = ReserveSet(0, "r", "pe", 2 * MS, 10 * MS, 2 * MS, 0, False)
    events: list[Event] = [TaskAdded(0, "a", "prt", "0", 0), reserve]
    events.append(Joined(0, "a", "r"))
    for index in range(4):
        ns = 2 * index * MS
        events.append(Submitted(ns, "a", index, 0, None))
        events.append(Dispatched(ns, "a", index, 0))
        done_ns = ns + 2 * MS
        events.append(Completed(done_ns, "a", index, 0, ns, ns, "r", MS, False, None))
    assert broken(events) == {"budget", "bandwidth"}
    assert check(events).violations[-1].rule == "bandwidth"
    assert broken(events[: 3 + 2 * 3]) == {"budget"}, "one group's overrun is allowed"


def test_inheritance_a_rank_stays_raised() -> None:
    events = pix_run()
    at = place(events, Ranked, nth=-1, task="server")
    undone = events[at]
    assert isinstance(undone, Ranked)
    assert undone.rank == undone.base_rank
    assert broken(without(events, at)) == {"inheritance"}


def test_inheritance_a_rank_is_raised_for_nobody() -> None:
    events = prt_run()
    at = place(events, Submitted, nth=-1)
    rank = Ranked(events[at].ns, "low", -(1 << 70), 0)
    assert "inheritance" in broken([*events[:at], rank, *events[at:]])


def test_inheritance_a_client_raises_its_server_the_first_time_only() -> None:
    events = pix_run()
    at = place(events, Entered, client="middle") + 1
    assert isinstance(events[at], Ranked)
    assert "inheritance" in broken(without(events, at))


def test_inheritance_a_server_that_does_not_follow_is_left_alone() -> None:
    drive = Drive()
    drive.task("client", 2)
    drive.task("server", 0)
    drive.enter(0, "client", "server")
    drive.leave(3)
    events = drive.run()
    assert not any(isinstance(event, Ranked) for event in events)
    assert complaints(events) == []


@pytest.mark.parametrize("nth", range(5))
@pytest.mark.parametrize("by_ns", [-1, 1])
def test_inheritance_a_request_moves_another_amount(nth: int, by_ns: int) -> None:
    events = rix_run()
    at = place(events, Moved, nth=nth)
    moved = events[at]
    assert isinstance(moved, Moved)
    wrong = altered(events, at, amount_ns=moved.amount_ns + by_ns)
    assert "inheritance" in broken(wrong)


def test_inheritance_budget_moves_without_a_request() -> None:
    events = rix_run()
    at = place(events, Entered)
    assert broken([*events[:at], Moved(events[at].ns, "a", "b", MS), *events[at:]]) >= {
        "inheritance"
    }


def test_inheritance_a_client_goes_and_its_request_stays() -> None:
    events = removal_run()
    assert "inheritance" in broken(without(events, place(events, Left)))


def _swap_completions(events: list[Event]) -> list[Event]:
    first = place(events, Completed, task="throughput", index=0)
    second = place(events, Completed, task="throughput", index=1)
    a, b = events[first], events[second]
    assert isinstance(a, Completed)
    assert isinstance(b, Completed)
    events[first] = replace(a, index=1, submitted_ns=b.submitted_ns)
    events[second] = replace(b, index=0, submitted_ns=a.submitted_ns)
    return events


SEQUENCE: dict[str, Callable[[list[Event]], list[Event]]] = {
    "time runs backwards": lambda e: altered(e, place(e, Submitted, nth=1), ns=-1),
    "a group goes online that was never submitted": lambda e: without(e, place(e, Submitted)),
    "a group goes online twice": lambda e: [*e[:-1], replace(e[place(e, Dispatched)], ns=e[-1].ns)],
    "a group completes that was never online": lambda e: without(e, place(e, Dispatched, nth=-1)),
    "groups complete in another order": _swap_completions,
    "an index is left out": lambda e: without(
        without(without(e, place(e, Completed, nth=1)), place(e, Dispatched, nth=1)),
        place(e, Submitted, nth=1),
    ),
    "executions overlap": lambda e: altered(e, place(e, Completed, nth=1), started_ns=1 * MS),
    "a group starts before its dispatch": lambda e: altered(
        e, place(e, Completed, task="high"), started_ns=3 * MS
    ),
    "a group starts after its end": lambda e: altered(
        e, place(e, Completed, nth=-1), started_ns=NEVER
    ),
    "a group was submitted at another time": lambda e: altered(
        e, place(e, Completed), submitted_ns=-5
    ),
    "a task submits before its last group went": lambda e: without(
        e, place(e, Dispatched, task="throughput", index=1)
    ),
    "something follows the end": lambda e: [*e, replace(e[-1], ns=e[-1].ns + 1)],
    "a task comes that is there": lambda e: [*e[:2], *e[1:]],
    "a task is unknown": lambda e: [e[0], *e[2:]],
}


@pytest.mark.parametrize("policy", ["overlap", "prt"])
@pytest.mark.parametrize("first", ["low", "high"])
def test_sequence_only_who_went_beside_others_may_be_done_first(policy: str, first: str) -> None:
    """What a policy lets through is its own rule."""
    events: list[Event] = []
    engine = Engine(observers=[Recorder(events.append)])
    groups = []
    for number, name in enumerate(("low", "high")):
        task, _ = engine.add_task(name, 0, policy="overlap", priority=Fixed(number))
        groups.append(Group(task, 0))
        engine.submit(groups[-1], number)
        assert engine.dispatch(number) is groups[-1]
    for now_ns, group in enumerate(sorted(groups, key=lambda g: g.task.name != first), start=10):
        engine.complete(group, now_ns - 1, now_ns)
    if policy == "prt":
        at = place(events, TaskAdded, task="high")
        events = altered(events, at, policy="prt")
    in_order = policy == "overlap" or first == "low"
    assert ("sequence" in broken(events)) != in_order


@pytest.mark.parametrize("breaks", SEQUENCE.values(), ids=SEQUENCE.keys())
def test_sequence(breaks: Callable[[list[Event]], list[Event]]) -> None:
    assert "sequence" in broken(breaks(ht_run()))


def test_sequence_of_requests() -> None:
    events = pix_run()
    entered, left = place(events, Entered), place(events, Left)
    assert "sequence" in broken(without(events, entered))
    assert "sequence" in broken([*events[:entered], events[entered], *events[entered:]])
    assert "sequence" in broken([*events[:left], events[left], *events[left:]])


# -- a wrong engine is caught ----------------------------------------------------------------


def everything_run() -> list[Event]:
    """Something of each kind, with much contention."""
    drive = Drive(limit=10)
    drive.task("low", 0, "ht")
    drive.task("video", 4, reserve=pe(2, 10))
    drive.task("audio", 3, "prt", reserve=ae(2, 8))
    drive.task("a", 2, "ht", reserve=pe(3, 10, "pool"))
    drive.task("b", 1, reserve=pe(3, 10, "pool"))
    drive.task("server", 1, reserve=pe(1, 12), pix=True, rix=True)
    drive.task("plain", 5)
    drive.submit(0, "low", *[1] * 30)
    for ms in range(0, 100, 20):
        drive.submit(ms, "video", 3, 2, 4)
        drive.submit(ms + 1, "audio", 1, 2, 3)
        drive.submit(ms + 2, "a", 1, 1, 1, 2)
        drive.submit(ms + 2, "b", 1, 2)
        drive.submit(ms + 3, "plain", 1)
        drive.enter(ms + 3, "video", "server")
        drive.enter(ms + 4, "audio", "server")
        drive.submit(ms + 4, "server", 2, 2)
        drive.leave(ms + 6, ms // 10)
        drive.leave(ms + 7, ms // 10 + 1)
    return drive.run(200)


def test_everything_is_right_in_a_right_engine() -> None:
    assert complaints(everything_run()) == []


def _replenish_fully(reserve: Reserve, periods: int = 1) -> None:
    reserve.budget_ns = reserve.capacity_ns


def _replenish_never(reserve: Reserve, periods: int = 1) -> None:
    pass


def _replenish_without_cap(reserve: Reserve, periods: int = 1) -> None:
    reserve.budget_ns += reserve.capacity_ns


def _pay_twice(engine: Engine, group: Group, executed_ns: int) -> None:
    if group.task.reserve is not None:
        engine.ledger.charge(group.task.reserve, executed_ns, engine.now_ns)


def _charge_in_words(engine: Engine, group: Group, *amount: int) -> None:
    engine.tell("charged", group, *amount[:2])


def _dispatch_at_times(dispatch: Callable[..., Group | None]) -> Callable[..., Group | None]:
    def wrong(engine: Engine, now_ns: int) -> Group | None:
        return dispatch(engine, now_ns) if now_ns % (3 * MS) else None

    return wrong


CORE = "headway.engine.core"
LEDGER = "headway.engine.ledger"
POLICIES = "headway.engine.policies"
RESERVE = "headway.engine.reserves.Reserve"
MISTAKES: list[tuple[str, dict[str, object], set[str]]] = [
    ("every group is let through", {f"{RESERVE}.lets_through": lambda *_: True}, {"budget"}),
    (
        "overruns are forgotten",
        {f"{RESERVE}.replenish": _replenish_fully},
        {"budget", "bandwidth"},
    ),
    ("nothing is replenished", {f"{RESERVE}.replenish": _replenish_never}, {"budget"}),
    (
        "budget is saved up without end",
        {f"{RESERVE}.replenish": _replenish_without_cap},
        {"budget"},
    ),
    (
        "prt does not wait for an idle GPU",
        {f"{POLICIES}.prt.Prt.admits": lambda *_: True, f"{POLICIES}.prt.Prt.needs_idle": False},
        {"one-online"},
    ),
    (
        "ht does not care who waits",
        {
            f"{POLICIES}.ht.Ht.admits": lambda _, group, gpu, engine: (
                not gpu.online or gpu.online[0].task is group.task
            )
        },
        {"ht-order"},
    ),
    ("ht follows anybody", {f"{POLICIES}.ht.Ht.admits": lambda *_: True}, {"ht-order"}),
    (
        "ht is prt",
        {f"{POLICIES}.ht.Ht.admits": lambda _, group, gpu, engine: not gpu.online},
        {"work-conserving"},
    ),
    (
        "the least important goes first",
        {f"{POLICIES}.prt.Prt.key": lambda _, task: -task.rank, f"{POLICIES}.prt.Prt.orders": True},
        {"priority"},
    ),
    (
        "decisions are put off",
        {f"{CORE}.Engine.dispatch": _dispatch_at_times(Engine.dispatch)},
        {"work-conserving"},
    ),
    (
        "a server gets the worst of its clients' ranks",
        {
            "headway.engine.ranks.inherited_rank": lambda base, links: min(
                base, max((r.client.rank for r in links.serving.values()), default=base)
            )
        },
        {"inheritance"},
    ),
    (
        "clients get all of it back",
        {f"{LEDGER}.returned_ns": lambda lent, *_: lent},
        {"inheritance"},
    ),
    ("clients get nothing back", {f"{LEDGER}.returned_ns": lambda *_: 0}, {"inheritance"}),
    ("what was charged is charged again", {f"{CORE}.Engine._charge": _pay_twice}, {"budget"}),
    ("charges are only told", {f"{CORE}.Engine.charge": _charge_in_words}, {"budget"}),
    (
        "whoever lends keeps it",
        {f"{LEDGER}.Ledger._move": lambda ledger, *move: ledger._tell("moved", *move)},
        {"budget"},
    ),
]


@pytest.mark.parametrize(
    ("mistakes", "caught"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES]
)
def test_a_wrong_engine_is_caught(
    mistakes: dict[str, object], caught: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, mistake in mistakes.items():
        monkeypatch.setattr(target, mistake)
    assert caught <= set().union(*(broken(run()) for run in [everything_run, *RUNS]))


# -- the checker itself ----------------------------------------------------------------------


def test_late_timers_are_allowed_within_the_tolerance_only() -> None:
    drive = Drive(late_ns=1000)
    drive.task("video", reserve=pe(2, 10))
    drive.submit(0, "video", 5, 1, 4, 1)
    events = drive.run()
    assert complaints(events, tolerance_ns=1000) == []
    assert broken(events, tolerance_ns=999) == {"budget"}
    assert broken(events) == {"budget"}


def test_late_decisions_are_allowed_within_the_tolerance_only() -> None:
    events = prt_run()
    late = delayed(events, place(events, Dispatched, nth=1), 1000)
    assert complaints(late, tolerance_ns=1000) == []
    assert broken(late, tolerance_ns=999) == {"work-conserving"}


def test_only_the_first_violations_are_kept() -> None:
    checker = Checker()
    for index in range(0, 1000, 2):
        checker.feed(Dispatched(index, "ghost", index, 0))
    assert len(checker.violations) == KEPT
    assert checker.violations[0] == Violation(0, "sequence", "no task is called ghost")
    assert checker.dropped == checker.count - KEPT
    assert checker.count > 500


def test_memory_does_not_grow_with_the_run() -> None:
    """Tasks come and go, with reserves and requests, and nothing of them is left behind."""

    def round_of(number: int) -> list[Event]:
        drive = Drive()
        for name in ("client", "server"):
            drive.task(f"{name}{number}", reserve=pe(1, 10), pix=True, rix=True)
        drive.submit(0, f"client{number}", 1, 1)
        drive.enter(0, f"client{number}", f"server{number}")
        drive.remove(1, f"client{number}")
        drive.remove(2, f"server{number}")
        events = drive.run(5)[:-1]
        ns = number * 10 * MS
        shifted: list[Event] = []
        for event in events:
            changes: dict[str, Any] = {"ns": event.ns + ns}
            for name in ("anchor_ns", "submitted_ns", "started_ns"):
                if hasattr(event, name):
                    changes[name] = getattr(event, name) + ns
            shifted.append(replace(event, **changes))
        return shifted

    checker = Checker()
    sizes = []
    for number in range(100, 400):
        for event in round_of(number):
            checker.feed(event)
        sizes.append(len(pickle.dumps(checker)))
    assert not checker.violations
    assert sizes[-1] - sizes[0] < 100


def test_the_help_text_names_every_rule() -> None:
    text = describe_rules(80)
    assert all(f"\n  {rule} " in f"\n{text}" for rule in RULES)
    assert max(map(len, text.splitlines())) <= 80


def test_a_stream_without_an_end_is_seen_to_be_cut_off() -> None:
    assert check(prt_run()).ended
    assert not check(prt_run()[:-1]).ended
