"""Response times on a cluster of identical CPUs, from execution costs that contain all blocking.

Fixed priorities and EDF by Bertogna and Cirinei's response-time analysis (RTSS 2007), for tasks
whose deadlines are not beyond their periods; EDF also by densities. EDF beyond its deadlines by
Devi and Anderson's bound on tardiness (Real-Time Systems 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

ROUNDS = 200
"""Refinements of the whole set before giving up; each only lowers or raises bounds one way."""
STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """A task as the CPUs see it."""

    name: str
    cost_ns: int
    """Execution, suspensions and blocking."""
    period_ns: int
    deadline_ns: int


Work = Callable[[int], int]
"""What may run in a window of a given length."""


def _nothing(window_ns: int) -> int:
    return 0


def carried_work(task: Demand, window_ns: int, response_ns: int) -> int:
    """The most that a task can execute in a window, a job that began before included."""
    reach_ns = window_ns + response_ns - task.cost_ns
    if reach_ns < 0:
        return 0
    whole = reach_ns // task.period_ns
    return whole * task.cost_ns + min(task.cost_ns, reach_ns - whole * task.period_ns)


def _response(task: Demand, others: Sequence[Work], cpus: int, extra: Work) -> int | None:
    """The least fixed point of a task's response time; None beyond its deadline.

    No response in which `cpus` others can each run for longer than the task waits is one. So the
    search goes on where the last of them stops, instead of a nanosecond later."""
    response_ns = task.cost_ns
    for _ in range(STEPS):
        if response_ns > task.deadline_ns:
            return None
        most_ns = response_ns - task.cost_ns + 1
        works = sorted((other(response_ns) for other in others), reverse=True)
        work_ns = sum(min(work, most_ns) for work in works) + extra(response_ns)
        wait_ns = work_ns // cpus
        if len(works) >= cpus and works[cpus - 1] >= most_ns:
            wait_ns = max(wait_ns, works[cpus - 1])
        following_ns = task.cost_ns + wait_ns
        if following_ns == response_ns:
            return response_ns
        response_ns = following_ns
    return None


def fixed_priority(
    tasks: Sequence[Demand], cpus: int, extras: Sequence[Work] | None = None
) -> list[int | None]:
    """Response times under preemptive global fixed priorities, the first task the most important.
    `extras`: for each task, other work that goes before it in a window, such as of helper threads.
    A task below one without a bound has none either."""
    responses: list[int | None] = []
    known: list[tuple[Demand, int]] = []
    for place, task in enumerate(tasks):
        found = None
        if len(known) == len(responses):
            others = [_worker(other, response) for other, response in known]
            found = _response(task, others, cpus, _nothing if extras is None else extras[place])
        responses.append(found)
        if found is not None:
            known.append((task, found))
    return responses


def _worker(task: Demand, response_ns: int) -> Work:
    return lambda window_ns: carried_work(task, window_ns, response_ns)


def earliest_deadline(
    tasks: Sequence[Demand], cpus: int, extras: Sequence[Work] | None = None
) -> list[int] | None:
    """Response times under preemptive global EDF if every deadline is met; else None."""
    responses = [task.deadline_ns for task in tasks]
    passed = [False] * len(tasks)
    for _ in range(ROUNDS):
        changed = False
        for place, task in enumerate(tasks):
            others = [
                _edf_worker(other, responses[index], task)
                for index, other in enumerate(tasks)
                if index != place
            ]
            extra = _nothing if extras is None else extras[place]
            found = _response(task, others, cpus, extra)
            passed[place] = found is not None
            if found is not None and found < responses[place]:
                responses[place] = found
                changed = True
        if not changed:
            break
    return responses if all(passed) else None


def _edf_worker(task: Demand, response_ns: int, victim: Demand) -> Work:
    """Jobs that are due after the victim's do not count: at most so much in its whole window."""
    whole, rest = divmod(victim.deadline_ns, task.period_ns)
    slack_ns = task.deadline_ns - response_ns
    most_ns = whole * task.cost_ns + min(task.cost_ns, max(0, rest - slack_ns))
    return lambda window_ns: min(carried_work(task, window_ns, response_ns), most_ns)


def dense(tasks: Sequence[Demand], cpus: int) -> bool:
    """Whether densities alone prove every deadline under preemptive global EDF (Goossens, Funk and
    Baruah 2003; Bertogna, Cirinei and Lipari 2005); on one CPU, a load of at most 1."""
    densities = [Fraction(task.cost_ns, task.deadline_ns) for task in tasks]
    return sum(densities, Fraction(0)) <= cpus - (cpus - 1) * max(densities)


def tardiness(tasks: Sequence[Demand], cpus: int) -> list[int] | None:
    """Response times under preemptive global EDF with implicit deadlines when deadlines may be
    missed: everybody ends at most so long after the period. None if the CPUs are overloaded."""
    if any(task.cost_ns > task.period_ns for task in tasks):
        return None
    loads = sorted((Fraction(task.cost_ns, task.period_ns) for task in tasks), reverse=True)
    total = sum(loads, Fraction(0))
    if total > cpus:
        return None
    crowd = max(0, ceil(total) - 1)
    costs = sorted((task.cost_ns for task in tasks), reverse=True)
    above_ns = sum(costs[:crowd]) - costs[-1] if crowd else 0
    room = cpus - sum(loads[: max(0, crowd - 1)], Fraction(0))
    late_ns = ceil(above_ns / room) if above_ns > 0 else 0
    return [task.period_ns + late_ns + task.cost_ns for task in tasks]
