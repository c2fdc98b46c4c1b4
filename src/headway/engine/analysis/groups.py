"""Response times on one GPU under priorities and reserves: groups are never interrupted.

A job is one group. From the instant at which a job may go (it was submitted and its reserve lets it
through) it waits for at most one weaker group that has just begun, and for what stronger tasks run
meanwhile; what those run is bounded by their periods and by their reserves, whose budgets may be
overrun by one group. A job may have to wait for its reserve first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headway.engine.analysis.frames import (
    Frame,
    Request,
    Serving,
    rendering_ns,
    requests_ahead,
    service_ns,
)
from headway.engine.analysis.verdicts import OWN, Verdict
from headway.engine.locks.settings import ceil_div
from headway.engine.reserves import ReserveSpec

BLOCKING, STRONGER, BUDGET, SERVER = "weaker", "stronger", "reserve", "server"
ROUNDS = 300
STEPS = 20_000
BACKLOG = 500
"""Jobs of one task in a busy period; more than so many are an overload."""
LIMIT_NS = 10**15
"""Waits beyond eleven days are no bounds."""


Interference = Callable[[int, int], int | None]
"""What stronger tasks run in a window, in which so many own jobs wait one after the other."""


@dataclass(frozen=True, slots=True)
class GroupTask:
    """A task as the GPU sees it."""

    name: str
    level: int
    rule: str
    """"fixed", "rm" or "edf"; anything else is ordered by nobody knows what."""
    policy: str
    cost_ns: int
    """The longest group, with what a switch and a decision cost."""
    overhead_ns: int = 0
    """What they cost."""
    period_ns: int | None = None
    """Between jobs of one group each. None: the task submits whenever it can."""
    deadline_ns: int | None = None
    order_ns: int | None = None
    """What "rm" goes by."""
    reserve: ReserveSpec | None = None
    depth: int = 1
    """How many groups a task without a period has on the GPU at once, where its policy lets it."""
    total_ns: int | None = None
    """All that the task ever runs, if that is known."""
    refused: str = ""
    """Why there can be no bound for the task itself."""
    frame: Frame | None = None
    """A job is a frame and not one group."""
    serving: Serving | None = None
    """It works for the tasks whose frames name it."""


def outranks(other: GroupTask, task: GroupTask) -> bool:
    """Whether a job of `other` may go before a waiting job of `task`."""
    if other.level != task.level:
        return other.level > task.level
    if "fixed" in (other.rule, task.rule):
        return other.rule == "fixed"
    if other.rule == task.rule == "rm":
        mine_ns = LIMIT_NS if task.order_ns is None else task.order_ns
        return (LIMIT_NS if other.order_ns is None else other.order_ns) <= mine_ns
    if other.rule == task.rule == "edf" and task.deadline_ns is not None:
        return other.deadline_ns is not None  # who has no deadline is never due first
    return True


def is_equal(other: GroupTask, task: GroupTask) -> bool:
    """Whether both have one fixed priority, so that the earlier submission goes first."""
    return other.level == task.level and other.rule == task.rule == "fixed"


def always_first(other: GroupTask, task: GroupTask) -> bool:
    """Whether `other` outranks `task` and is never outranked by it."""
    return outranks(other, task) and not outranks(task, other)


def usage(task: GroupTask, window_ns: int, response_ns: int | None) -> int | None:
    """The most that a task can put onto the GPU within a window. None: no bound is known.
    `response_ns`: within which its jobs end."""
    bounds = []
    if task.total_ns is not None:
        bounds.append(task.total_ns)
    if task.period_ns is not None and response_ns is not None:
        each_ns = task.cost_ns * (1 if task.frame is None else task.frame.groups)
        bounds.append(ceil_div(window_ns + response_ns, task.period_ns) * each_ns)
    reserve = task.reserve
    if reserve is not None:
        # What there is at first, each replenishment, and an overrun at the end: of one group, or
        # under HT of all that go before the first is charged.
        times = window_ns // reserve.period_ns + 1
        exact = reserve.kind == "ae" and reserve.predict == "exact" and task.policy == "prt"
        first_ns = max(reserve.capacity_ns, task.cost_ns if reserve.kind == "ae" else 0)
        groups = task.depth if task.policy == "ht" else 1
        overrun_ns = task.overhead_ns if exact else groups * task.cost_ns
        if task.policy == "prt" or task.period_ns is None:
            bounds.append(first_ns + times * reserve.capacity_ns + overrun_ns)
    return min(bounds, default=None)


@dataclass(slots=True)
class _State:
    """A task and what is known of it."""

    task: GroupTask
    response_ns: int | None = None
    """None: no bound."""
    blocking_ns: int = 0
    wait_ns: int = 0
    """From the instant at which a job may go to its start."""
    budget_ns: int = 0
    server_ns: int | None = 0
    """From the end of a frame's rendering until it is shown."""


def analyse_groups(tasks: Sequence[GroupTask]) -> list[Verdict]:
    """A verdict for each task that has a period, in their order."""
    states = [_State(task, None if task.period_ns is None else task.cost_ns) for task in tasks]
    for _ in range(ROUNDS):
        before = [state.response_ns for state in states]
        for state in states:
            if state.task.period_ns is not None:
                _bound(state, states)
        _by_demand(states)
        if [state.response_ns for state in states] == before:
            break
        for state, old in zip(states, before, strict=True):  # bounds only grow, so this ends
            if old is None or (state.response_ns is not None and state.response_ns < old):
                state.response_ns = old
    else:
        for state in states:
            state.response_ns = None
    return [_verdict(state) for state in states if state.task.period_ns is not None]


def _bound(state: _State, states: Sequence[_State]) -> None:
    """The response time of a task from the others' so far."""
    task = state.task
    others = [other for other in states if other is not state]
    state.blocking_ns = max((_online(o) for o in others if _may_block(o.task, task)), default=0)
    stronger = [other for other in others if _may_go_first(other, task, states)]

    def interference(window_ns: int, jobs: int = 1) -> int | None:
        total_ns = 0
        for other in stronger:
            found_ns = _usage(other, window_ns, states)
            in_order = is_equal(other.task, task) and other.task.policy == "prt"
            if in_order and other.task.serving is None:  # a server may inherit more
                once_ns = jobs * other.task.cost_ns  # one that it submitted before each
                found_ns = once_ns if found_ns is None else min(found_ns, once_ns)
            if found_ns is None:
                return None
            total_ns += found_ns
        return total_ns

    if task.refused:
        state.response_ns = None
    elif task.frame is not None:
        state.response_ns = _shown(state, states, interference)
    elif task.reserve is None:
        state.response_ns = _plain(state, interference)
    else:
        state.response_ns = _reserved(state, interference)


def _may_block(other: GroupTask, task: GroupTask) -> bool:
    """Whether a group of `other` may be on the GPU though `task` goes first: all but those that
    always go first, whose groups are counted as theirs."""
    return not always_first(other, task)


def _online(state: _State) -> int:
    """What a task may have on the GPU when a stronger one comes: a group; under HT its backlog."""
    task = state.task
    if task.policy != "ht":
        return task.cost_ns
    if task.period_ns is None:
        return task.depth * task.cost_ns
    if state.response_ns is None:
        return LIMIT_NS
    return ceil_div(state.response_ns, task.period_ns) * task.cost_ns


def _wait(
    start_ns: int,
    interference: Callable[[int], int | None],
    limit_ns: int = LIMIT_NS,
    *,
    least_ns: int = 0,
) -> int | None:
    """The least fixed point of start + interference, which is known to be at least `least_ns`."""
    wait_ns = max(start_ns, least_ns)
    for _ in range(STEPS):
        more_ns = interference(wait_ns)
        if more_ns is None or start_ns + more_ns > limit_ns:
            return None
        if start_ns + more_ns == wait_ns:
            return wait_ns
        wait_ns = start_ns + more_ns
    return None


def _plain(state: _State, interference: Interference) -> int | None:
    """Without a reserve: all jobs of a busy period, the first of which meets the blocking group."""
    task = state.task
    assert task.period_ns is not None
    worst_ns: int | None = None
    least_ns = 0
    for job in range(BACKLOG):

        def more(window_ns: int, jobs: int = job + 1) -> int | None:
            return interference(window_ns, jobs)

        start_ns = _wait(state.blocking_ns + job * task.cost_ns, more, least_ns=least_ns)
        if start_ns is None:
            return None
        least_ns = start_ns + task.cost_ns  # the next job starts after this one
        response_ns = start_ns + task.cost_ns - job * task.period_ns
        if worst_ns is None or response_ns > worst_ns:
            worst_ns = response_ns
            state.wait_ns = response_ns - task.cost_ns
        if response_ns <= task.period_ns:  # the next job finds nothing left of this one
            return worst_ns
    return None


def _reserved(state: _State, interference: Interference) -> int | None:
    """With a reserve of its own: the wait for the budget, then for the GPU."""
    task, reserve = state.task, state.task.reserve
    assert task.period_ns is not None
    assert reserve is not None
    wait_ns = _wait(state.blocking_ns, lambda window_ns: interference(window_ns, 1))
    if wait_ns is None:
        return None
    capacity_ns, refill_ns = reserve.capacity_ns, reserve.period_ns
    length_ns = wait_ns + task.cost_ns
    state.wait_ns = wait_ns
    if task.cost_ns <= capacity_ns and refill_ns <= task.period_ns and length_ns <= refill_ns:
        # A replenishment between the end of a job and the next release lets that one through. If
        # there is none, the next job goes at the replenishment after it, and so do its followers.
        state.budget_ns = max(0, length_ns - (task.period_ns - refill_ns))
        return state.budget_ns + length_ns
    # What AE saved beyond C is cut to C at a replenishment while the group runs, before it pays.
    needed_ns = task.cost_ns
    if reserve.kind == "ae" and task.cost_ns > capacity_ns:
        needed_ns = 2 * task.cost_ns - capacity_ns
    refills = ceil_div(needed_ns, capacity_ns)
    spanned = ceil_div(length_ns, refill_ns)
    each = spanned + refills - (1 if reserve.kind == "pe" else 0)
    if each * refill_ns > task.period_ns:
        return None
    state.budget_ns = refills * refill_ns
    return state.budget_ns + length_ns


# -- frames and servers ----------------------------------------------------------------------


def _clients(server: GroupTask, states: Sequence[_State]) -> list[_State]:
    return [s for s in states if s.task.frame is not None and s.task.frame.server == server.name]


def _may_go_first(other: _State, task: GroupTask, states: Sequence[_State]) -> bool:
    """Whether a group of `other` may go before a waiting one of `task`, by what a server inherits
    if not by its own priority."""
    if outranks(other.task, task):
        return True
    serving = other.task.serving
    if serving is None or not serving.pix:
        return False
    clients = [client.task for client in _clients(other.task, states) if client.task is not task]
    return any(outranks(client, task) for client in clients)


def _usage(state: _State, window_ns: int, states: Sequence[_State]) -> int | None:
    """`usage`, of a server by what its clients can ask for in the window."""
    task = state.task
    if task.serving is None:
        return usage(task, window_ns, state.response_ns)
    total_ns = 0
    for client in _clients(task, states):
        if client.task.period_ns is None or client.response_ns is None:
            return None if task.serving.rix else usage(task, window_ns, None)
        assert client.task.frame is not None
        frames = ceil_div(window_ns + client.response_ns, client.task.period_ns)
        total_ns += frames * client.task.frame.blit_ns
    return total_ns


def _refill_ns(task: GroupTask) -> int | None:
    """How long a group waits for its task's budget, at most; None: for ever, perhaps."""
    if task.reserve is None:
        return 0
    return task.reserve.period_ns if task.cost_ns <= task.reserve.capacity_ns else None


def _shown(state: _State, states: Sequence[_State], interference: Interference) -> int | None:
    """The response time of a frame: rendered, and shown by the server."""
    task, frame = state.task, state.task.frame
    assert frame is not None
    wait_ns = _wait(state.blocking_ns, lambda window_ns: interference(window_ns, 1))
    budget_ns = _refill_ns(task)
    if wait_ns is None or budget_ns is None:
        return None
    state.wait_ns = wait_ns
    state.budget_ns = budget_ns * frame.groups
    response_ns: int | None = rendering_ns(frame, task.cost_ns, wait_ns, budget_ns)
    if frame.server is not None:
        state.server_ns = _served(state, states, wait_ns)
        if state.server_ns is None:
            return None
        assert response_ns is not None
        response_ns += state.server_ns
    assert task.period_ns is not None
    assert response_ns is not None
    return response_ns if response_ns <= task.period_ns else None


def _served(state: _State, states: Sequence[_State], wait_ns: int) -> int | None:
    """From the end of the rendering until the server has shown the frame."""
    task, frame = state.task, state.task.frame
    assert frame is not None
    server = next(s for s in states if s.task.name == frame.server)
    serving = server.task.serving
    refill_ns = _refill_ns(server.task)
    if serving is None or refill_ns is None:
        return None
    if not serving.pix:  # its groups wait as the server's own do
        rest = [s for s in states if s is not server and _may_go_first(s, server.task, states)]
        blocking_ns = max(
            (_online(s) for s in states if s is not server and _may_block(s.task, server.task)),
            default=0,
        )

        def others(window_ns: int) -> int | None:
            found = [_usage(s, window_ns, states) for s in rest]
            return None if None in found else sum(ns for ns in found if ns is not None)

        found_ns = _wait(blocking_ns, others)
        if found_ns is None:
            return None
        wait_ns = found_ns
    requests = [
        Request(
            client.task.cost_ns if client.task.frame.groups else 0,
            service_ns(serving, client.task.frame.blit_ns, wait_ns, refill_ns),
            client.task.frame.ahead - (client is state),
            outranks(client.task, task),
            client.task.period_ns,
            client.response_ns,
        )
        for client in _clients(server.task, states)
        if client.task.frame is not None and client.task.frame.ahead > (client is state)
    ]
    ahead_ns = requests_ahead(requests, by_rank=serving.by_rank, limit_ns=LIMIT_NS)
    if ahead_ns is None:
        return None
    return ahead_ns + service_ns(serving, frame.blit_ns, wait_ns, refill_ns)


# -- EDF -------------------------------------------------------------------------------------


def _by_demand(states: Sequence[_State]) -> None:
    """Tasks of one level under EDF without reserves meet their deadlines if their demand, what is
    stronger and the longest group that can be in the way fit into every interval."""
    levels = {state.task.level for state in states if state.task.rule == "edf"}
    for level in levels:
        here = [s for s in states if s.task.level == level and s.task.rule != "fixed"]
        sound = [
            s
            for s in here
            if s.task.rule == "edf"
            and s.task.period_ns is not None
            and s.task.reserve is None
            and s.task.policy == "prt"
            and s.task.frame is None
            and not s.task.refused
        ]
        if len(sound) != len(here) or not _fits(sound, states):
            continue
        for state in sound:
            deadline_ns = state.task.deadline_ns
            if state.response_ns is None or state.response_ns > (deadline_ns or 0):
                state.response_ns = deadline_ns


def _fits(here: Sequence[_State], states: Sequence[_State]) -> bool:
    """Whether every interval in which the GPU can be busy holds its demand."""
    tasks = [state.task for state in here]
    first = tasks[0]
    stronger = [
        s
        for s in states
        if always_first(s.task, first)
        or (s.task.serving is not None and _may_go_first(s, first, states))
    ]
    weaker = [s for s in states if s not in here and s not in stronger]
    in_the_way_ns = max((_online(state) for state in weaker), default=0)
    longest_ns = max(task.cost_ns for task in tasks)

    def above(window_ns: int) -> int | None:
        found = [_usage(state, window_ns, states) for state in stronger]
        return None if None in found else sum(ns for ns in found if ns is not None)

    def released(window_ns: int) -> int | None:
        more_ns = above(window_ns)
        if more_ns is None:
            return None
        return more_ns + sum(
            ceil_div(window_ns, task.period_ns or 1) * task.cost_ns for task in tasks
        )

    busy_ns = _wait(max(in_the_way_ns, longest_ns), released)
    if busy_ns is None:
        return False
    instants = sorted(set(_deadlines(tasks, busy_ns)))
    if len(instants) > STEPS:
        return False
    for instant in instants:
        demand_ns = sum(
            max(0, (instant - (t.deadline_ns or 0)) // (t.period_ns or 1) + 1) * t.cost_ns
            for t in tasks
        )
        later_ns = max((t.cost_ns for t in tasks if (t.deadline_ns or 0) > instant), default=0)
        more_ns = above(instant)
        if more_ns is None or demand_ns + more_ns + max(later_ns, in_the_way_ns) > instant:
            return False
    return True


def _deadlines(tasks: Iterable[GroupTask], until_ns: int) -> Iterable[int]:
    """Every instant at which a demand grows, when all begin together."""
    for task in tasks:
        assert task.deadline_ns is not None
        assert task.period_ns is not None
        count = max(1, (until_ns - task.deadline_ns) // task.period_ns + 2)
        for job in range(min(count, STEPS + 1)):
            yield job * task.period_ns + task.deadline_ns


# -- what is said ----------------------------------------------------------------------------


def _verdict(state: _State) -> Verdict:
    task = state.task
    assert task.period_ns is not None
    deadline_ns = task.period_ns if task.deadline_ns is None else task.deadline_ns
    own_ns = task.cost_ns
    if task.frame is not None:
        own_ns = rendering_ns(task.frame, task.cost_ns, 0, 0)
    parts = {OWN: own_ns}
    if state.response_ns is None:
        why = task.refused or "stronger tasks, or weaker ones' backlog, may keep the GPU for ever"
        if not task.refused and task.reserve is not None and state.wait_ns:
            why = "its reserve is too small for its groups and for what they wait for"
        return Verdict(task.name, deadline_ns, None, parts, why)
    groups = 1 if task.frame is None else task.frame.groups
    parts[BLOCKING] = state.blocking_ns * groups
    parts[BUDGET] = state.budget_ns
    parts[SERVER] = state.server_ns or 0
    rest_ns = state.response_ns - sum(parts.values())
    if rest_ns < 0:  # bounded by demand: the parts of the other bound do not apply
        parts = {OWN: own_ns, STRONGER: state.response_ns - own_ns}
    else:
        parts[STRONGER] = rest_ns
    return Verdict(task.name, deadline_ns, state.response_ns, parts)
