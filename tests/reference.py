"""A slow, plain simulator written straight from the scenario contract.

Headway's own simulator is compared with this one on random scenarios. It therefore shares no code
with it and prefers the obvious to the fast: at every instant it looks at every task and every
reserve. It knows tasks with `groups`, the policies "prt" and "ht", PE and AE reserves (also shared,
with exact prediction) and a device without overheads; it refuses anything else. Quotations in the
docstrings are sentences of the contract.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

NS_PER_UNIT = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass
class Reserve:
    """A budget `e`, private to a task or shared by the tasks that name the same pool."""

    policy: str
    capacity: int
    period: int
    e: int
    next_replenishment: int


@dataclass(eq=False)
class Task:
    """One thread. `next` is its first group not yet dispatched; it waits if `submitted` is set."""

    name: str
    policy: str
    priority: int
    reserve: Reserve | None
    groups: list[tuple[int, int]]  # (at, cost)
    next: int = 0
    submitted: int | None = None

    @property
    def cost(self) -> int:
        """What the next group costs; under exact prediction also its predicted cost x."""
        return self.groups[self.next][1]


@dataclass(frozen=True)
class Run:
    """A group on the online list."""

    task: Task
    index: int
    submitted: int
    started: int
    finished: int


def duration_ns(text: str) -> int:
    """Time: "Durations are strings with a unit (`ns us ms s`) and are kept as integer nanoseconds;
    no float touches the timeline."
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; expected for example '2.5ms'")
    ns = Fraction(match[1]) * NS_PER_UNIT[match[2]]
    if ns.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of nanoseconds")
    return ns.numerator


def simulate(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """The `groups` of the result: "every completed group, by `started_ns`".

    "At one instant, in this order: every completion, every replenishment, every submission, and
    then decisions, repeated until none changes anything."
    """
    tasks, reserves = read(scenario)
    online: list[Run] = []
    completed: list[Run] = []
    now = 0
    while True:
        completed += complete(online, now)
        if not online and all(task.next == len(task.groups) for task in tasks):
            break
        replenish(reserves, tasks, now)
        submit(tasks, now)
        while (task := decide(tasks, online)) is not None:
            dispatch(task, online, now)
            # "A group that becomes due through a decision is submitted at that instant."
            submit(tasks, now)
        now = next_instant(tasks, reserves, online, now)
    return [
        {
            "task": run.task.name,
            "index": run.index,
            "submitted_ns": run.submitted,
            "started_ns": run.started,
            "finished_ns": run.finished,
        }
        for run in sorted(completed, key=lambda run: run.started)
    ]


def read(scenario: dict[str, Any]) -> tuple[list[Task], list[Reserve]]:
    """Tasks in file order, and the reserves; "`shared = "pool"` joins a named reserve"."""
    for key, value in scenario.get("device", {}).items():
        if (value != 1) if key == "count" else (duration_ns(value) != 0):
            raise ValueError(f"the reference knows one device without overheads, not {key}={value}")
    tasks: list[Task] = []
    reserves: dict[str, Reserve] = {}
    for entry in scenario["task"]:
        if entry["policy"] not in ("prt", "ht"):
            raise ValueError(f"the reference does not know the policy {entry['policy']!r}")
        reserve = None
        if "reserve" in entry:
            pool = entry["reserve"].get("shared")
            key = f"task {entry['name']}" if pool is None else f"pool {pool}"
            declared = read_reserve(entry["reserve"])
            reserve = reserves.setdefault(key, declared)
            if reserve != declared:
                raise ValueError(f"the members of {key} declare it differently")
        groups = [(duration_ns(g["at"]), duration_ns(g["cost"])) for g in entry["groups"]]
        tasks.append(Task(entry["name"], entry["policy"], entry["priority"], reserve, groups))
    return tasks, list(reserves.values())


def read_reserve(entry: dict[str, Any]) -> Reserve:
    """Budget: "A reserve starts full, at time 0, and is replenished at T, 2T, 3T…"."""
    policy, capacity, period = (entry[key] for key in ("policy", "capacity", "period"))
    if policy != "pe" and (policy, entry.get("predict")) != ("ae", "exact"):
        raise ValueError(f"the reference knows PE, and AE with exact prediction, not {entry}")
    c, t = duration_ns(capacity), duration_ns(period)
    if c == 0 or t == 0:
        raise ValueError(f"a reserve that never grows can hold a group back for ever: {entry}")
    return Reserve(policy, c, t, e=c, next_replenishment=t)


def complete(online: list[Run], now: int) -> list[Run]:
    """Completions: "When a group completes, e falls by the time for which it executed"."""
    done: list[Run] = []
    while online and online[0].finished == now:
        run = online.pop(0)
        if run.task.reserve is not None:
            run.task.reserve.e -= run.finished - run.started
        done.append(run)
    return done


def replenish(reserves: list[Reserve], tasks: list[Task], now: int) -> None:
    """Replenishments: "`e = min(max(C, x), e + C)`, where x is the predicted cost of the group that
    waits on it (0 under PE, and where none waits)"; where several wait, the largest.
    """
    for reserve in reserves:
        if reserve.next_replenishment == now:
            waiting = [t for t in tasks if t.reserve is reserve and t.submitted is not None]
            x = max((t.cost for t in waiting), default=0) if reserve.policy == "ae" else 0
            reserve.e = min(max(reserve.capacity, x), reserve.e + reserve.capacity)
            reserve.next_replenishment += reserve.period


def submit(tasks: list[Task], now: int) -> None:
    """Submissions: "group k+1 is submitted at the later of its `at` and the instant group k was
    dispatched". Called at every `at` and after every dispatch, so that the later of them is now.
    """
    for task in tasks:
        remaining = task.groups[task.next :]
        if task.submitted is None and remaining and remaining[0][0] <= now:
            task.submitted = now


def is_ready(task: Task) -> bool:
    """Readiness: "A waiting task is *ready* if its reserve lets the group through (below), or if it
    has none." "Under PE a group is let through if e > 0; under AE if e >= x."
    """
    if task.submitted is None:
        return False
    if task.reserve is None:
        return True
    return task.reserve.e > 0 if task.reserve.policy == "pe" else task.reserve.e >= task.cost


def decide(tasks: list[Task], online: list[Run]) -> Task | None:
    """The task whose waiting group is to be dispatched now, if any.

    "PRT and an empty online list: the ready task of the highest priority is dispatched; equal
    priorities go by submission time, then by order in the file."

    "HT: as PRT, and while the group that executes now is its own, its next group is dispatched at
    once unless a ready task of strictly higher priority waits."
    """
    ready = [task for task in tasks if is_ready(task)]
    if not online:
        # min() keeps the first of equals, and `tasks` is in file order.
        return min(ready, key=lambda task: (-task.priority, task.submitted or 0), default=None)
    own = online[0].task
    if own.policy == "ht" and own in ready and all(t.priority <= own.priority for t in ready):
        return own
    return None


def dispatch(task: Task, online: list[Run], now: int) -> None:
    """Execution: "The GPU runs the groups of its online list one after the other, in the order in
    which they were dispatched, and never interrupts one."
    """
    assert task.submitted is not None
    started = online[-1].finished if online else now
    online.append(Run(task, task.next, task.submitted, started, started + task.cost))
    task.next += 1
    task.submitted = None


def next_instant(tasks: list[Task], reserves: list[Reserve], online: list[Run], now: int) -> int:
    """The earliest completion, replenishment or `at` to come, be it one that changes nothing."""
    instants = [reserve.next_replenishment for reserve in reserves]
    instants += [at for task in tasks for at, _ in task.groups if at > now]
    if online:
        instants.append(online[0].finished)
    return min(instants)
