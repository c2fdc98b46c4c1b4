"""Who is on the GPU: since when, for how long they may be, and what they are charged for it.

All of it is in times of the daemon's own, for a client could say anything; what it says of a lease
counts as far as there was time for it.
"""

from __future__ import annotations

from headway.engine.core import Engine
from headway.engine.turns import ends, leases
from headway.engine.turns.client import Client
from headway.engine.turns.conduct import Conduct


class Online:
    """The clients whose groups are online."""

    def __init__(self, engine: Engine, conduct: Conduct) -> None:
        self.clients: dict[Client, None] = {}
        """In order of dispatch: one, unless a policy lets more through."""
        self._engine = engine
        self._conduct = conduct
        self._finished_ns = 0
        """When the group before was done."""

    def go(self, client: Client, now_ns: int) -> None:
        self.clients[client] = None
        client.account.since_ns = now_ns

    def lend(self, client: Client, now_ns: int) -> None:
        """What the client has online is a lease."""
        leases.begin(client, now_ns)
        client.account.booked_ns = now_ns
        if client.port is not None and not client.turns:
            # What one that takes turns used may be said after its end: the next turn pays.
            client.account.used_ns = client.lease.reported[2]

    def has_new_reserve(self, client: Client, now_ns: int) -> None:
        """A new reserve has no periods that are over."""
        client.account.booked_ns = max(client.account.booked_ns, now_ns)

    def end(self, client: Client, now_ns: int) -> None:
        """Whatever the client has online is over.

        It ran from max(submit, previous finish) to now, where it was submitted when it was let
        go. One that went beside another, which is still there: until then that one had run."""
        if client not in self.clients:
            return
        first, joined_ns = next(iter(self.clients)), client.account.since_ns
        if first is not client and joined_ns is not None and joined_ns > first.account.booked_ns:
            self._charge_part(first, joined_ns, now_ns)
        del self.clients[client]
        group, since_ns = client.group, client.account.since_ns
        start_ns = now_ns if since_ns is None else max(since_ns, self._finished_ns)
        if client.leased:
            leases.report_passed(self._engine, client, now_ns)
            said_ns = 0 if client.port is None else client.port.used_ns
            start_ns = max(start_ns, now_ns - self.used_ns(client, now_ns))
            client.account.used_ns = said_ns
            if group is not None:
                start_ns = min(start_ns, now_ns - group.charged_ns)
            leases.end(client)
        account = client.account
        client.group = account.since_ns = account.bound_ns = account.bound_since_ns = None
        self._finished_ns = now_ns
        if group is not None:
            self._engine.complete(group, start_ns, now_ns)

    def is_overdue(self, client: Client, now_ns: int) -> None:
        """It kept the GPU for longer than it may while others wait."""
        account = client.account
        account.overdue += 1
        if account.bound_since_ns is not None and self._makes_wait(client):
            self._conduct.overdue(client, account.bound_since_ns, now_ns)

    # -- how long they may be there ----------------------------------------------------------

    def bound(self, client: Client, now_ns: int) -> None:
        """From now on it has so much time."""
        client.account.bound_since_ns = now_ns
        client.account.bound_ns = now_ns + self._conduct.hold_ns

    def set_bounds(self, now_ns: int) -> None:
        """A long group harms nobody until somebody waits; who is less important waits for the whole
        hold, whoever it is for."""
        if not self._engine.any_ready:
            for client in self.clients:
                client.account.bound_ns = client.account.bound_since_ns = None
            return
        for client in self.clients:
            account = client.account
            if account.bound_ns is None and (client.revoked or not client.leased):
                self.bound(client, now_ns)
            if account.bound_since_ns is not None:
                equal = self._makes_wait(client)
                hold_ns = self._conduct.patience_ns(client) if equal else self._conduct.hold_ns
                account.bound_ns = max(now_ns, account.bound_since_ns + hold_ns)

    def _makes_wait(self, client: Client) -> bool:
        """Whether somebody waits who is at least as important."""
        if client.task is None or not self._engine.any_ready:
            return False
        return self._engine.best_ready_rank() <= client.task.rank

    # -- what they are charged ---------------------------------------------------------------

    def settle(self, now_ns: int) -> None:
        """Where the period of a reserve ended in a turn, charge what was used until then, before
        the replenishment. Time is charged once: where several are on the GPU together, to the first
        of them."""
        ended = [(c, times) for c in self.clients if (times := ends.ended_ns(c, now_ns))]
        if not ended:
            return
        first = next(iter(self.clients))
        for holder, times in ended:
            holder.account.booked_ns = times[-1]
            if holder is first:
                for until_ns in times:
                    self._charge_part(holder, until_ns, now_ns)
                    self._engine.advance(now_ns, until_ns)
        self._engine.advance(now_ns)

    def _charge_part(self, holder: Client, until_ns: int, now_ns: int) -> None:
        """What it used, as at the end of a turn, and what is on the GPU and was not said yet; no
        more than there was time for, and less what it was charged before."""
        group, since_ns = holder.group, holder.account.since_ns
        if group is None or since_ns is None:
            return
        lasted_ns = until_ns - max(since_ns, self._finished_ns)
        used_ns = max(self.used_ns(holder, until_ns), ends.used_by_now_ns(holder, lasted_ns))
        amount_ns = min(used_ns, lasted_ns) - group.charged_ns
        if amount_ns > 0:
            self._engine.charge(group, amount_ns, until_ns, now_ns)
            for other in self.clients:
                if other is not holder and other.account.since_ns is not None:
                    other.account.since_ns = max(other.account.since_ns, until_ns)

    def used_ns(self, holder: Client, now_ns: int) -> int:
        """What a lease was used for: what its holder says, and at least the time for which the
        others had to wait for it."""
        said_ns, waited_ns = 0, 0
        if holder.port is not None:
            said_ns = holder.port.used_ns - holder.account.used_ns
        if holder.lease.wanted_ns is not None:
            waited_ns = now_ns - holder.lease.wanted_ns
        elif holder.account.bound_since_ns is not None:
            waited_ns = now_ns - holder.account.bound_since_ns
        return max(said_ns, waited_ns, 0)
