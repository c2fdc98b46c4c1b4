"""Turns: how programs that say when they are done share a GPU, as CUDA and OpenCL programs do.

A turn is a lease from the first work after a rest until the program has waited for all of it. It
ends early when somebody more important comes (at once), when somebody as important has waited for
a slice, or when its budget is used up; then the program's gate closes, and what is in flight, a
window at most, drains.

A turn that goes on over the end of its reserve's period, draining or not, is charged then for what
it has used: the rest of a budget is lost with its period, so time must not be charged to the next.
"""

from __future__ import annotations

from collections.abc import Collection

from headway.engine.core import Engine
from headway.engine.ledger import MAX_STEPS
from headway.engine.model import Rank, Task
from headway.engine.turns.client import Client
from headway.engine.turns.port import Port

SLICE_NS = 8_000_000
"""For how long equals do not take turns from each other: changing hands costs some 0.1 ms."""
SLICES = 3
"""Equals that all have reserves can wait for longer, up to such a part of the shortest period."""
LOOKED_AT = 32
"""Of those who wait no more are looked at: whoever is behind them waits for them in any case."""
PAUSE_NS = 300_000
"""Equals that pause for less than this within their slice keep their turn."""
LOOK_NS = 5_000_000
"""How soon a turn that is in use is looked at again while less important ones wait."""
LEAST_LOOK_NS = 500_000
"""The same at least where the program may pause without saying so, as it does inside a job."""
WAKE_NS = 2_000_000
"""How long a program may take to begin a turn that it has waited for."""
TRAIL_NS = 100_000
"""How much longer than predicted a piece may take that nothing tells the end of."""
DRAIN_NS = 100_000
"""How soon a turn that was taken back is looked at again: its marks may tell before its program."""
DRAIN_SPIN_NS = 10_000
"""The same where the daemon looks all the time anyway."""
DRAIN_ALONE_NS = 1_000_000
"""The same while nobody waits for it."""
STALLED_NS = 60_000_000
"""A program that is stopped, and was for this long, does not keep its turn."""
QUIET_NS = 100_000_000
"""Nor does one that sent nothing for this long: it may never ask what became of its work, as in a
session that waits for its user. Work that takes longer is on the GPU beside that of others then."""
HANGING_NS = 10_000_000_000
"""The same for one that waits for its work, which then may never be done."""


def ends_ns(engine: Engine, holder: Client, now_ns: int, hardware_ns: int = 0) -> int | None:
    """When the holder's turn is over, as far as can be said now; a time that has come: now.
    `hardware_ns`: how long a time slice of the GPU itself is, if that is known."""
    times = []
    left_ns = budget_left_ns(holder, now_ns)
    if left_ns is not None:
        times.append(now_ns if _is_left(holder) else now_ns + left_ns)
    best_rank = None if holder.task is None else pressing_rank(engine, holder.task)
    if best_rank is not None:
        times.append(_wanted_ns(engine, holder, best_rank, now_ns, hardware_ns))
    return min(times, default=None)


def pressing_rank(engine: Engine, holder: Task) -> Rank | None:
    """The best rank of those who wait for this turn to be over, if there are such."""
    tasks = (group.task for group in engine.in_order())
    ranks = (task.rank for task in tasks if not _may_corun(task, holder))
    if engine.queue.custom_keys:
        return min(ranks, default=None)
    return next(ranks, None)  # they stand in the order of rank


def _may_corun(task: Task, holder: Task) -> bool:
    """Whether a task that waits may have its turn while the holder goes on: it is for the more
    important of the two to stand the other."""
    if task.rank < holder.rank:
        return bool(task.corun)
    if task.may_mix(holder):
        return True
    return bool(holder.corun) and task.policy.at_once


def _wanted_ns(
    engine: Engine, holder: Client, best_rank: Rank, now_ns: int, hardware_ns: int
) -> int:
    task, port = holder.task, holder.port
    if task is None or port is None:
        return now_ns
    if best_rank < task.rank or (task.rule.per_group and jobs_of(port) != holder.lease.jobs):
        return now_ns  # or its rank was that of a job that is over: it asks again
    equal = best_rank == task.rank
    slice_ns = holder.lease.since_ns + _slice_ns(engine, task, hardware_ns)
    if not port.busy:
        if (port.passed, port.paused) == (holder.lease.passed, holder.lease.paused):
            # it may not have woken up yet
            return holder.lease.since_ns + WAKE_NS
        pause_ns = holder.jobs.gives_up_ns(port, now_ns)
        if equal and hardware_ns and _job_begins(engine, task):
            return now_ns  # the GPU itself would not stay idle for it
        if equal:
            return min(slice_ns, max(pause_ns, port.last_ns + PAUSE_NS))
        return now_ns if is_over(holder, now_ns) else pause_ns
    if equal:
        return slice_ns if slice_ns <= now_ns else min(slice_ns, now_ns + PAUSE_NS)
    if is_over(holder, now_ns):
        return now_ns
    keep_ns = holder.jobs.keep_ns
    return now_ns + (min(max(keep_ns, LEAST_LOOK_NS), LOOK_NS) if keep_ns else LOOK_NS)


def _slice_ns(engine: Engine, task: Task, hardware_ns: int) -> int:
    """How long equals wait for each other. A job that begins waits no longer than it would for the
    GPU's own slices. One that goes on lost its turn to such a slice: the less often hands change
    then, the less is lost. A period says how long its program can wait for its time."""
    if hardware_ns and _job_begins(engine, task):
        return engine.ask.quantum_ns(task, min(SLICE_NS, hardware_ns))
    shortest_ns = _period_ns(task)
    for group in engine.first_ready(LOOKED_AT):
        if not shortest_ns:
            break
        if group.task.rank == task.rank:
            shortest_ns = min(shortest_ns, _period_ns(group.task))
    return engine.ask.quantum_ns(task, max(SLICE_NS, shortest_ns // SLICES))


def _job_begins(engine: Engine, task: Task) -> bool:
    """Whether an equal without a budget waits with a job that begins."""
    waiting = (group.task for group in engine.first_ready(LOOKED_AT))
    return any(t.begins_job and t.rank == task.rank and t.reserve is None for t in waiting)


def _period_ns(task: Task) -> int:
    return 0 if task.reserve is None else task.reserve.period_ns


def is_wanted(engine: Engine, holder: Client, online: Collection[Client]) -> bool:
    """Whether the holder should say that it is done: equals wait for its slice to be over. Somebody
    beside it whose turn was taken back will want it again."""
    if holder.task is None:
        return False
    best_rank = pressing_rank(engine, holder.task)
    if best_rank is None:
        return any(will_ask(other) for other in online if other is not holder)
    return best_rank != holder.task.rank


def will_ask(holder: Client) -> bool:
    """Its turn was taken back, and more of its work waits: the next one is asked for when what is
    on the GPU is done, and not before, whatever its program says meanwhile."""
    return holder.revoked and holder.turns and holder.port is not None and holder.port.pending


def goes_again(client: Client) -> bool:
    """It asked for a turn that it has by now, and does not wait for an answer. One whose lease was
    closed in advance may have asked because of that."""
    port = client.port
    if port is None or not port.gated or not port.shows_lease:
        return False
    return client.goes_on


def has_stopped(holder: Client, now_ns: int) -> bool:
    """A turn was taken back, what was on the GPU is done, and more waits. The first two looks are
    quick, and mostly enough to see that it is not so."""
    if not will_ask(holder) or holder.port is None or holder.port.trails:
        return False
    return not drains(holder, now_ns)


def budget_left_ns(holder: Client, now_ns: int) -> int | None:
    """What is left of its reserve, if it has one, after what it would be charged now for this turn,
    and was not charged for yet: what it says it used, which may come late, as far as there was time
    for it, and at least the time for which others had to wait for it."""
    task, port = holder.task, holder.port
    if task is None or port is None or task.reserve is None:
        return None
    charged_ns = 0 if holder.group is None else holder.group.charged_ns
    waited_ns = 0 if holder.lease.wanted_ns is None else now_ns - holder.lease.wanted_ns
    said_ns = min(port.used_ns - holder.account.used_ns, now_ns - holder.lease.since_ns)
    used_ns = max(said_ns, waited_ns) - charged_ns
    return max(0, task.reserve.budget_ns - max(0, used_ns))


def _is_left(holder: Client) -> bool:
    """It has used nothing since the last period of its reserve ended: it asks again."""
    port = holder.port
    if port is None or port.busy:
        return False
    return holder.account.booked_ns > max(holder.lease.since_ns, port.last_ns)


def period_ends_ns(holder: Client) -> int | None:
    """When the period of its reserve ends in which its turn is not charged for yet."""
    if not (holder.turns and holder.leased) or holder.task is None or holder.task.reserve is None:
        return None
    reserve = holder.task.reserve
    before = max(0, (holder.account.booked_ns - reserve.anchor_ns) // reserve.period_ns)
    return reserve.anchor_ns + (before + 1) * reserve.period_ns


def ended_ns(holder: Client, now_ns: int) -> list[int]:
    """The ends of periods that the turn is to be charged until: one, unless the daemon is late, and
    of very many only the last ones."""
    first_ns = period_ends_ns(holder)
    if first_ns is None or first_ns > now_ns:
        return []
    assert holder.task is not None
    assert holder.task.reserve is not None
    period_ns = holder.task.reserve.period_ns
    periods = (now_ns - first_ns) // period_ns + 1
    return [first_ns + n * period_ns for n in range(max(0, periods - MAX_STEPS), periods)]


def used_by_now_ns(holder: Client, lasted_ns: int) -> int:
    """What it has used of a turn that lasted so long: what it says, and what is on the GPU now, for
    it says what work took when that is done. That has been there for no longer than the rest of the
    turn, and probably not for longer than a window or a piece of its work takes."""
    port = holder.port
    if port is None:
        return 0
    page = port.report
    said_ns = max(0, page.used_ns - holder.account.used_ns)
    if not page.drains:
        return said_ns
    pieces = max(1, page.passed - holder.lease.passed - 1)
    piece_ns = page.piece_ns if page.gated else said_ns // pieces
    flight_ns = max(piece_ns, port.window_ns) if said_ns else lasted_ns
    return max(said_ns, min(lasted_ns, said_ns + flight_ns))


def drains(holder: Client, now_ns: int) -> bool:
    """Whether something of a turn that was taken back is on the GPU still, or may be. Of a piece to
    which the program may add more no mark tells; that it is over by now is a prediction. So it is
    of work in no piece while pieces wait, for its mark may stand behind one of those."""
    if holder.port is None:
        return False
    page = holder.port.report
    if not page.drains or page.runs:
        return page.drains
    if (page.unmarked or page.marked) and not holder.port.pending:
        return True
    likely_ns = max(holder.port.window_ns, page.piece_ns) * 5 // 4 + TRAIL_NS
    return holder.lease.revoked_ns is not None and now_ns < holder.lease.revoked_ns + likely_ns


def jobs_of(port: Port) -> int:
    """A number that is another one with each job."""
    return port.jobs_begun or port.paused


def begins_job(client: Client) -> bool:
    """Whether a program that asks for a turn is at the begin of a job, and did not lose its turn in
    the middle of one."""
    return client.turns and client.port is not None and jobs_of(client.port) != client.lease.left


def rests(client: Client, port: Port, now_ns: int) -> bool:
    """Of one that is not busy: whether it was, and gives up its turn, and somebody waits for that
    or for nothing."""
    if client.leased:
        if port.paused == client.lease.paused or not (client.revoked or port.wanted):
            return False
        return client.revoked or now_ns >= client.jobs.gives_up_ns(port, now_ns)
    return (
        client.task is not None and client.task.waiting is not None and not client.request.awaited
    )


def is_over(holder: Client, now_ns: int) -> bool:
    """No sign of life for a while, whether the process is stopped or has nothing to do."""
    assert holder.port is not None
    page = holder.port.report
    seen = (page.passed, page.used_ns, page.paused, page.pieces)
    if seen != holder.signs.seen:
        holder.signs.seen, holder.signs.ns = seen, now_ns
    still_ns = now_ns - max(holder.signs.ns, holder.lease.since_ns)
    quiet_ns = HANGING_NS if page.waiting else QUIET_NS
    if page.passed and still_ns >= quiet_ns:  # who never counts what it sends says when it is done
        return True
    return still_ns >= STALLED_NS and holder.port.is_stopped()
