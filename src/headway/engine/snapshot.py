"""What there is now, told as records, so that a stream can begin, or go on, in the middle of a run.

The order is that of what depends on what: reserves, tasks and who is charged to which, the GPUs,
who is online and who waits, who asked whom. Call it between two instants, with budgets up to date.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.engine.core import Engine
from headway.engine.events import Found, Joined, LastUsed, Recorder, ReserveSet, TakenUp
from headway.engine.inheritance import Request
from headway.engine.model import Group, Task
from headway.engine.reserves import Reserve


def retell(engines: Sequence[Engine], to: Recorder, dropped: int = 0) -> None:
    """Tell the state of these engines, one for each GPU in use; `dropped` records got lost
    before."""
    now_ns = max(engine.now_ns for engine in engines)
    to.say(TakenUp, now_ns, dropped)
    for engine in engines:
        _retell(engine, to, now_ns)
    to.say(Found, now_ns)


def _retell(engine: Engine, to: Recorder, now_ns: int) -> None:
    online = [group for gpu in engine.gpus for group in gpu.online]
    online.sort(key=lambda group: group.dispatched_ns)
    gone = list(dict.fromkeys(g.task for g in online if not g.task.alive))
    replaced = [task for task in gone if task.name in engine.tasks]
    tasks = [*(task for task in gone if task not in replaced), *engine.tasks.values()]
    for reserve in _reserves(engine, [*replaced, *tasks]):
        to.reserve_set(reserve, now_ns)
    for task in replaced:  # its name belongs to another by now: told to its end before that one
        _tell_task(task, to, now_ns)
        _tell_groups([group for group in online if group.task is task], to, now_ns)
        to.task_removed(task, now_ns)
    for task in tasks:
        _tell_task(task, to, now_ns)
    for gpu in engine.gpus:
        if gpu.last_task is not None and gpu.last_task in tasks:
            to.say(LastUsed, gpu.idle_ns, gpu.index, gpu.last_task.name)
    _tell_groups([group for group in online if group.task in tasks], to, now_ns)
    for task in tasks:
        if task.waiting is not None:
            to.submitted(task.waiting, task.waiting.submitted_ns)
    for request in _requests(engine):
        to.entered(request, now_ns)
        taker, giver = request.server.reserve, request.client.reserve
        if taker is not None and giver is not None and request in taker.inherited:
            to.moved(giver, taker, taker.inherited[request], now_ns)
    for task in tasks:
        if task.foreground:
            to.focused(task, now_ns)
        if not task.alive:
            to.task_removed(task, now_ns)


def _reserves(engine: Engine, tasks: list[Task]) -> list[Reserve]:
    """Pools too that nobody is in, but that are not full yet."""
    used = [task.reserve for task in tasks if task.reserve is not None]
    return list(dict.fromkeys([*engine.ledger.pools.values(), *used]))


def _tell_task(task: Task, to: Recorder, now_ns: int) -> None:
    to.task_added(task, now_ns)
    to.ranked(task, now_ns)
    for party in task.parties:
        to.stands_with(task, party, now_ns)
    if task.reserve is not None:
        to.joined(task, now_ns)
    elif task.debt_ns:
        # It owes for a reserve that it left: it had one that was as deep in debt, and left it.
        to.say(ReserveSet, now_ns, task.name, "pe", 1, 1, task.debt_ns, now_ns, False)
        to.say(Joined, now_ns, task.name, task.name)
        to.say(Joined, now_ns, task.name, None)


def _tell_groups(online: list[Group], to: Recorder, now_ns: int) -> None:
    for group in online:
        to.submitted(group, group.submitted_ns)
        to.dispatched(group, group.dispatched_ns)
        if group.charged_ns:
            to.charged(group, group.charged_ns, now_ns, now_ns)


def _requests(engine: Engine) -> list[Request]:
    """Those through which a reserve lends in the order in which it does, then the others."""
    pending = engine.ranks.requests()
    reserves = dict.fromkeys(request.client.reserve for request in pending)
    lending = [request for r in reserves if r is not None for request in r.lent]
    return list(dict.fromkeys([*lending, *pending]))
