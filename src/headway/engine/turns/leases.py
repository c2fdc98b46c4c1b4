"""Leases: what one begins with, what it was used for, and how long it is kept.

A holder that is more important than all who wait keeps its lease while it goes on using it, just as
the policies' hold-off keeps an idle GPU for it; both end when somebody's patience does. When a turn
ends, which is a lease too, is in ends.py.
"""

from __future__ import annotations

from headway.engine.core import Engine
from headway.engine.turns import ends
from headway.engine.turns.client import Client

FASTEST_NS = 100
"""No gate is passed faster than that."""
LOOK_AGAIN_NS = 500_000
"""How soon a lease that is in use is looked at again while others as important wait."""
LOOK_LATER_NS = 5_000_000
"""The same while only less important ones wait that use the CPU themselves, as software that draws
does: each look takes CPU time from them."""
KEEP_FROM_TURNS_NS = 500_000
"""For how long an idle lease is kept at most while only less important turns wait: they give the
GPU back within a window."""


def begin(client: Client, now_ns: int) -> None:
    """What the client has online is a lease, and its page says so."""
    lease, port = client.lease, client.port
    lease.held, lease.revoked, lease.since_ns = True, False, now_ns
    if port is None:
        return
    lease.reported_ns, lease.reported = now_ns, port.counts
    lease.passed = lease.reported[0]
    if client.turns or (client.task is not None and client.task.rule.per_group):
        lease.paused, lease.jobs = port.paused, ends.jobs_of(port)
    port.set_lease(True)


def revoke(client: Client, now_ns: int) -> None:
    """Take a lease back: the program asks for what goes next."""
    if client.port is not None:
        client.port.set_lease(False)
    client.lease.revoked, client.lease.revoked_ns = True, now_ns


def take_idle(client: Client) -> bool:
    """Take the lease of a program that pauses, unless it goes on at this moment: the program says
    first that it is busy, and looks at its lease then; here it is the other way round."""
    port = client.port
    if port is None:
        return True
    port.set_lease(False)
    if port.busy:
        port.set_lease(True)
        return False
    return True


def is_used(client: Client) -> bool:
    """Whether a program that takes turns goes on in its turn at this moment, whatever it said: its
    word may be of the job before. If it does not, its lease is taken."""
    if not client.turns or not client.leased:
        return False
    if client.revoked:
        return client.port is not None and client.port.busy
    return not take_idle(client)


def want(client: Client, wanted: bool, now_ns: int) -> None:
    """Others wait for the lease to end, or no longer."""
    if not wanted:
        client.lease.wanted_ns = None
    elif client.lease.wanted_ns is None:
        client.lease.wanted_ns = now_ns


def review_at(client: Client, time_ns: int | None) -> None:
    """The lease is looked at again at this time."""
    client.lease.review_ns = time_ns


def end(client: Client) -> None:
    """It asks again, whatever its lease was."""
    lease = client.lease
    lease.held = lease.revoked = False
    if client.turns and client.port is not None:
        lease.left = ends.jobs_of(client.port)
    lease.wanted_ns = lease.review_ns = lease.revoked_ns = None
    if client.port is not None:
        client.port.set_lease(False)
        if client.turns:
            client.port.set_waits(False)


def report_passed(engine: Engine, client: Client, now_ns: int) -> None:
    """Say what a lease was used for since this was last told. The program counts; nothing it says
    can be more than there was time for."""
    if client.task is None or client.port is None or not client.leased:
        return
    seen, before = client.port.counts, client.lease.reported
    time_ns = now_ns - client.lease.reported_ns
    most = (time_ns // FASTEST_NS, time_ns // FASTEST_NS, time_ns)
    grown = [max(0, min(s - b, m)) for s, b, m in zip(seen, before, most, strict=True)]
    client.lease.reported_ns, client.lease.reported = now_ns, seen
    if any(grown):
        engine.tell("passed", client.task, *grown, at_ns=now_ns)


def patience_ends_ns(engine: Engine, holder: Client) -> int:
    """Until when those who wait let the holder go first: not at all if one of them is more
    important, or, unless the policy passes equals, as important."""
    task = holder.task
    if task is None or not task.policy.patience_ns:
        return 0
    best_rank = engine.best_ready_rank()
    if best_rank < task.rank or (best_rank == task.rank and not task.policy.passes_equals):
        return 0
    return engine.queue.oldest_ns() + task.policy.patience_ns


def keep_until_ns(engine: Engine, holder: Client, waiting: list[Client], now_ns: int) -> int:
    """When its lease has to be looked at again: by then it is idle for the hold-off (equals are not
    held off, only passed), or the patience of the others is over."""
    task, port = holder.task, holder.port
    if task is None or port is None:
        return now_ns
    page = port.report
    last_ns = max(min(page.last_ns, now_ns), holder.lease.since_ns)
    pause_ns = task.policy.holdoff_ns if engine.best_ready_rank() > task.rank else 0
    if all(client.turns for client in waiting):
        pause_ns = min(pause_ns, KEEP_FROM_TURNS_NS)
    look_ns = pause_ns or LOOK_AGAIN_NS
    if pause_ns and not any(client.turns for client in waiting):
        look_ns = max(pause_ns, LOOK_LATER_NS)
    idle_ns = now_ns + look_ns if page.busy else last_ns + pause_ns
    return min(idle_ns, patience_ends_ns(engine, holder))
