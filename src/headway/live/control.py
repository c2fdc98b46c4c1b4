"""The control socket: one JSON object a line in, one a line out."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

from headway.engine.policies import policies
from headway.engine.priorities import parse_priority
from headway.engine.reserves import ReserveSpec
from headway.live.channel import Peer, peer_of
from headway.live.registry import Wish
from headway.live.wishes import parse_reserve

if TYPE_CHECKING:
    from headway.live.daemon import Daemon

MAX_LINE = 65536


class Refusal(ValueError):
    """A request that cannot be done; the text goes back to the caller."""


class Control:
    """Answers `run`, `status`, `set` and `stop`."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._buffers: dict[int, bytearray] = {}

    def accept(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        if not self._daemon.registry.may_connect(peer):
            connection.close()
            return
        fd = connection.fileno()
        self._buffers[fd] = bytearray()
        self._daemon.watch(fd, lambda events: self._readable(connection, peer))

    def _readable(self, connection: socket.socket, peer: Peer) -> None:
        try:
            data = connection.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer = self._buffers[connection.fileno()]
        buffer += data
        if not data or len(buffer) > MAX_LINE:
            self._close(connection)
            return
        while b"\n" in buffer:
            line, _, rest = bytes(buffer).partition(b"\n")
            buffer[:] = rest
            try:
                self._answer(connection, self._handle(line, peer))
            except OSError:
                self._close(connection)
                return

    def _close(self, connection: socket.socket) -> None:
        self._buffers.pop(connection.fileno(), None)
        self._daemon.unwatch(connection.fileno())
        connection.close()

    def _answer(self, connection: socket.socket, answer: dict[str, Any]) -> None:
        data = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
        connection.setblocking(True)
        connection.settimeout(0.2)  # a caller that does not read is not waited for
        try:
            connection.sendall(data)
        finally:
            connection.setblocking(False)

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
        except (Refusal, ValueError, RecursionError) as error:
            return {"ok": False, "error": " ".join(str(error).split())[:500]}

    def do_run(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """Somebody is about to start a program with these wishes."""
        wish = Wish(
            name=_text(request, "name"),
            policy=_policy(request),
            priority=_priority(request),
            reserve=_reserve(request),
            uid=peer.uid,
        )
        if wish.priority is not None and not self._daemon.registry.may_raise(peer, wish.priority):
            raise Refusal("this user may not go above the default priority")
        return {"token": self._daemon.registry.expect(wish)}

    def do_status(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        return {"status": self._daemon.status()}

    def do_stop(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        self._daemon.stop()
        return {}

    def do_reload(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        problem = self._daemon.reload()
        if problem:
            raise Refusal(problem)
        return {}

    def do_set(self, request: dict[str, Any], peer: Peer) -> dict[str, Any]:
        """Change policy, priority or reserve of tasks that run: by name, pid or full task name."""
        engine = self._daemon.engine
        wanted = _text(request, "task") or ""
        tasks = [
            c.task
            for c in self._daemon.channels.values()
            if c.task is not None and wanted in (c.task.name, c.name, str(c.peer.pid))
        ]
        if not tasks:
            raise Refusal(f"no task is called {wanted!r}")
        policy, priority, reserve = _policy(request), _priority(request), _reserve(request)
        if priority is not None and not self._daemon.registry.may_raise(peer, priority):
            raise Refusal("this user may not go above the default priority")
        now_ns = time.monotonic_ns()
        for task in tasks:
            if policy is not None:
                engine.set_policy(task, policy, now_ns)
            if priority is not None:
                engine.set_priority(task, priority, now_ns)
            if reserve is not None:
                answer = engine.set_reserve(task, reserve, now_ns)
                if not answer.accepted:
                    raise Refusal(answer.why)
        self._daemon.arbiter.pump(now_ns)
        return {"tasks": [task.name for task in tasks]}


def _text(request: dict[str, Any], key: str) -> str | None:
    value = request.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > 200 or not value.isprintable():
        raise Refusal(f"{key}: expected printable text")
    return value


def _policy(request: dict[str, Any]) -> str | None:
    value = _text(request, "policy")
    if value is not None and value not in policies():
        raise Refusal(f"policy: found {value!r}, expected one of {', '.join(sorted(policies()))}")
    return value


def _priority(request: dict[str, Any]) -> Any:
    value = request.get("priority")
    with contextlib.suppress(TypeError):
        return None if value is None else parse_priority(value)
    raise Refusal("priority: expected a number or a rule")


def _reserve(request: dict[str, Any]) -> ReserveSpec | None:
    value = _text(request, "reserve")
    return None if value is None else parse_reserve(value, _text(request, "shared"))
