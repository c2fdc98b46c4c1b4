"""The arbiter: drives the engine by what programs at the gate say. No sockets here, only times.

A lease is an online group of the engine that lasts until it is taken back: while nobody else wants
the GPU, its holder passes its gate without asking. When somebody does, the lease is taken from the
page first and the holder's page is read after that; a holder that was about to go does it the other
way round, so one of the two notices the other.

What is on the GPU and what it costs is in online.py; how long a lease is kept in leases.py, and of
programs that take turns in ends.py; how long ones are held back for regular jobs in hold_back.py;
how a gate opens before its turn in early_gate.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

from headway.engine.core import Engine
from headway.engine.cost_models import Signature
from headway.engine.model import Group, Lease, Task
from headway.engine.profile import UNKNOWN, DeviceProfile
from headway.engine.turns import corunning, early_gate, ends, leases
from headway.engine.turns.at_once import AtOnce
from headway.engine.turns.awake import Awake
from headway.engine.turns.client import Client
from headway.engine.turns.conduct import Conduct, Record, Standing
from headway.engine.turns.early_gate import EarlyGate
from headway.engine.turns.hold_back import HoldBack
from headway.engine.turns.jobs import Costs
from headway.engine.turns.online import Online
from headway.engine.turns.port import JobReport
from headway.engine.turns.windows import DEFAULT_WINDOW_NS

A_TURN: Final = 0
"""What a turn has for a hash: all turns of a program are of one kind."""


def _signature(client: Client, said: Signature) -> Signature:
    """The kind of a group: equal hashes of different programs mean different kinds of work."""
    return (*client.owner, said)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take."""

    hold_ns: int = 60_000_000
    """A group loses the GPU after others have waited for it for this long."""
    leases: bool = True
    """Whether a program may pass without asking at all; without, every group is asked for."""
    tick_ns: int | None = None
    """Decide only at multiples of this, as GERM does (TimeGraph §6.5); None: at every event."""
    slowdown: float = 0.1
    """How much longer an important task's jobs may take than alone, if it has no deadline: such a
    part of what they take."""
    window_ns: int = DEFAULT_WINDOW_NS
    """Of a program that takes turns, no more predicted work than this runs on when others go."""


class Arbiter:
    """One GPU and the clients that share it."""

    def __init__(
        self,
        engine: Engine,
        grant: Callable[[Any], None],
        bounds: Bounds,
        conduct: Conduct | None = None,
        profile: DeviceProfile = UNKNOWN,
    ) -> None:
        """`grant` is called with a client that waits to hear that it may go. Without `conduct`
        nobody is remembered from before."""
        self.profile = profile
        self.engine = engine
        self.bounds = bounds
        self._grant = grant
        self.clients: dict[str, Client] = {}
        """By the names of their tasks."""
        self.conduct = conduct or Conduct(bounds.hold_ns)
        self.online = Online(engine, self.conduct)
        self._awake = Awake(self.online.clients)
        self._at_once = AtOnce()
        self._back = HoldBack(self.online.clients)
        self._early_gate = EarlyGate(engine, self.online.clients, self.clients, self._back)
        self._due_ns: int | None = None
        """The tick at which what has changed is decided on."""
        self.conduct.tell = self.stands
        self.grants = 0
        self.leases = 0

    def add(self, client: Client) -> None:
        if client.task is not None:
            now_ns = self.engine.now_ns
            self.clients[client.task.name] = client
            self.conduct.joins(client, now_ns)
            self._place(client, now_ns)

    def _place(self, client: Client, now_ns: int) -> None:
        """Put its task where the standing of its process says."""
        steps = 0 if client.record is None else min(client.record.standing, Standing.LAST)
        if client.task is not None and client.task.steps_back != steps:
            self.engine.step_back(client.task, steps, now_ns)

    def _heed(self, client: Client, overran_ns: int, now_ns: int) -> None:
        """A group went on for so long after it had lost the GPU."""
        if overran_ns and client.task is not None:
            self.engine.advance(now_ns)
            self.engine.overrun(client.task, overran_ns, now_ns)

    def stands(self, record: Record, now_ns: int) -> None:
        """A process has another standing. It may have clients at other arbiters, too."""
        for client in record.clients:
            if client.task is not None and self.clients.get(client.task.name) is client:
                self._place(client, now_ns)

    def remove(self, client: Client, now_ns: int) -> None:
        """The program is gone, wherever it was; nobody may wait for it."""
        task = client.task
        if task is None:
            return
        self.online.settle(now_ns)
        self._heed(client, self.conduct.leaves(client, now_ns), now_ns)
        self.clients.pop(task.name, None)
        self._awake.gone(client)
        self._at_once.gone(client)
        self._back.forget(client)
        self._end(client, now_ns)
        self.engine.advance(now_ns)
        self.engine.remove_task(task, now_ns)
        client.task = None
        self.decide(now_ns)

    def asked(self, client: Client, seq: int, signature: Signature, ask: int, now_ns: int) -> None:
        """The program asks for its group with this number. `ask`: which of its port's `asks` it is,
        if the program does not wait for the answer; else 0."""
        self.online.settle(now_ns)
        self._hear_of(client, now_ns)
        if ask and client.turns and ask == client.request.asks:
            return  # it was seen before it was heard
        if not ask and leases.is_used(client):
            return  # it asked before it saw its lease
        self._heed(client, self.conduct.asks(client, now_ns), now_ns)
        if not (ask and ends.will_ask(client)):
            client.request.asks = ask or client.request.asks
            if ask and ends.goes_again(client):
                self._job_asks(client, now_ns)
                return
            self._close_gates(client)
            client.request.awaited, client.request.seq = True, seq
            self._submit(client, signature, now_ns)
        self._job_asks(client, now_ns)
        self.decide(now_ns)

    def completed(self, client: Client, seq: int, now_ns: int, *, frame: bool) -> None:
        """The group that was granted is done."""
        self.online.settle(now_ns)
        if seq == client.request.seq:
            self._heed(client, self.conduct.answered(client, now_ns), now_ns)
        # Else it lost the GPU meanwhile, and was charged then.
        if client in self.online.clients and not client.leased and seq == client.request.seq:
            if client.group is not None:
                client.group.frame = frame
            self._end(client, now_ns)
            self.engine.advance(now_ns)
            self._maybe_lease(client, now_ns)
        self.decide(now_ns)

    def released(self, client: Client, now_ns: int, *, rests: bool) -> None:
        """The program no longer uses its lease, and, if it `rests`, has nothing more to do."""
        self.online.settle(now_ns)
        self._hear_of(client, now_ns)
        self._heed(client, self.conduct.answered(client, now_ns), now_ns)
        self._released(client, now_ns, rests=rests)
        self.decide(now_ns)

    def withdrew(self, client: Client, seq: int, now_ns: int) -> None:
        """The program went without its grant, which may be on its way."""
        self.online.settle(now_ns)
        if (
            seq == client.request.seq and not client.leased
        ):  # else it is about another group: too late
            if client in self.online.clients:
                self._end(client, now_ns)
            elif client.task is not None and client.task.waiting is not None:
                self._withdraw(client, now_ns)
        self.decide(now_ns)

    def takes_turns(self, client: Client, now_ns: int) -> None:
        """A grant is a lease to this program, which says when it is done with it."""
        self.online.settle(now_ns)
        client.turns = client not in self.online.clients
        if client.port is not None:
            client.port.set_polled(False)  # the port is one of turns from now on
        self._hear_of(client, now_ns)
        self.decide(now_ns)

    # -- looking -----------------------------------------------------------------------------

    def _hear_of(self, client: Client, now_ns: int) -> None:
        """The program has said something, in whatever way."""
        if client.turns:
            self._awake.heard(client, now_ns)
            self._at_once.asks(client)

    def set_polling(self, on: bool, now_ns: int) -> None:
        """From now on `poll` is called all the time, or, after this, no more."""
        if on == self._awake.looks:
            return
        if on:
            self._awake.begin(now_ns)
        else:
            self._look_at(self._awake.end(), now_ns)

    @property
    def next_poll_ns(self) -> int | None:
        """When `poll` has something to do that no program says: a gate may open early."""
        return self._early_gate.next_ns

    @property
    def rounds(self) -> int:
        """After so many polls every port was looked at that is looked at."""
        return self._awake.rounds

    def poll(self, now_ns: int) -> bool:
        """What programs say by their port alone: saying it in a message would cost the important
        ones more than the rest of it. Whether somebody said something."""
        return self._look_at(self._awake.some(now_ns), now_ns)

    def _look_at(self, clients: list[Client], now_ns: int) -> bool:
        self._early_gate.look(now_ns, 0)
        changed = False
        for client in clients:
            changed |= client.task is not None and self._see(client, now_ns)
        if changed:
            self.decide(now_ns)
        return changed

    def _see(self, client: Client, now_ns: int) -> bool:
        """Look at one port; whether there is something to decide on."""
        port = client.port
        if port is None:
            return False
        asks, busy = port.asks, port.busy
        if asks != client.request.asks and ends.goes_again(client):
            client.request.asks = asks
            self._hear_of(client, now_ns)
            self._job_asks(client, now_ns)
        elif asks != client.request.asks and busy and not ends.will_ask(client):
            client.request.asks = asks
            self.online.settle(now_ns)
            self._hear_of(client, now_ns)
            self._heed(client, self.conduct.asks(client, now_ns), now_ns)
            self._close_gates(client)
            self._submit(client, A_TURN, now_ns)
            self._job_asks(client, now_ns)
            return True
        elif not busy and ends.rests(client, port, now_ns):
            client.request.asks = asks
            if self.bounds.tick_ns is None:  # first: the GPU may have nothing to do
                self._early_gate.job_over(client, now_ns)
            self.online.settle(now_ns)
            self._hear_of(client, now_ns)
            self._heed(client, self.conduct.answered(client, now_ns), now_ns)
            self._released(client, now_ns, rests=True)
            return True
        elif ends.has_stopped(client, now_ns):
            return True
        elif busy and port.end_reached:
            self._early_gate.end_reached(client, now_ns)
        return False

    # -- groups ------------------------------------------------------------------------------

    def _close_gates(self, client: Client) -> None:
        """The gates of less important turns close before anything else is done: every microsecond
        counts that they go on. The decision itself comes to the same."""
        task = client.task
        if task is None or (task.reserve is not None and task.reserve.budget_ns <= 0):
            return
        self._early_gate.asked(task)
        if task.corun:
            return
        for holder in self.online.clients:
            less = holder.task is not None and holder.task.rank > task.rank
            if less and holder.turns and holder.leased and holder.port is not None:
                holder.port.set_lease(False)

    def _job_asks(self, client: Client, now_ns: int) -> None:
        """It asks for a turn: does a job begin, or is it in the middle of one?"""
        port = client.port
        if not client.turns or port is None:
            return
        known = client.jobs.begun
        began = not port.jobs_begun and client.jobs.asked(port.paused, now_ns)
        if began:
            self._back.learned(client)
        self.look_at_jobs(client, now_ns)
        if (began or client.jobs.begun != known) and self.bounds.tick_ns is None:
            self._early_gate.job_began(client, now_ns)

    def look_at_jobs(self, client: Client, now_ns: int) -> None:
        """Have everybody hear of jobs that are over: the program keeps records of the last ones."""
        port, task = client.port, client.task
        if port is None or task is None:
            return
        if not client.turns:
            for number, report in client.jobs.frames(port, now_ns):
                job = corunning.judge_frame(client, number, report, self.goal_of(client), now_ns)
                self.engine.tell("job_ended", job, at_ns=now_ns)
            return
        begun = client.jobs.begun
        for number, report in client.jobs.look(port, now_ns):
            self._job_ended(client, number, report, now_ns)
        if client.jobs.begun != begun:
            self._back.learned(client)
        if port.jobs_begun:
            side_by_side = client.company.side_by_side
            window_ns = self.bounds.window_ns
            preemption_ns = self.profile.preemption_ns(window_ns, side_by_side=side_by_side)
            loss_ns = int(preemption_ns / self.goal_of(client))
            client.jobs.learn(port, Costs(preemption_ns, loss_ns), task.period_ns)

    def goal_of(self, client: Client) -> float:
        """By which part of what a job of the client takes alone it may take longer."""
        return self.bounds.slowdown if client.slowdown is None else client.slowdown

    def _job_ended(self, client: Client, number: int, report: JobReport, now_ns: int) -> None:
        job = corunning.judge(client, number, report, self.goal_of(client), now_ns)
        self.engine.tell("job_ended", job, at_ns=now_ns)
        level = corunning.level_of(client)
        if client.task is not None and level != client.task.corun:
            self._stand(client, client.task, level, now_ns)

    def _stand(self, client: Client, task: Task, level: float, now_ns: int) -> None:
        """The task stands others beside its jobs for such a part of the time. If that is none any
        more, either it has the GPU for itself from now on, or, if it is in no job, has to ask."""
        task.corun = level
        if level or not client.goes_on or client.port is None:
            return
        others = [c for c in self.online.clients if c.goes_on and c is not client]
        if client.port.busy:
            for other in others:
                if other.task is not None and other.task.rank > task.rank:
                    self._revoke(other, now_ns)
        elif others:
            self._revoke(client, now_ns)
        self.decide(now_ns)

    def _mixes_with(self, client: Client, task: Task, now_ns: int) -> Hashable | None:
        """With which equals it may be on the GPU together. Somebody more important who has the GPU
        for itself would wait for what each of them has in flight, if it comes often."""
        above = self._at_once.above(task)
        if any(self._awake.is_awake(other, now_ns) for other in above):
            return None
        return corunning.mixes_with(client)

    def _submit(self, client: Client, said: Signature, now_ns: int) -> None:
        task = client.task
        assert task is not None
        # Whatever was online is over: a program sends one group at a time, and asks under a lease
        # only if it could not see it yet.
        self._end(client, now_ns)
        if task.waiting is not None:
            self.engine.withdraw(task, now_ns)
        self.engine.advance(now_ns)
        task.mixes = self._mixes_with(client, task, now_ns)
        signature = _signature(client, said)
        deadline_ns = None if client.deadline_ns is None else now_ns + client.deadline_ns
        group = Group(
            task,
            client.request.index,
            deadline_ns=deadline_ns,
            signature=signature,
            features=client.features(),
        )
        client.request.index += 1
        client.group = group
        task.begins_job = ends.begins_job(client)
        self.engine.submit(group, now_ns)
        if client.turns and client.port is not None:
            client.port.set_waits(True)

    def _released(self, client: Client, now_ns: int, *, rests: bool) -> None:
        task = client.task
        assert task is not None
        if client.turns and task.waiting is not None:
            if client.port is not None and client.port.busy:
                return  # it says so of the turn before
            # It had begun with the asking, and was done before the answer.
            self._withdraw(client, now_ns)
        if leases.is_used(client):
            return  # what it said was of the job before
        if client.turns and rests:
            self._part_corunning(client, now_ns)
            if self.bounds.tick_ns is None:
                self._early_gate.job_over(client, now_ns)
        if client.leased:
            self._part(client, now_ns)
        if not client.turns or task.waiting is not None:  # or it has begun again meanwhile
            return
        if rests:
            self._job_rests(client, now_ns)
            self.engine.rest(task, now_ns)
            self.engine.advance(now_ns)
            self._maybe_lease(client, now_ns)

    def _job_rests(self, client: Client, now_ns: int) -> None:
        if client.port is not None and client.port.jobs_begun:
            self.look_at_jobs(client, now_ns)
            return
        over = client.jobs.rested(now_ns)
        if over is not None:
            self._job_ended(client, *over, now_ns)

    def _end(self, client: Client, now_ns: int) -> None:
        """Whatever the client has online is over."""
        corunning.left(client, now_ns, waited_for=bool(self.engine.any_ready))
        self.online.end(client, now_ns)

    def _withdraw(self, client: Client, now_ns: int) -> None:
        """It waits no longer; if it does after all, it has to say so."""
        assert client.task is not None
        self.engine.withdraw(client.task, now_ns)
        client.group = None
        if client.turns and client.port is not None:
            client.port.set_waits(False)

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
        for holder in [c for c in self.online.clients if c.leased]:
            self._review(holder, now_ns)
        group = self.engine.dispatch(now_ns)
        while group is not None:
            self._let_go(group, now_ns)
            group = self.engine.dispatch(now_ns)
        self._early_gate.decided()
        self.online.set_bounds(now_ns)
        corunning.notice(self.online.clients, now_ns)
        self._at_once.tell(self.online.clients)
        if self.bounds.tick_ns is None:
            self._back.review(now_ns)

    def _review(self, holder: Client, now_ns: int) -> None:
        """May this lease be kept, and until when?"""
        wanted = bool(self.engine.any_ready)
        if holder.turns:
            self._want(holder, wanted, now_ns)
        if holder.revoked:
            if holder.turns and not ends.drains(holder, now_ns):
                self._part(holder, now_ns)
            return
        review_ns = None
        if holder.turns:
            review_ns = ends.ends_ns(self.engine, holder, now_ns, self.profile.slice_ns)
        elif wanted:
            review_ns = leases.keep_until_ns(self.engine, holder, self._waiting(), now_ns)
        leases.review_at(holder, review_ns)
        if review_ns is not None and now_ns >= review_ns:
            self._revoke(holder, now_ns)
        elif holder.turns and holder.port is not None:
            holder.port.keep_lease()

    def _want(self, holder: Client, wanted: bool, now_ns: int) -> None:
        leases.want(holder, wanted, now_ns)
        if holder.port is not None:
            on = ends.is_wanted(self.engine, holder, self.online.clients)
            seen = self._awake.looks and self.bounds.tick_ns is None
            holder.port.set_wanted(on, marks=seen and early_gate.tells(holder))

    def _let_go(self, group: Group, now_ns: int) -> None:
        """The engine decided; tell the program."""
        client = self.clients[group.task.name]
        self.online.go(client, now_ns)
        if client.turns:
            self._lend(client, now_ns)
        client.request.groups += 1
        self.grants += 1
        if client.request.awaited:
            client.request.awaited = False
            self._grant(client)

    def tick(self, now_ns: int) -> None:
        """Timers: replenishments, policies, and groups that take too long."""
        if self._back.next_ns is not None and now_ns >= self._back.next_ns:
            self._back.review(now_ns)  # first: a long piece that begins meanwhile is not held back
        self._early_gate.look(now_ns)
        self.online.settle(now_ns)
        if self.engine.any_ready:
            for client in [c for c in self.online.clients if c.turns and c.goes_on]:
                review_ns = client.lease.review_ns
                if review_ns is not None and now_ns >= review_ns:
                    self.look_at_jobs(client, now_ns)  # it says nothing while it keeps its turn
            for client in list(self.online.clients):
                account = client.account
                if account.bound_ns is not None and now_ns >= account.bound_ns:
                    self.online.is_overdue(client, now_ns)
                    self._part(client, now_ns)
        self.pump(now_ns)

    def next_timer_ns(self) -> int | None:
        """When `tick` has something to do."""
        online = self.online.clients
        times = [self._due_ns, self._back.next_ns]
        if not self._awake.looks:  # else it is looked at with the port
            times.append(self._early_gate.next_ns)
        times.append(self.engine.next_timer_ns())
        times.extend(c.lease.review_ns for c in online if c.goes_on)
        times.extend(ends.period_ends_ns(c) for c in online)
        wanted = bool(self.engine.any_ready)
        if wanted:
            times.extend(client.account.bound_ns for client in online)
        drains = [c for c in online if c.turns and c.revoked]
        if drains and wanted:
            look_ns = ends.DRAIN_SPIN_NS if self._awake.looks else ends.DRAIN_NS
            times.append(self.engine.now_ns + look_ns)
        elif len(online) > 1 and any(ends.will_ask(c) for c in drains):
            times.append(self.engine.now_ns + ends.DRAIN_NS)
        elif any(c.port is not None and c.port.gated for c in drains):  # it may say nothing
            times.append(self.engine.now_ns + ends.DRAIN_ALONE_NS)
        soonest_ns = min((time for time in times if time is not None), default=None)
        return None if soonest_ns is None else self._on_tick_ns(soonest_ns)

    def _part(self, holder: Client, now_ns: int) -> None:
        """A turn that was taken back is over. What waits on the GPU for the next one asks for it:
        its program may have nothing to say for long. One that gets nothing done has to say
        something first, or turn after turn would be its own."""
        self._end(holder, now_ns)
        port = holder.port
        if not holder.turns or port is None or not port.pending:
            return
        if port.asks != holder.request.asks or not ends.is_over(holder, now_ns):
            holder.request.asks = port.asks
            self._submit(holder, A_TURN, now_ns)

    def _part_corunning(self, client: Client, now_ns: int) -> None:
        """Turns that were taken back for this one's job, which went beside them and is over. What
        is left of them is on the GPU in any case, and nobody needs to wait for its end, unless
        somebody more important does."""
        for other in list(self.online.clients):
            if other is client or not (other.revoked and other.turns) or other.task is None:
                continue
            if self.engine.any_ready and self.engine.best_ready_rank() < other.task.rank:
                continue
            if other.port is not None and other.port.gated:
                self._part(other, now_ns)

    # -- leases ------------------------------------------------------------------------------

    def _maybe_lease(self, client: Client, now_ns: int) -> None:
        """Nobody else wants the GPU, or nobody as important: whoever used it last may go on
        without asking."""
        task, port = client.task, client.port
        if task is None or port is None or self.online.clients or not self.bounds.leases:
            return
        if self.bounds.tick_ns is not None:  # a decision, and this is between two ticks
            return
        if client.serves or (task.reserve is not None and not client.turns):
            return
        if self.engine.any_ready:
            if client.turns or self.engine.best_ready_rank() <= task.rank:
                return
            if leases.patience_ends_ns(self.engine, client) <= now_ns:
                return
        task.mixes = self._mixes_with(client, task, now_ns)
        # A lease without turns lasts for groups of many kinds, so nobody predicts its cost.
        signature = _signature(client, A_TURN) if client.turns else None
        client.group = Lease(task, client.request.index, signature=signature)
        client.request.index += 1
        self.engine.submit(client.group, now_ns)
        decided = self.engine.dispatch(now_ns)
        if decided is not client.group:  # its policy lets it wait, or another one's comes first
            self.engine.withdraw(task, now_ns)
            client.group = None
            if decided is not None:
                self._let_go(decided, now_ns)
            return
        self.online.go(client, now_ns)
        self._lend(client, now_ns)

    def _lend(self, client: Client, now_ns: int) -> None:
        """What the client has online is a lease."""
        self.leases += 1
        if client.turns and self.bounds.tick_ns is None:
            self._back.hold(client, now_ns)
        self.online.lend(client, now_ns)
        if client.turns:
            self._want(client, bool(self.engine.any_ready), now_ns)
            leases.review_at(
                client, ends.ends_ns(self.engine, client, now_ns, self.profile.slice_ns)
            )

    def settle(self, now_ns: int) -> None:
        """Bring budgets up to date: call this before a reserve changes, or periods that are over
        would be charged to the reserve as it will be."""
        self.online.settle(now_ns)
        self.engine.advance(now_ns)

    def take_back(self, client: Client, now_ns: int) -> None:
        """Its circumstances changed, say by a reserve: it must ask for every group again. A new
        reserve has no periods that are over."""
        self.online.has_new_reserve(client, now_ns)
        if client.goes_on:
            self._revoke(client, now_ns)

    def _revoke(self, holder: Client, now_ns: int) -> None:
        """Take a lease back. If its holder is not using it, that is all; else it will say so."""
        port = holder.port
        leases.revoke(holder, now_ns)
        self.online.bound(holder, now_ns)
        if port is None or not port.busy:
            # Its hold-off is over with the lease; a GPU of its own is not to wait for it once more.
            rests = holder.turns or any(client.turns for client in self._waiting())
            self._end(holder, now_ns)
            if rests and holder.task is not None:
                self.engine.rest(holder.task, now_ns)

    def _waiting(self) -> list[Client]:
        """Those who could go now: the first of them, if they are many."""
        return [self.clients[g.task.name] for g in self.engine.first_ready(ends.LOOKED_AT)]
