"""What is asked on the control socket, and what is done about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.engine.priorities import PriorityRule
from headway.live.gate.channel import Channel, Peer
from headway.live.gate.conduct import describe_absence
from headway.live.identity.launches import life
from headway.live.identity.options import TaskOptions
from headway.live.server import requests
from headway.live.server.callers import Answer, Answering, Caller, Callers
from headway.live.server.report import Report, sample
from headway.live.server.requests import Refusal, Request
from headway.live.server.sharing import Shared
from headway.live.watch.explain import explaining
from headway.live.wire import paths

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

MAX_EXPLAINED = 8
A_STEP = 8
"""Tasks that are changed in one go."""
NAMED = 10
"""Tasks that are named to somebody who named none."""

Result = dict[str, Any]


class Control:
    """Answers what people and commands ask, one `do_…` for each request, and hears what programs
    say of themselves."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.callers = Callers(daemon, self._handle)
        self._status = Shared(partial(_status, Report(daemon)))

    def _handle(self, request: Request, caller: Caller) -> Answer | Answering:
        method = getattr(self, f"do_{request.get('do')}", None)
        if method is None:
            raise Refusal(f"unknown request {str(request.get('do'))[:40]!r}")
        result: Result | Answering = method(request, caller)
        if isinstance(result, Generator):
            return _finish(result)
        return {"ok": True, **result}

    def do_run(self, request: Request, caller: Caller) -> Result:
        """Somebody is about to start a program with these options."""
        options = self._options(request, caller.peer)
        self._daemon.launched(caller.peer.pid)
        self._daemon.foreground.offer(request.get("display"), request.get("authority"), caller.peer)
        token = self._daemon.registry.launches.expect(options, request, life(caller.peer.pid))
        mps = self._daemon.mps
        return {
            "token": token,
            "software_gpu": self._daemon.software_gpu,
            "time_namespace": paths.time_namespace(),
            "environment": {} if mps is None else mps.environment_of(self._priority_of(options)),
        }

    def _priority_of(self, options: TaskOptions) -> PriorityRule | None:
        """What a program that is about to start is given: on its command line, or by the spec."""
        if options.priority is not None or options.name is None:
            return options.priority
        entry = self._daemon.registry.spec.match(options.name)
        return None if entry is None else entry.priority

    def do_become(self, request: Request, caller: Caller) -> Result:
        """A program says what its GPU work is now, and until `unbecome`."""
        peer, registry = caller.peer, self._daemon.registry
        options = self._options(request, peer)
        return self._claim(peer, partial(registry.claim, peer, options, request))

    def do_unbecome(self, request: Request, caller: Caller) -> Result:
        return self._claim(caller.peer, partial(self._daemon.registry.unclaim, caller.peer))

    def _claim(self, peer: Peer, change: Callable[[list[Channel], int], str]) -> Result:
        daemon, now_ns = self._daemon, time.monotonic_ns()
        own = [c for c in daemon.directory.of_process(peer.pid) if c.task is not None]
        daemon.schedulers.settle(now_ns)
        try:
            problems = change(own, now_ns)
            for channel in own:
                daemon.schedulers.of(channel).arbiter.take_back(channel, now_ns)
            daemon.servers.changed(own)
        finally:
            daemon.schedulers.pump(now_ns)
        if problems:
            raise Refusal(problems)
        return {}

    def _options(self, request: Request, peer: Peer) -> TaskOptions:
        options = requests.task_options(request, peer.uid)
        _, problem = self._daemon.registry.rights.within(peer, options)
        if problem:
            raise Refusal(problem)
        return options

    def do_status(self, request: Request, caller: Caller) -> Answering:
        return self._status.answering()

    def do_account(self, request: Request, caller: Caller) -> Result:
        """What the programs of one launch of the caller's user came to, also after their end."""
        daemon, now_ns = self._daemon, time.monotonic_ns()
        token = requests.text(request, "token") or ""
        own = [c for c in daemon.directory.with_token(token) if c.peer.uid == caller.peer.uid]
        served = [(c, daemon.schedulers.of(c).stats.tasks) for c in own]
        tasks = [(c, known[c.task]) for c, known in served if c.task in known]
        for channel in own:
            sample(daemon, channel, now_ns)
        account = daemon.accounts.of(token, tasks, now_ns)
        return {"account": None if account is None else account.describe()}

    def do_explain(self, request: Request, caller: Caller) -> Answering:
        """Why tasks wait now, and what they waited for."""
        channels = self._named(requests.text(request, "task") or "")
        tasks = yield from explaining(self._daemon, channels[:MAX_EXPLAINED])
        return {"tasks": tasks}

    def _named(self, wanted: str) -> list[Channel]:
        """Channels by name, pid or full task name."""
        found = [c for c in self._daemon.directory.named(wanted) if c.task is not None]
        if not found:
            if away := describe_absence(self._daemon.conduct, wanted, time.monotonic_ns()):
                raise Refusal(away)
            names, others = self._daemon.directory.some_tasks(NAMED)
            there = f"there are {', '.join(names)}" if names else "none runs here"
            more = f" and {others} more" if others else ""
            raise Refusal(f"no task is called {wanted!r}: {there}{more}")
        return found

    def do_lock(self, request: Request, caller: Caller) -> Result:
        """A program asks for a token or a unit, or gives one back."""
        locks = self._daemon.locks
        if locks is None:
            raise Refusal("this daemon serves no tokens; start it with headway daemon --locks FILE")
        self._options({"priority": request.get("priority")}, caller.peer)
        return locks.handle(request, caller, time.monotonic_ns())

    def do_share(self, request: Request, caller: Caller) -> Result:
        """A launcher has a program share the GPU, or says what became of its jobs."""
        shares, peer = self._daemon.shares, caller.peer
        if request.get("act") == "controller":
            if not self._daemon.registry.rights.may_rule(peer):
                raise Refusal("only the user of the daemon may choose another controller")
            shares.choose(requests.text(request, "name") or "")
            return {}
        if request.get("priority") is not None:
            self._options({"priority": str(request["priority"])}, peer)
        return shares.handle(request, caller, time.monotonic_ns())

    def do_stop(self, request: Request, caller: Caller) -> Result:
        if not self._daemon.registry.rights.may_rule(caller.peer):
            raise Refusal("only the user of the daemon may stop it")
        self._daemon.stop()
        return {}

    def do_trace(self, request: Request, caller: Caller) -> Result:
        """After the answer every event goes to this caller, until it closes its side."""
        daemon = self._daemon
        if not daemon.registry.rights.may_rule(caller.peer):
            raise Refusal("only the user of the daemon may record what it does")
        if caller.records:
            raise Refusal("what happens is recorded to this connection already")
        daemon.schedulers.pump(time.monotonic_ns())
        reader = caller.socket.dup()
        try:
            daemon.recordings.start(reader, daemon.schedulers.engines, caller)
        except Exception:
            reader.close()
            raise
        caller.records = True
        return {}

    def do_reload(self, request: Request, caller: Caller) -> Result:
        if not self._daemon.registry.rights.may_rule(caller.peer):
            raise Refusal("only the user of the daemon may have its spec read again")
        problem = self._daemon.reload()
        if problem:
            raise Refusal(problem)
        return {}

    def _remember(self, changed: set[Channel], request: Request) -> None:
        """The next daemon is to know it too, unless it is for some of a launch's processes only."""
        for token in {channel.token for channel in changed}:
            if changed.issuperset(self._daemon.directory.with_token(token)):
                self._daemon.registry.launches.change(token, request)

    def do_set(self, request: Request, caller: Caller) -> Answering:
        """Change policy, priority, reserve or goals of tasks that run: some at a time, if many."""
        daemon, peer = self._daemon, caller.peer
        wanted = requests.text(request, "task") or ""
        rights = daemon.registry.rights  # a name may be another user's too; only one's own is meant
        channels = [c for c in self._named(wanted) if rights.may_manage(peer, c.peer.uid)]
        if not channels:
            raise Refusal(f"{wanted!r} belongs to another user")
        options = self._options(request, peer)
        names: list[str] = []
        try:
            for place in range(0, len(channels), A_STEP):
                some = [c for c in channels[place : place + A_STEP] if c.task is not None]
                self._set(some, options, peer)
                names += [c.task.name for c in some if c.task is not None]
                yield
            self._remember(set(channels), request)
        finally:
            daemon.foreground.refresh()
        return {"tasks": names}

    def _set(self, channels: list[Channel], options: TaskOptions, peer: Peer) -> None:
        daemon, now_ns = self._daemon, time.monotonic_ns()
        daemon.schedulers.settle(now_ns)
        try:
            for channel in channels:
                assert channel.task is not None
                scheduler = daemon.schedulers.of(channel)
                if options.reserve is not None:  # first: it is what may be turned away
                    why = daemon.registry.change_reserve(channel, options.reserve, peer.uid, now_ns)
                    if why:
                        raise Refusal(why)
                if options.policy is not None:
                    scheduler.engine.set_policy(channel.task, options.policy, now_ns)
                if options.priority is not None:
                    scheduler.engine.set_priority(channel.task, options.priority, now_ns)
                daemon.registry.change_goals(channel, options, now_ns)
                scheduler.arbiter.take_back(channel, now_ns)
        finally:
            daemon.servers.changed(channels)
            daemon.schedulers.decide(now_ns)


def _finish(steps: Answering) -> Answering:
    result = yield from steps
    return result if isinstance(result, bytes) else {"ok": True, **result}


def _status(report: Report) -> Generator[None, None, bytes]:
    status = yield from report.telling()
    return b'{"ok":true,"status":' + status + b"}\n"
