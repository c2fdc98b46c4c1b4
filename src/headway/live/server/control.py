"""The control socket: one JSON object a line in, one a line out."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.live.gate.channel import Channel, Peer, peer_of
from headway.live.identity.launches import life
from headway.live.identity.wishes import Wish
from headway.live.server import requests
from headway.live.server.loop import READ, WRITE, describe_failure, log
from headway.live.server.requests import Refusal, Request
from headway.live.watch.explain import explain
from headway.live.wire import paths

if TYPE_CHECKING:
    from headway.live.server.daemon import Daemon

MAX_LINE = 65536
LINES_A_TURN = 8
"""More than these wait until the others were heard."""
MAX_EXPLAINED = 8


class Caller:
    """One control connection: what it said and what it has not read yet."""

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.socket = connection
        self.peer = peer
        self.heard = bytearray()
        self.unread = bytearray()


class Control:
    """Answers `run`, `status`, `explain`, `set`, `trace`, `reload` and `stop`, and hears what
    programs say of themselves."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._callers: dict[Caller, None] = {}
        """Who said something last stands last."""
        self._asking: Caller | None = None
        """Whose line is being answered."""
        self.room = 64

    def accept(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        if not self._daemon.registry.rights.may_connect(peer):
            self._daemon.refused += 1
            connection.close()
            return
        while len(self._callers) >= self.room:
            self._close(next(iter(self._callers)))  # it was silent for longest
        caller = Caller(connection, peer)
        self._callers[caller] = None
        self._daemon.loop.watch(
            connection.fileno(), lambda: self._ready(caller), lambda: self._close(caller)
        )

    def close(self) -> None:
        """What was answered goes out as far as it can, and that is the end."""
        for caller in list(self._callers):
            self._close(caller)

    def _ready(self, caller: Caller) -> None:
        if caller not in self._callers:
            return
        try:
            if caller.unread:
                self._send(caller)
                return
            data = caller.socket.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        caller.heard += data
        if not data or len(caller.heard) > 2 * MAX_LINE:
            self._close(caller)
            return
        self._callers.pop(caller)
        self._callers[caller] = None
        self._answer(caller)

    def _answer(self, caller: Caller) -> None:
        """Answer some of the lines that came. Nothing more is read until all were answered, and
        none is answered while earlier answers are unread: the caller pays for its own haste."""
        if caller not in self._callers:
            return
        for _ in range(LINES_A_TURN):
            end = caller.heard.find(b"\n")
            if end < 0 or end > MAX_LINE or caller.unread:
                break
            self._asking = caller
            line = bytes(caller.heard[:end])
            del caller.heard[: end + 1]
            answer = json.dumps(self._handle(line, caller.peer), separators=(",", ":"))
            caller.unread += answer.encode() + b"\n"
            self._send(caller)
            if caller not in self._callers:
                return
        end = caller.heard.find(b"\n")
        if end > MAX_LINE or (end < 0 and len(caller.heard) > MAX_LINE):
            self._close(caller)
        else:
            self._wait(caller)

    def _send(self, caller: Caller) -> None:
        try:
            sent = caller.socket.send(caller.unread)
            del caller.unread[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._close(caller)
            return
        self._wait(caller)

    def _wait(self, caller: Caller) -> None:
        """For room to write, for our own next turn, or for more to read."""
        loop, fd = self._daemon.loop, caller.socket.fileno()
        if caller.unread:
            loop.want(fd, WRITE)
        elif b"\n" in caller.heard:
            loop.want(fd, 0)
            loop.soon(lambda: self._answer(caller), lambda: self._close(caller))
        else:
            loop.want(fd, READ)

    def _close(self, caller: Caller) -> None:
        if caller in self._callers:
            del self._callers[caller]
            self._daemon.recordings.end(caller, time.monotonic_ns())
            self._daemon.loop.unwatch(caller.socket.fileno())
            self._daemon.loop.close_later(caller.socket.close)

    def _handle(self, line: bytes, peer: Peer) -> dict[str, Any]:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise Refusal("expected a JSON object")
            method = getattr(self, f"do_{request.get('do')}", None)
            if method is None:
                raise Refusal(f"unknown request {str(request.get('do'))[:40]!r}")
            result: dict[str, Any] = method(request, peer)
            return {"ok": True, **result}
        except (ValueError, RecursionError) as error:
            return {"ok": False, "error": " ".join(str(error).split())[:500]}
        except Exception as error:
            log(describe_failure(error))
            words = "the daemon could not do that; its log says why"
            return {"ok": False, "error": words, "failed": True}

    def do_run(self, request: Request, peer: Peer) -> dict[str, Any]:
        """Somebody is about to start a program with these wishes."""
        wish = self._wish(request, peer)
        self._daemon.launched(peer.pid)
        self._daemon.foreground.offer(request.get("display"), request.get("authority"), peer)
        token = self._daemon.registry.launches.expect(wish, request, life(peer.pid))
        mps = self._daemon.mps
        return {
            "token": token,
            "software_gpu": self._daemon.software_gpu,
            "time_namespace": paths.time_namespace(),
            "environment": {} if mps is None else mps.environment,
        }

    def do_become(self, request: Request, peer: Peer) -> dict[str, Any]:
        """A program says what its GPU work is now, and until `unbecome`."""
        wish = self._wish(request, peer)
        return self._claim(peer, partial(self._daemon.registry.claim, peer, wish, request))

    def do_unbecome(self, request: Request, peer: Peer) -> dict[str, Any]:
        return self._claim(peer, partial(self._daemon.registry.unclaim, peer))

    def _claim(self, peer: Peer, change: Callable[[list[Channel], int], str]) -> dict[str, Any]:
        daemon, now_ns = self._daemon, time.monotonic_ns()
        own = [c for c in daemon.channels.values() if c.task is not None and c.peer.pid == peer.pid]
        daemon.arbiter.settle(now_ns)
        try:
            problems = change(own, now_ns)
            for channel in own:
                daemon.arbiter.take_back(channel, now_ns)
        finally:
            daemon.arbiter.pump(now_ns)
            daemon.arbiter.changed()
        if problems:
            raise Refusal(problems)
        return {}

    def _wish(self, request: Request, peer: Peer) -> Wish:
        wish = requests.wish(request, peer.uid)
        _, problem = self._daemon.registry.rights.within(peer, wish)
        if problem:
            raise Refusal(problem)
        return wish

    def do_status(self, request: Request, peer: Peer) -> dict[str, Any]:
        return {"status": self._daemon.status()}

    def do_explain(self, request: Request, peer: Peer) -> dict[str, Any]:
        """Why tasks wait now, and what they waited for."""
        channels = self._named(requests.text(request, "task") or "")
        return {"tasks": explain(self._daemon, channels[:MAX_EXPLAINED], time.monotonic_ns())}

    def _named(self, wanted: str) -> list[Channel]:
        """Channels by name, pid or full task name."""
        known = [c for c in self._daemon.channels.values() if c.task is not None]
        found = [c for c in known if c.task and wanted in (c.task.name, c.name, str(c.peer.pid))]
        if not found:
            names = [c.task.name for c in known if c.task is not None]
            there = f"there are {', '.join(names[:10])}" if names else "none runs here"
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            raise Refusal(f"no task is called {wanted!r}: {there}{more}")
        return found

    def do_stop(self, request: Request, peer: Peer) -> dict[str, Any]:
        if not self._daemon.registry.rights.may_rule(peer):
            raise Refusal("only the user of the daemon may stop it")
        self._daemon.stop()
        return {}

    def do_trace(self, request: Request, peer: Peer) -> dict[str, Any]:
        """After the answer every event goes to this caller, until it closes its side."""
        daemon = self._daemon
        if not daemon.registry.rights.may_rule(peer):
            raise Refusal("only the user of the daemon may record what it does")
        assert self._asking is not None
        daemon.arbiter.pump(time.monotonic_ns())
        daemon.recordings.start(self._asking.socket.dup(), daemon.engine, self._asking)
        return {}

    def do_reload(self, request: Request, peer: Peer) -> dict[str, Any]:
        if not self._daemon.registry.rights.may_rule(peer):
            raise Refusal("only the user of the daemon may have its spec read again")
        problem = self._daemon.reload()
        if problem:
            raise Refusal(problem)
        return {}

    def _remember(self, changed: list[Channel], request: Request) -> None:
        """The next daemon is to know it too, unless it is for some of a launch's processes only."""
        others = [c for c in self._daemon.channels.values() if c not in changed]
        for token in {c.token for c in changed} - {c.token for c in others}:
            self._daemon.registry.launches.change(token, request)

    def do_set(self, request: Request, peer: Peer) -> dict[str, Any]:
        """Change policy, priority or reserve of tasks that run."""
        daemon = self._daemon
        wanted = requests.text(request, "task") or ""
        rights = daemon.registry.rights  # a name may be another user's too; only one's own is meant
        channels = [c for c in self._named(wanted) if rights.may_manage(peer, c.peer.uid)]
        if not channels:
            raise Refusal(f"{wanted!r} belongs to another user")
        wish = self._wish(request, peer)
        policy, priority, reserve = wish.policy, wish.priority, wish.reserve
        now_ns = time.monotonic_ns()
        daemon.arbiter.settle(now_ns)
        try:
            for channel in channels:
                assert channel.task is not None
                if reserve is not None:  # first: it is what may be turned away
                    why = daemon.registry.change_reserve(channel, reserve, peer.uid, now_ns)
                    if why:
                        raise Refusal(why)
                if policy is not None:
                    daemon.engine.set_policy(channel.task, policy, now_ns)
                if priority is not None:
                    daemon.engine.set_priority(channel.task, priority, now_ns)
                daemon.arbiter.take_back(channel, now_ns)
            self._remember(channels, request)
        finally:
            daemon.servers.changed()
            daemon.arbiter.decide(now_ns)
            daemon.arbiter.changed()
            daemon.foreground.refresh()
        return {"tasks": [c.task.name for c in channels if c.task is not None]}
