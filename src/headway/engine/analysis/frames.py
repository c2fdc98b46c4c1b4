"""Frames that a window server shows: what a client waits for at a server that inherits (PIX, RIX).

A client renders its groups, with CPU work before each, and asks its server when the last one is on
the GPU. The server takes one request at a time, waits until that frame is rendered and runs its
groups for it. Under PIX it runs at least at the rank of every client that waits, so what delays a
request is what could delay the client itself, and the requests before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.engine.locks.settings import ceil_div

STEPS = 1000


@dataclass(frozen=True, slots=True)
class Frame:
    """What a program does for each frame, at most."""

    groups: int
    cpu_ns: int
    """CPU time before each group."""
    prepare_ns: int
    """CPU time before the first."""
    ahead: int = 1
    """How many frames may be on their way to the screen."""
    server: str | None = None
    blit_ns: int = 0
    """What the server runs on the GPU for a frame."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How a server works."""

    by_rank: bool
    """Whether it takes the strongest client's request next, not the oldest."""
    groups: int
    """Into how many groups it cuts the work for a frame."""
    pix: bool
    rix: bool


@dataclass(frozen=True, slots=True)
class Request:
    """One client's request, as a delay of others."""

    rendered_ns: int
    """Until its frame is rendered, once it was asked for."""
    service_ns: int
    """What the server needs for it, with what delays the server's groups."""
    count: int
    """How many of them may wait at a time."""
    stronger: bool
    """Whether it goes before ours where the server goes by rank."""
    period_ns: int | None
    response_ns: int | None

    @property
    def length_ns(self) -> int:
        return self.rendered_ns + self.service_ns


def rendering_ns(frame: Frame, cost_ns: int, wait_ns: int, budget_ns: int) -> int:
    """From the start of a frame to the end of its last group; each group waits for a budget and
    for the GPU."""
    if not frame.groups:  # the server draws all of it
        return frame.prepare_ns + frame.cpu_ns
    return frame.prepare_ns + frame.groups * (frame.cpu_ns + budget_ns + wait_ns + cost_ns)


def requests_ahead(others: Sequence[Request], *, by_rank: bool, limit_ns: int) -> int | None:
    """What the requests before ours take: in their order each that can be pending; by rank the one
    that is being served, and the stronger ones that come meanwhile."""
    if not by_rank:
        return sum(other.count * other.length_ns for other in others)
    served_ns = max((other.length_ns for other in others), default=0)
    stronger = [other for other in others if other.stronger]
    if any(o.period_ns is None or o.response_ns is None for o in stronger):
        return None
    wait_ns = served_ns
    for _ in range(STEPS):
        more_ns = sum(
            ceil_div(wait_ns + (o.response_ns or 0), o.period_ns or 1) * o.length_ns
            for o in stronger
        )
        if served_ns + more_ns == wait_ns:
            return wait_ns
        wait_ns = served_ns + more_ns
        if wait_ns > limit_ns:
            return None
    return None


def service_ns(serving: Serving, blit_ns: int, wait_ns: int, budget_ns: int) -> int:
    """What the server needs for one frame: each of its groups waits for its budget and the GPU."""
    return blit_ns + serving.groups * (wait_ns + budget_ns)
