"""Inheritance through a server that works on its clients' behalf (PIX/RIX §4-5).

PIX: a server has the best rank among its own and those of the clients whose requests are pending.
That is rule 1 (a request raises it, never lowers it) and rule 2 (an answer leaves it with the
highest of the remaining ones) in one expression; every pending request counts, also one that did
not raise the server when it came, because answers may come in any order.

RIX: a request lends the client's remaining budget, or its part of a shared one, to the server (rule
1), the lent reserve goes on being replenished (rule 2), and an answer returns a part by equation
(1) (rule 3). A replenishment of the client while its budget is lent means: returned, replenished,
lent again, all at that instant. So budget moves but is never made: each reserve's bandwidth stays
what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.engine.model import Rank, Task


class Request:
    """A client waits, or has asked, for a server to do something."""

    def __init__(self, number: int, client: Task, server: Task, *, rix: bool) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.rix = rix

    def __repr__(self) -> str:
        return f"<request {self.number}: {self.client.name} to {self.server.name}>"


class Links:
    """Who waits for whom: a task's pending requests, as a server and as a client."""

    def __init__(self, *, pix: bool, rix: bool) -> None:
        self.pix = pix
        self.rix = rix
        self.serving: dict[int, Request] = {}
        self.asking: dict[int, Request] = {}


def inherited_rank(base: Rank, links: Links) -> Rank:
    """PIX rules 1 and 2."""
    if not links.pix or not links.serving:
        return base
    return min(base, min(request.client.rank for request in links.serving.values()))


def lent_ns(budget_ns: int, sharers: int, wanted_ns: int) -> int:
    """RIX rule 1. A reserve of the client's own is lent as a whole. The paper says nothing of
    shared ones: there a client lends its part, so that its request does not stop the other members.
    The part is as large as that of each of the `sharers` who lend nothing yet, the client included,
    and leaves the largest cost that another member waits with (`wanted_ns`, 0 under PE)."""
    if sharers == 1:
        return max(budget_ns, 0)
    return max(0, min(budget_ns // sharers, budget_ns - wanted_ns))


def returned_ns(lent_ns: int, lent_total_ns: int, server_budget_ns: int) -> int:
    """RIX equation (1): C'_i = max(min(C_sum, C_x), 0) * C_i / C_sum, in whole nanoseconds."""
    if not lent_total_ns:
        return 0
    return max(min(lent_total_ns, server_budget_ns), 0) * lent_ns // lent_total_ns
