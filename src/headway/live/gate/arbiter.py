"""The arbiter: drives the engine by what channels say, in real time. No sockets here, only times.

A lease is an online group of the engine that lasts until it is taken back: while nobody else wants
the GPU, its holder passes its gate without asking. When somebody does, the lease is taken from the
page first and the holder's page is read after that; a holder that was about to go does it the other
way round, so one of the two notices the other.

What is on the GPU and what it costs is in online.py; how long a lease is kept in leases.py, and of
programs that take turns in turns.py; how long ones are held back for regular jobs in holding.py,
and when pieces may be long in calm.py; how a gate opens before its turn in handover.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.engine.core import Engine
from headway.engine.model import Group, Lease
from headway.live.gate import handover, leases, turns
from headway.live.gate.calm import Calm
from headway.live.gate.channel import Channel
from headway.live.gate.handover import Handover
from headway.live.gate.holding import HoldBack
from headway.live.gate.online import Online
from headway.live.wire.protocol import (
    COMPLETE,
    RELEASE,
    SUBMIT,
    TURNS,
    WITHDRAW,
    Message,
    ProtocolError,
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take."""

    hold_ns: int = 60_000_000
    """A group loses the GPU after others have waited for it for this long."""
    leases: bool = True
    """Whether a program may pass without asking at all; without, every group is asked for."""
    tick_ns: int | None = None
    """Decide only at multiples of this, as GERM does (TimeGraph §6.5); None: at every event."""
    calm_ns: int = 0
    """How long pieces may be that are over when somebody more important is due."""


class Arbiter:
    """One GPU and the channels that share it."""

    def __init__(self, engine: Engine, grant: Callable[[Channel], None], bounds: Bounds) -> None:
        self.engine = engine
        self.bounds = bounds
        self._grant = grant
        self._by_task: dict[str, Channel] = {}
        self.online = Online(engine, bounds.hold_ns)
        self._turners: dict[Channel, None] = {}
        """Channels that take turns."""
        self._back = HoldBack(self._turners, self.online.channels)
        self._handover = Handover(engine, self.online.channels, self._by_task, self._back)
        self._calm = Calm(self._by_task.values(), bounds.calm_ns)
        self._looking = False
        self._due_ns: int | None = None
        """The tick at which what has changed is decided on."""
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
        self.online.settle(now_ns)
        self._by_task.pop(task.name, None)
        self._turners.pop(channel, None)
        self.online.end(channel, now_ns)
        self.engine.advance(now_ns)
        self.engine.remove_task(task, now_ns)
        channel.task = None
        self.decide(now_ns)

    def changed(self) -> None:
        """Who is there, or how important they are."""
        self._calm.tell()

    def heard(self, channel: Channel, message: Message, now_ns: int) -> None:
        """A message of a channel that has a task."""
        self.online.settle(now_ns)
        if message.type == SUBMIT:
            if message.units and channel.turns and message.units == channel.asks:
                return  # it was seen before it was heard
            if not (message.units and turns.will_ask(channel)):
                channel.asks = message.units or channel.asks
                if message.units and turns.goes_again(channel):
                    self._asked(channel, now_ns)
                    return
                self._close_gates(channel)
                self._submitted(channel, message, now_ns)
            self._asked(channel, now_ns)
        elif message.type == COMPLETE:
            self._completed(channel, message, now_ns)
        elif message.type == RELEASE:
            self._released(channel, now_ns, rests=message.frame)
        elif message.type == WITHDRAW:
            self._withdrawn(channel, message, now_ns)
        elif message.type == TURNS:
            channel.turns = channel not in self.online.channels
            self._turners[channel] = None
            if channel.pages is not None:
                channel.pages.set_looks(self._looking)
        else:
            raise ProtocolError(f"a message of the unknown type {message.type}")
        self.decide(now_ns)

    # -- looking -----------------------------------------------------------------------------

    def look(self, on: bool, now_ns: int) -> None:
        """From now on `glance` is called all the time, or, after this, no more."""
        if on == self._looking:
            return
        self._looking = on
        for channel in self._turners:
            if channel.pages is not None:
                channel.pages.set_looks(on)
        if not on:
            self.glance(now_ns)

    def glance(self, now_ns: int) -> bool:
        """What programs say by their pages alone: saying it in a message would cost the important
        ones more than the rest of it. Whether somebody said something."""
        changed = False
        self._handover.look(now_ns, 0)
        for channel in list(self._turners):
            pages = channel.pages
            if pages is None or channel.task is None:
                continue
            asks, busy = pages.asks, pages.busy
            if asks != channel.asks and turns.goes_again(channel):
                channel.asks = asks
                self._asked(channel, now_ns)
            elif asks != channel.asks and busy and not turns.will_ask(channel):
                channel.asks, changed = asks, True
                self.online.settle(now_ns)
                self._close_gates(channel)
                self._submit(channel, 0, now_ns)
                self._asked(channel, now_ns)
            elif not busy and turns.rests(channel, pages):
                channel.asks, changed = asks, True
                if self.bounds.tick_ns is None:  # first: the GPU may have nothing to do
                    self._handover.job_over(channel, now_ns)
                self.online.settle(now_ns)
                self._released(channel, now_ns, rests=True)
            elif turns.has_stopped(channel, now_ns):
                changed = True
            elif busy and pages.nears_end:
                self._handover.nears_end(channel, now_ns)
        if changed:
            self.decide(now_ns)
        return changed

    # -- groups ------------------------------------------------------------------------------

    def _close_gates(self, channel: Channel) -> None:
        """The gates of less important turns close before anything else is done: every microsecond
        counts that they go on. The decision itself comes to the same."""
        task = channel.task
        if task is None or (task.reserve is not None and task.reserve.budget_ns <= 0):
            return
        self._handover.asked(task)
        for holder in self.online.channels:
            less = holder.task is not None and holder.task.rank > task.rank
            if less and holder.turns and holder.leased and holder.pages is not None:
                holder.pages.set_lease(False)

    def _asked(self, channel: Channel, now_ns: int) -> None:
        if self._back.asked(channel, now_ns):
            self._calm.tell()
            if self.bounds.tick_ns is None:
                self._handover.job_began(channel, now_ns)

    def _submitted(self, channel: Channel, message: Message, now_ns: int) -> None:
        channel.asked = True
        channel.seq = message.seq
        self._submit(channel, message.signature, now_ns)

    def _submit(self, channel: Channel, said: int, now_ns: int) -> None:
        task = channel.task
        assert task is not None
        # Whatever was online is over: a program sends one group at a time, and asks under a lease
        # only if it could not see it yet.
        self.online.end(channel, now_ns)
        if task.waiting is not None:
            self.engine.withdraw(task, now_ns)
        self.engine.advance(now_ns)
        # Equal hashes of different programs are different groups.
        signature = (channel.peer.uid, channel.name, said)
        deadline_ns = None if channel.deadline_ns is None else now_ns + channel.deadline_ns
        group = Group(task, channel.index, deadline_ns=deadline_ns, signature=signature)
        channel.index += 1
        channel.group = group
        self.engine.submit(group, now_ns)
        if channel.turns and channel.pages is not None:
            channel.pages.set_waits(True)

    def _completed(self, channel: Channel, message: Message, now_ns: int) -> None:
        if channel not in self.online.channels or channel.leased or message.seq != channel.seq:
            return  # it lost the GPU meanwhile, and was charged then
        if channel.group is not None:
            channel.group.frame = message.frame
        self.online.end(channel, now_ns)
        self.engine.advance(now_ns)
        self._maybe_lease(channel, now_ns)

    def _released(self, channel: Channel, now_ns: int, *, rests: bool) -> None:
        task = channel.task
        assert task is not None
        if channel.turns and task.waiting is not None:
            if channel.pages is not None and channel.pages.busy:
                return  # it says so of the turn before
            # It had begun with the asking, and was done before the answer.
            self._withdraw(channel, now_ns)
        if channel.turns and rests:
            self._part_beside(channel, now_ns)
            if self.bounds.tick_ns is None:
                self._handover.job_over(channel, now_ns)
        if channel.leased:
            self._part(channel, now_ns)
        if not channel.turns or task.waiting is not None:  # or it has begun again meanwhile
            return
        if rests:
            self._back.rests(channel, now_ns)
            self.engine.rest(task, now_ns)
            self.engine.advance(now_ns)
            self._maybe_lease(channel, now_ns)

    def _withdrawn(self, channel: Channel, message: Message, now_ns: int) -> None:
        """It went without its grant, which may be on its way. About another group: too late."""
        task = channel.task
        assert task is not None
        if message.seq != channel.seq or channel.leased:
            return
        if channel in self.online.channels:
            self.online.end(channel, now_ns)
        elif task.waiting is not None:
            self._withdraw(channel, now_ns)

    def _withdraw(self, channel: Channel, now_ns: int) -> None:
        """It waits no longer; if it does after all, it has to say so."""
        assert channel.task is not None
        self.engine.withdraw(channel.task, now_ns)
        channel.group = None
        if channel.turns and channel.pages is not None:
            channel.pages.set_waits(False)

    def decide(self, now_ns: int) -> None:
        """Something has changed: that is decided on now, or, where there are ticks, at the next."""
        if self.bounds.tick_ns is None:
            self.pump(now_ns)
        elif self._due_ns is None:
            self._due_ns = self._on_tick_ns(now_ns + 1)

    def _on_tick_ns(self, time_ns: int) -> int:
        """The first instant from `time_ns` on at which decisions are taken."""
        return time_ns if self.bounds.tick_ns is None else time_ns + -time_ns % self.bounds.tick_ns

    def pump(self, now_ns: int) -> None:
        """Take decisions until none changes anything. Budgets are brought up to date first: a
        message may have been read before the timer that was due."""
        self._due_ns = None
        self.online.settle(now_ns)
        self.engine.advance(now_ns)
        for holder in [c for c in self.online.channels if c.leased]:
            self._review(holder, now_ns)
        group = self.engine.dispatch(now_ns)
        while group is not None:
            self._let_go(group, now_ns)
            group = self.engine.dispatch(now_ns)
        self._handover.decided()
        self.online.set_bounds(now_ns)
        turns.set_at_once(self._turners, self.online.channels)
        if self.bounds.tick_ns is None:
            self._back.review(now_ns)

    def _review(self, holder: Channel, now_ns: int) -> None:
        """May this lease be kept, and until when?"""
        wanted = bool(self.engine.queue.entries)
        if holder.turns:
            self._want(holder, wanted, now_ns)
        if holder.revoked:
            if holder.turns and not turns.drains(holder, now_ns):
                self._part(holder, now_ns)
            return
        if holder.turns:
            holder.keep_ns = turns.ends_ns(self.engine, holder, now_ns)
        elif wanted:
            holder.keep_ns = leases.keep_until_ns(self.engine, holder, self._waiting(), now_ns)
        else:
            holder.keep_ns = None
        if holder.keep_ns is not None and now_ns >= holder.keep_ns:
            self._revoke(holder, now_ns)
        elif holder.turns and holder.pages is not None:
            holder.pages.keep_lease()

    def _want(self, holder: Channel, wanted: bool, now_ns: int) -> None:
        if wanted and holder.wanted_ns is None:
            holder.wanted_ns = now_ns
        elif not wanted:
            holder.wanted_ns = None
        if holder.pages is not None:
            on = turns.is_wanted(self.engine, holder, self.online.channels)
            seen = self._looking and self.bounds.tick_ns is None
            holder.pages.set_wanted(on, marks=seen and handover.tells(holder))

    def _let_go(self, group: Group, now_ns: int) -> None:
        """The engine decided; tell the program."""
        channel = self._by_task[group.task.name]
        self.online.go(channel, now_ns)
        if channel.turns:
            self._lend(channel, now_ns)
        channel.groups += 1
        self.grants += 1
        if channel.asked:
            channel.asked = False
            self._grant(channel)

    def tick(self, now_ns: int) -> None:
        """Timers: replenishments, policies, and groups that take too long."""
        if self._back.next_ns is not None and now_ns >= self._back.next_ns:
            self._back.review(now_ns)  # first: a long piece that begins meanwhile is not held back
        self._handover.look(now_ns)
        self.online.settle(now_ns)
        if self.engine.queue.entries:
            for channel in list(self.online.channels):
                if channel.bound_ns is not None and now_ns >= channel.bound_ns:
                    channel.overdue += 1
                    self._part(channel, now_ns)
        self.pump(now_ns)

    def next_timer_ns(self) -> int | None:
        """When `tick` has something to do."""
        online = self.online.channels
        times = [self._due_ns, self._back.next_ns]
        if not self._looking:  # else it is looked at with the pages
            times.append(self._handover.next_ns)
        times.append(self.engine.next_timer_ns())
        times.extend(c.keep_ns for c in online if c.leased and not c.revoked)
        times.extend(turns.period_ends_ns(c) for c in online)
        wanted = bool(self.engine.queue.entries)
        if wanted:
            times.extend(channel.bound_ns for channel in online)
        drains = [c for c in online if c.turns and c.revoked]
        if drains and wanted:
            look_ns = turns.DRAIN_SPIN_NS if self._looking else turns.DRAIN_NS
            times.append(self.engine.now_ns + look_ns)
        elif len(online) > 1 and any(turns.will_ask(c) for c in drains):
            times.append(self.engine.now_ns + turns.DRAIN_NS)
        elif any(c.pages is not None and c.pages.gated for c in drains):  # it may say nothing
            times.append(self.engine.now_ns + turns.DRAIN_ALONE_NS)
        soonest_ns = min((time for time in times if time is not None), default=None)
        return None if soonest_ns is None else self._on_tick_ns(soonest_ns)

    def _part(self, holder: Channel, now_ns: int) -> None:
        """A turn that was taken back is over. What waits on the GPU for the next one asks for it:
        its program may have nothing to say for long. One that gets nothing done has to say
        something first, or turn after turn would be its own."""
        self.online.end(holder, now_ns)
        pages = holder.pages
        if not holder.turns or pages is None or not pages.pending:
            return
        if pages.asks != holder.asks or not turns.is_over(holder, now_ns):
            holder.asks = pages.asks
            self._submit(holder, 0, now_ns)

    def _part_beside(self, channel: Channel, now_ns: int) -> None:
        """Turns that were taken back for this one's job, which went beside them and is over. What
        is left of them is on the GPU in any case, and nobody needs to wait for its end, unless
        somebody more important does."""
        for other in list(self.online.channels):
            if other is channel or not (other.revoked and other.turns) or other.task is None:
                continue
            if self.engine.queue.entries and self.engine.best_ready_rank() < other.task.rank:
                continue
            if other.pages is not None and other.pages.gated:
                self._part(other, now_ns)

    # -- leases ------------------------------------------------------------------------------

    def _maybe_lease(self, channel: Channel, now_ns: int) -> None:
        """Nobody else wants the GPU, or nobody as important: whoever used it last may go on
        without asking."""
        task, pages = channel.task, channel.pages
        if task is None or pages is None or self.online.channels or not self.bounds.leases:
            return
        if self.bounds.tick_ns is not None:  # a decision, and this is between two ticks
            return
        if channel.serves or (task.reserve is not None and not channel.turns):
            return
        if self.engine.queue.entries:
            if channel.turns or self.engine.best_ready_rank() <= task.rank:
                return
            if leases.patience_ends_ns(self.engine, channel) <= now_ns:
                return
        channel.group = Lease(task, channel.index)
        channel.index += 1
        self.engine.submit(channel.group, now_ns)
        decided = self.engine.dispatch(now_ns)
        if decided is not channel.group:  # its policy lets it wait, or another one's comes first
            self.engine.withdraw(task, now_ns)
            channel.group = None
            if decided is not None:
                self._let_go(decided, now_ns)
            return
        self.online.go(channel, now_ns)
        self._lend(channel, now_ns)

    def _lend(self, channel: Channel, now_ns: int) -> None:
        """What the channel has online is a lease."""
        self.leases += 1
        if channel.turns and self.bounds.tick_ns is None:
            self._back.hold(channel, now_ns)
        leases.begin(channel, now_ns)
        if channel.turns:
            self._want(channel, bool(self.engine.queue.entries), now_ns)
            channel.keep_ns = turns.ends_ns(self.engine, channel, now_ns)

    def take_back(self, channel: Channel, now_ns: int) -> None:
        """Its circumstances changed, say by a reserve: it must ask for every group again. A new
        reserve has no periods that are over."""
        channel.booked_ns = max(channel.booked_ns, now_ns)
        if channel.leased and not channel.revoked:
            self._revoke(channel, now_ns)

    def _revoke(self, holder: Channel, now_ns: int) -> None:
        """Take a lease back. If its holder is not using it, that is all; else it will say so."""
        pages = holder.pages
        if pages is not None:
            pages.set_lease(False)
        holder.revoked, holder.revoked_ns = True, now_ns
        self.online.bound(holder, now_ns)
        if pages is None or not pages.busy:
            # Its hold-off is over with the lease; a GPU of its own is not to wait for it once more.
            rests = holder.turns or any(channel.turns for channel in self._waiting())
            self.online.end(holder, now_ns)
            if rests and holder.task is not None:
                self.engine.rest(holder.task, now_ns)

    def _waiting(self) -> list[Channel]:
        """Those who could go now."""
        return [self._by_task[group.task.name] for group in self.engine.ready()]
