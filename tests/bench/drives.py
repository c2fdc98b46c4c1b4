"""Runs of the engine as events, and what the checker complains of."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from typing import Any

from hypothesis import strategies as st

from headway.engine.core import Engine
from headway.engine.events import (
    Completed,
    Dispatched,
    Event,
    Recorder,
    Submitted,
)
from headway.engine.inheritance import Request
from headway.engine.model import Group, Task
from headway.engine.priorities import Automatic, EarliestDeadline, Fixed, PriorityRule
from headway.engine.reserves import ReserveSpec
from headway.trace.checker import check

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
    changed = st.tuples(st.integers(0, 40), names, specs(pools=changes == "all"))
    for change in draw(st.lists(changed, max_size=4 if changes != "none" else 0)):
        drive.change(*change)
    return drive


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
