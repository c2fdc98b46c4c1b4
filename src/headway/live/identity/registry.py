"""Who is who: from a connection to a task of the engine."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from headway.engine.choice import TURNS_POLICY
from headway.engine.core import Engine
from headway.engine.cost_models.exact import Exact
from headway.engine.cost_models.history import History
from headway.engine.model import Task
from headway.engine.reserves import ReserveSpec
from headway.engine.settings import describe
from headway.engine.shares import ANY
from headway.engine.spec import Spec
from headway.live.desktop.servers import Inherit
from headway.live.gate.channel import Channel, Peer
from headway.live.identity.launches import Claims, Launches, life
from headway.live.identity.options import TaskOptions
from headway.live.identity.rights import Allow, Rights
from headway.live.server.requests import Request
from headway.live.wire.protocol import Hello

DEFAULT_POLICY = "prt"


class Registry:
    """Names, spec entries and launch options."""

    def __init__(
        self,
        engine_of: Callable[[Channel], Engine],
        engines: Callable[[], Collection[Engine]],
        spec: Spec,
        allow: Allow | None = None,
        inherit: Inherit | None = None,
        folder: Path | None = None,
    ) -> None:
        """`engine_of` is that of the GPU a connection is for, one of `engines`. What is said of
        programs is kept in the folder, if there is one."""
        self._engine_of = engine_of
        self._engines = engines
        self.launches = Launches(folder and folder / "launches")
        self._claims = Claims(folder and folder / "claims")
        self._inherit = inherit or Inherit()
        self.spec = spec
        self.rights = Rights(spec, allow)

    def tidy(self) -> None:
        """Of what was said to daemons before, forget what is about nobody any more."""
        self.launches.tidy()
        self._claims.tidy()

    # -- tasks -------------------------------------------------------------------------------

    def enrol(self, channel: Channel, hello: Hello, now_ns: int) -> Task:
        """Make a task for a channel: launch options first, then the spec, then the default; and on
        top of that what the program says of itself now."""
        claims = self._claims.of(channel.identity[1])
        task = self._enrol(channel, hello, claims[-1].name if claims else None, now_ns)
        self._engine_of(channel).stand_together(task, self.rights.parties_of(channel.peer), now_ns)
        if claims:
            channel.task = task
            channel.before = _as_it_is(channel, task)
            channel.note = self._become(channel, claims[-1], now_ns) or channel.note
        return task

    def _enrol(self, channel: Channel, hello: Hello, name: str | None, now_ns: int) -> Task:
        options = self._options_of(channel, hello)
        name = name or (options.name if options is not None else None) or hello.name
        channel.name = name
        engine = self._engine_of(channel)
        entry = self.spec.match(name)
        unique = f"{name}.{channel.peer.pid}"
        # Names are what programs say.
        while any(unique in other.tasks for other in self._engines()):
            unique = f"{unique}.{channel.number}"
        # Anybody may turn out to be a server. What is lent to Background all its members could use.
        pix, rix = self._inherit.pix, self._inherit.rix
        if entry is None and options is None and self.spec.entries:
            channel.note = "no entry of the spec matches it: Background"
            return engine.add_background_task(unique, now_ns, pix=pix)
        options = options or TaskOptions()
        if entry is not None:
            options = replace(
                options,
                policy=options.policy or (entry.policy if entry.chosen else None),
                priority=options.priority or entry.priority,
                reserve=options.reserve or entry.reserve.spec,
                period_ns=options.period_ns or entry.period_ns,
                deadline_ns=options.deadline_ns or entry.deadline_ns,
                slowdown=options.slowdown or entry.slowdown,
                predict=options.predict or (None if entry.predict == Exact.name else entry.predict),
                shares=options.shares or entry.shares,
            )
        options, channel.note = self.rights.within(channel.peer, options)
        policy = options.policy or DEFAULT_POLICY
        channel.chosen = options.policy is not None
        if entry is not None and entry.reserve.background and options.reserve is None:
            return engine.add_background_task(unique, now_ns, policy=policy, pix=pix)
        task, _ = engine.add_task(
            unique,
            now_ns,
            policy=policy,
            priority=options.priority,
            period_ns=options.period_ns,
            pix=pix,
            rix=rix,
            predict=options.predict,
        )
        self.set_goals(channel, options)
        task.shares = options.shares or ANY
        if options.reserve is not None:
            self._reserve(channel, task, options.reserve, now_ns)
        return task

    def takes_turns(self, channel: Channel, now_ns: int) -> None:
        """The program turns out to take turns: the policy that suits these, if nobody chose one."""
        task = channel.task
        if channel.chosen or task is None:
            return
        options, _ = self.rights.within(channel.peer, TaskOptions(policy=TURNS_POLICY))
        if options.policy is not None:
            self._engine_of(channel).set_policy(task, options.policy, now_ns)

    # -- what programs say of themselves -----------------------------------------------------

    def claim(
        self, peer: Peer, options: TaskOptions, said: Request, channels: list[Channel], now_ns: int
    ) -> str:
        """This process begins a task; says what cannot be done."""
        self._claims.begin(life(peer.pid), options, said)
        return self._follow(peer, channels, now_ns)

    def unclaim(self, peer: Peer, channels: list[Channel], now_ns: int) -> str:
        """It ends the innermost one."""
        self._claims.end(life(peer.pid))
        return self._follow(peer, channels, now_ns)

    def _follow(self, peer: Peer, channels: list[Channel], now_ns: int) -> str:
        claims, problem = self._claims.of(life(peer.pid)), ""
        for channel in channels:
            if channel.before is None and channel.task is not None:
                channel.before = _as_it_is(channel, channel.task)
            now = claims[-1] if claims else channel.before
            if now is not None:
                problem = self._become(channel, now, now_ns) or problem
        return problem

    def _become(self, channel: Channel, options: TaskOptions, now_ns: int) -> str:
        task = channel.task
        assert task is not None
        engine = self._engine_of(channel)
        if options is not channel.before:  # said to a daemon before, perhaps, which allowed more
            options, channel.note = self.rights.within(channel.peer, options)
        if options.policy is not None:
            channel.chosen = True
            engine.set_policy(task, options.policy, now_ns)
        if options.priority is not None:
            engine.set_priority(task, options.priority, now_ns)
        task.period_ns = options.period_ns
        task.shares = options.shares or task.shares
        self.set_goals(channel, options)
        if options.reserve is not None:
            return self.change_reserve(channel, options.reserve, channel.peer.uid, now_ns)
        if channel.before is not None and channel.before.reserve is None:
            engine.set_reserve(task, None, now_ns)
        return ""

    def set_goals(self, channel: Channel, options: TaskOptions) -> None:
        """How long jobs of the channel may take, as the options say: a deadline, or how much longer
        than alone."""
        channel.slowdown = options.slowdown
        channel.deadline_ns = options.deadline_ns or options.period_ns
        if channel.pages is not None:
            channel.pages.set_deadline(channel.deadline_ns or 0)

    def change_goals(self, channel: Channel, options: TaskOptions, now_ns: int) -> None:
        """Change a running task's period, deadline, slowdown and shares, as far as given."""
        task = channel.task
        if task is not None and options.shares is not None:
            task.shares = options.shares
        if (
            task is None
            or (options.period_ns, options.deadline_ns, options.slowdown) == (None,) * 3
        ):
            return
        before = _as_it_is(channel, task)
        given = None if before.deadline_ns == before.period_ns else before.deadline_ns
        now = replace(
            before,
            period_ns=options.period_ns or before.period_ns,
            deadline_ns=options.deadline_ns or given,
            slowdown=options.slowdown or before.slowdown,
        )
        self.set_goals(channel, now)
        if options.period_ns is not None:
            task.period_ns = options.period_ns
            # rm orders by the period
            self._engine_of(channel).set_priority(task, task.rule, now_ns)

    def _options_of(self, channel: Channel, hello: Hello) -> TaskOptions | None:
        options = self.launches.find(hello.token, channel.identity[1])
        if options is None or options.uid != channel.peer.uid:
            return None
        channel.token = hello.token
        return options

    def _pool_of(self, channel: Channel, spec: ReserveSpec) -> tuple[ReserveSpec, bool]:
        """Several channels of one program are one task to its owner: they share its reserve. And
        what a group will cost is not known beforehand here, as it is in a simulation. Also says
        whether its numbers are the user's to choose."""
        shared = spec.shared or f"{channel.name}.{channel.peer.pid}"
        spec, own = self.rights.pool_of(channel.peer.uid, replace(spec, shared=shared))
        predict = History.name if spec.predict == Exact.name else spec.predict
        return replace(spec, predict=predict), own

    def _reserve(self, channel: Channel, task: Task, spec: ReserveSpec, now_ns: int) -> None:
        engine = self._engine_of(channel)
        ledger = engine.ledger
        spec, own = self._pool_of(channel, spec)
        pool = ledger.pools.get(spec.shared or "")
        if pool is not None and pool.members:
            # Whoever opened a pool chose its numbers; those who come later share what there is.
            if pool.spec != spec:
                numbers = describe(pool.spec)
                channel.note = f"the pool {spec.shared!r} has {numbers}: it counts here too"
            spec = pool.spec
        elif own and (why := self.rights.may_reserve(channel.peer.uid, spec, ledger)):
            engine.make_background(task, now_ns)
            channel.note = f"its reserve was turned away ({why}): Background"
            return
        answer = engine.set_reserve(task, spec, now_ns)
        if not answer.accepted:
            channel.note = f"its reserve was turned away ({answer.why}): Background"

    def change_reserve(self, channel: Channel, spec: ReserveSpec, uid: int, now_ns: int) -> str:
        """Give a task that runs another reserve, and its pool with it, as this user wants; says
        why not."""
        task, engine = channel.task, self._engine_of(channel)
        ledger = engine.ledger
        assert task is not None
        spec, own = self._pool_of(channel, spec)
        pool = ledger.pools.get(spec.shared or "")
        if own and (why := self.rights.may_reserve(uid, spec, ledger)):
            return why
        if pool is not None and pool.members and pool.spec != spec:
            if own:
                answer = engine.change_pool(spec.shared or "", spec, now_ns)
                if not answer.accepted:
                    return answer.why
            spec = pool.spec
        answer = engine.set_reserve(task, spec, now_ns)
        if answer.accepted:
            channel.note = ""
        return answer.why

    def replace(self, spec: Spec) -> None:
        """A new spec counts for new channels."""
        self.spec = spec
        for engine in self._engines():
            engine.limit = spec.settings.limit
            engine.longest_ns = spec.settings.longest_ns
        self.rights.follow(spec)


def _as_it_is(channel: Channel, task: Task) -> TaskOptions:
    """What would make the channel's task what it is now."""
    return TaskOptions(
        policy=task.choice.text,
        priority=task.rule,
        reserve=None if task.reserve is None else task.reserve.spec,
        period_ns=task.period_ns,
        deadline_ns=channel.deadline_ns,
        slowdown=channel.slowdown,
        shares=task.shares,
    )
