"""The arbiter: drives the engine by what channels say, in real time. No sockets here, only times.

A lease is an online group of the engine that lasts until it is taken back: while nobody else wants
the GPU, its holder passes its gate without asking. When somebody does, the lease is taken from the
page first and the holder's page is read after that; a holder that was about to go does it the other
way round, so one of the two notices the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.engine.core import Engine
from headway.engine.model import Group
from headway.live.channel import Channel
from headway.live.protocol import COMPLETE, RELEASE, SUBMIT, WITHDRAW, Message, ProtocolError


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take."""

    hold_ns: int = 60_000_000
    """A group that is online for longer than this, while others wait, loses the GPU."""


class Arbiter:
    """One GPU and the channels that share it."""

    def __init__(self, engine: Engine, grant: Callable[[Channel], None], bounds: Bounds) -> None:
        self.engine = engine
        self.bounds = bounds
        self._grant = grant
        self._by_task: dict[str, Channel] = {}
        self._holder: Channel | None = None
        """Whose group is online."""
        self.grants = 0
        self.leases = 0

    def add(self, channel: Channel) -> None:
        if channel.task is not None:
            self._by_task[channel.task.name] = channel

    def remove(self, channel: Channel, now_ns: int) -> None:
        """The program is gone, wherever it was; nobody may wait for it."""
        task = channel.task
        if task is None:
            return
        del self._by_task[task.name]
        if self._holder is channel:
            self._finish(channel, self._online_since(channel, now_ns), now_ns)
        self.engine.remove_task(task, now_ns)
        channel.task = None
        self.pump(now_ns)

    def heard(self, channel: Channel, message: Message, now_ns: int) -> None:
        """A message of a channel that has a task."""
        if message.type == SUBMIT:
            self._submitted(channel, message, now_ns)
        elif message.type == COMPLETE:
            self._completed(channel, message, now_ns)
        elif message.type == RELEASE:
            if self._holder is channel and channel.leased:
                self._end_lease(channel, now_ns)
        elif message.type == WITHDRAW:
            self._withdrawn(channel, now_ns)
        else:
            raise ProtocolError(f"a message of the unknown type {message.type}")
        self.pump(now_ns)

    # -- groups ------------------------------------------------------------------------------

    def _submitted(self, channel: Channel, message: Message, now_ns: int) -> None:
        task = channel.task
        assert task is not None
        if self._holder is channel:  # it lost track, or we did: whatever was online is over
            self._finish(channel, self._online_since(channel, now_ns), now_ns)
        if task.waiting is not None:
            self.engine.withdraw(task, now_ns)
        channel.seq = message.seq
        group = Group(task, channel.index, signature=message.signature)
        channel.index += 1
        channel.group = group
        self.engine.submit(group, now_ns)

    def _completed(self, channel: Channel, message: Message, now_ns: int) -> None:
        if self._holder is not channel or channel.leased or message.seq != channel.seq:
            return  # it lost the GPU meanwhile, and was charged then
        since_ns = self._online_since(channel, now_ns)
        start_ns = min(max(message.start_ns, since_ns), now_ns)
        self._finish(channel, start_ns, now_ns)
        self._maybe_lease(channel, now_ns)

    def _withdrawn(self, channel: Channel, now_ns: int) -> None:
        task = channel.task
        assert task is not None
        if self._holder is channel:
            self._finish(channel, self._online_since(channel, now_ns), now_ns)
        else:
            self.engine.withdraw(task, now_ns)

    def pump(self, now_ns: int) -> None:
        """Take decisions until none changes anything."""
        holder = self._holder
        if holder is not None and holder.leased and self.engine.queue.entries:
            self._revoke(holder, now_ns)
        while True:
            group = self.engine.dispatch(now_ns)
            if group is None:
                return
            channel = self._by_task[group.task.name]
            self._holder = channel
            channel.online_since_ns = now_ns
            channel.groups += 1
            self.grants += 1
            self._grant(channel)

    def tick(self, now_ns: int) -> None:
        """Timers: replenishments, policies, and groups that take too long."""
        self.engine.advance(now_ns)
        holder = self._holder
        if holder is not None and self.engine.queue.entries:
            since_ns = self._online_since(holder, now_ns)
            if now_ns - since_ns >= self.bounds.hold_ns:
                holder.overdue += 1
                self._finish(holder, since_ns, now_ns)
        self.pump(now_ns)

    def next_timer_ns(self, now_ns: int) -> int | None:
        """When `tick` has something to do."""
        times = [self.engine.next_timer_ns()]
        holder = self._holder
        if holder is not None and self.engine.queue.entries:
            times.append(self._online_since(holder, now_ns) + self.bounds.hold_ns)
        return min((time for time in times if time is not None), default=None)

    def _online_since(self, channel: Channel, now_ns: int) -> int:
        return now_ns if channel.online_since_ns is None else channel.online_since_ns

    def _finish(self, channel: Channel, start_ns: int, now_ns: int) -> None:
        group = channel.group
        self._holder = None
        channel.online_since_ns = None
        if channel.leased:
            channel.leased = channel.revoked = False
            if channel.pages is not None:
                channel.pages.set_lease(False)
        channel.group = None
        if group is not None:
            self.engine.complete(group, start_ns, now_ns)

    # -- leases ------------------------------------------------------------------------------

    def _maybe_lease(self, channel: Channel, now_ns: int) -> None:
        """Nobody else wants the GPU: whoever used it last may go on without asking."""
        task, pages = channel.task, channel.pages
        if task is None or pages is None or task.reserve is not None:
            return
        if self._holder is not None or self.engine.queue.entries:
            return
        channel.group = Group(task, channel.index)
        self.engine.submit(channel.group, now_ns)
        group = self.engine.dispatch(now_ns)
        if group is None:  # its policy lets it wait; then it asks, like everybody
            self.engine.withdraw(task, now_ns)
            channel.group = None
            return
        channel.index += 1
        self._holder = channel
        channel.online_since_ns = now_ns
        channel.leased, channel.revoked = True, False
        channel.used_before_ns = pages.client.used_ns
        self.leases += 1
        pages.set_lease(True)

    def _revoke(self, holder: Channel, now_ns: int) -> None:
        """Take a lease back. If its holder is not using it, that is all; else it will say so."""
        pages = holder.pages
        if holder.revoked or pages is None:
            return
        pages.set_lease(False)
        holder.revoked = True
        holder.online_since_ns = now_ns  # from here the bound counts
        if not pages.client.busy:
            self._end_lease(holder, now_ns)

    def _end_lease(self, holder: Channel, now_ns: int) -> None:
        pages = holder.pages
        used_ns = 0
        if pages is not None:  # what it says it used, as far as that is possible
            used_ns = max(0, pages.client.used_ns - holder.used_before_ns)
        group = holder.group
        since_ns = group.dispatched_ns if group is not None else now_ns
        self._finish(holder, max(now_ns - used_ns, since_ns), now_ns)
