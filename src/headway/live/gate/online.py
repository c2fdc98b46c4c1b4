"""Who is on the GPU: since when, for how long they may be, and what they are charged for it.

All of it is in times of the daemon's own, for a client could say anything; what it says of a lease
counts as far as there was time for it.
"""

from __future__ import annotations

from headway.engine.core import Engine
from headway.live.gate import leases, turns
from headway.live.gate.channel import Channel


class Online:
    """The channels whose groups are online."""

    def __init__(self, engine: Engine, hold_ns: int) -> None:
        self.channels: dict[Channel, None] = {}
        """In order of dispatch: one, unless a policy lets more through."""
        self._engine = engine
        self._hold_ns = hold_ns
        self._finished_ns = 0
        """When the group before was done."""

    def go(self, channel: Channel, now_ns: int) -> None:
        self.channels[channel] = None
        channel.online_since_ns = now_ns

    def end(self, channel: Channel, now_ns: int) -> None:
        """Whatever the channel has online is over.

        It ran from max(submit, previous finish) to now, where it was submitted when it was let
        go. One that went beside another, which is still there: until then that one had run."""
        if channel not in self.channels:
            return
        first, beside_ns = next(iter(self.channels)), channel.online_since_ns
        if first is not channel and beside_ns is not None and beside_ns > first.booked_ns:
            self._charge_part(first, beside_ns, now_ns)
        del self.channels[channel]
        group, since_ns = channel.group, channel.online_since_ns
        start_ns = now_ns if since_ns is None else max(since_ns, self._finished_ns)
        if channel.leased:
            leases.tell_passed(self._engine, channel, now_ns)
            said_ns = 0 if channel.pages is None else channel.pages.used_ns
            start_ns = max(start_ns, now_ns - self.used_ns(channel, now_ns))
            channel.used_before_ns = said_ns
            if group is not None:
                start_ns = min(start_ns, now_ns - group.charged_ns)
            leases.end(channel)
        channel.group = channel.online_since_ns = channel.bound_ns = None
        self._finished_ns = now_ns
        if group is not None:
            self._engine.complete(group, start_ns, now_ns)

    # -- how long they may be there ----------------------------------------------------------

    def bound(self, channel: Channel, now_ns: int) -> None:
        """From now on it has so much time."""
        channel.bound_ns = now_ns + self._hold_ns

    def set_bounds(self, now_ns: int) -> None:
        """A long group harms nobody until somebody waits."""
        if not self._engine.queue.entries:
            for channel in self.channels:
                channel.bound_ns = None
        else:
            for channel in self.channels:
                if channel.bound_ns is None and (channel.revoked or not channel.leased):
                    self.bound(channel, now_ns)

    # -- what they are charged ---------------------------------------------------------------

    def settle(self, now_ns: int) -> None:
        """Where the period of a reserve ended in a turn, charge what was used until then, before
        the replenishment. Time is charged once: where several are on the GPU together, to the first
        of them."""
        ended = [(c, times) for c in self.channels if (times := turns.ended_ns(c, now_ns))]
        if not ended:
            return
        first = next(iter(self.channels))
        for holder, times in ended:
            holder.booked_ns = times[-1]
            if holder is first:
                for until_ns in times:
                    self._charge_part(holder, until_ns, now_ns)
        self._engine.advance(now_ns)

    def _charge_part(self, holder: Channel, until_ns: int, now_ns: int) -> None:
        """What it used, as at the end of a turn, and what is on the GPU and was not said yet; no
        more than there was time for, and less what it was charged before."""
        group, since_ns = holder.group, holder.online_since_ns
        if group is None or since_ns is None:
            return
        lasted_ns = until_ns - max(since_ns, self._finished_ns)
        used_ns = max(self.used_ns(holder, until_ns), turns.used_by_now_ns(holder, lasted_ns))
        amount_ns = min(used_ns, lasted_ns) - group.charged_ns
        if amount_ns > 0:
            self._engine.charge(group, amount_ns, until_ns, now_ns)
            for other in self.channels:
                if other is not holder and other.online_since_ns is not None:
                    other.online_since_ns = max(other.online_since_ns, until_ns)

    def used_ns(self, holder: Channel, now_ns: int) -> int:
        """What a lease was used for: what its holder says, and at least the time for which the
        others had to wait for it."""
        said_ns, waited_ns = 0, 0
        if holder.pages is not None:
            said_ns = holder.pages.used_ns - holder.used_before_ns
        if holder.wanted_ns is not None:
            waited_ns = now_ns - holder.wanted_ns
        elif holder.bound_ns is not None:
            waited_ns = now_ns - (holder.bound_ns - self._hold_ns)
        return max(said_ns, waited_ns, 0)
