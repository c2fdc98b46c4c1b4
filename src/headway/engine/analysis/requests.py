"""How long one request waits for a token or for a unit, at most.

A request waits here only while its job is among the c strongest of its CPU cluster; at other times
the CPUs are busy with stronger jobs, which the response-time analysis counts. A section's length
contains the waiting for units inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headway.engine.locks.settings import AllocatorSettings, ceil_div

STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Rival:
    """Another task that asks for the same thing."""

    name: str
    length_ns: int
    """Its longest section, or operation."""
    period_ns: int
    response_ns: int
    """Within which each of its jobs ends."""
    count: int = 1
    """Its requests in one job."""

    def requests_in(self, window_ns: int) -> int:
        """How many of its requests can be issued or pending in a window of this length."""
        return ceil_div(window_ns + self.response_ns, self.period_ns) * self.count


def sections_ahead(
    settings: AllocatorSettings, tasks: int, *, affinity: bool = False
) -> int | None:
    """How many sections of others one request waits for under "donation", of `tasks` tasks with
    one request each: 2f - 1 in FIFO queues of length f with donors in front, floor((n - 1) / k) in
    unlimited ones. With affinity a request need not join the shortest queue, so an unlimited one
    may hold all others. None: no bound."""
    limited = settings.length is not None
    room = settings.tokens if settings.cap is None else min(settings.tokens, settings.cap)
    if tasks <= room and (settings.length == 1 or not affinity):
        return 0  # there is a token for everybody
    if not limited and settings.cap is None:
        return tasks - 1 if affinity else (tasks - 1) // settings.tokens
    if settings.length is None or settings.cap is None or settings.cap < settings.top:
        return None
    return 2 * settings.length - 1


def simple_bound(settings: AllocatorSettings, tasks: int, longest_ns: int) -> int | None:
    """What one request waits for, whatever the periods: for a check against simulations."""
    ahead = sections_ahead(settings, tasks)
    return None if ahead is None else ahead * longest_ns


def donation_bound(
    settings: AllocatorSettings,
    rivals: Sequence[Rival],
    response_ns: int,
    *,
    requests: int = 1,
    affinity: bool = False,
) -> int | None:
    """What the requests of one job, which ends within `response_ns`, wait for in all: the longest
    sections that rivals can have in that time, few from each."""
    ahead = sections_ahead(settings, len(rivals) + 1, affinity=affinity)
    if ahead is None:
        return None
    each = requests if settings.length is None else 2 * requests
    return longest(
        ((r.length_ns, min(each, r.requests_in(response_ns))) for r in rivals), ahead * requests
    )


def priority_bound(
    tokens: int,
    weaker_ns: int,
    stronger: Sequence[Rival],
    limit_ns: int,
    extra: Callable[[int], int] = lambda window: 0,
) -> int | None:
    """What one request waits for where the strongest waiter is next: `weaker_ns` for the sections
    of weaker tasks that have just begun (the longest, if all holders of tokens progress), and the
    stronger ones' sections meanwhile, on all `tokens` places at once. None beyond `limit_ns`."""
    window_ns = weaker_ns
    for _ in range(STEPS):
        work_ns = sum(r.requests_in(window_ns) * r.length_ns for r in stronger) + extra(window_ns)
        following_ns = weaker_ns + ceil_div(work_ns, tokens)
        if following_ns == window_ns:
            return window_ns
        if following_ns > limit_ns:
            return None
        window_ns = following_ns
    return None


def longest(candidates: Iterable[tuple[int, int]], count: int) -> int:
    """The sum of the `count` longest, from (length, how many there are)."""
    total_ns = 0
    for length_ns, available in sorted(candidates, reverse=True):
        taken = min(available, count)
        total_ns += taken * length_ns
        count -= taken
        if not count:
            break
    return total_ns
