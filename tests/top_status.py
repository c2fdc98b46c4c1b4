"""What a daemon might say to `headway top`, and one that says it without any GPU."""

from __future__ import annotations

import threading
from typing import Any

from headway.engine.model import BACKGROUND_LEVEL
from headway.engine.priorities import parse_priority
from headway.live.api.client import NoDaemon, Refused
from headway.live.identity.options import parse_reserve


def channel(name: str, pid: int = 100, **facts: Any) -> dict[str, Any]:
    """One task as the daemon describes it; idle, and without a reserve."""
    return {
        "task": f"{name}.{pid}",
        "pid": pid,
        "uid": 0,
        "policy": "prt",
        "priority": "0",
        "effective": int(facts.get("priority", "0")) if _is_number(facts) else 0,
        "reserve": None,
        "capacity_ns": None,
        "period_ns": None,
        "budget_ns": None,
        "state": "idle",
        "note": "",
        "groups": 0,
        "passed": 0,
        "free": 0,
        "implicit": 0,
        "frames": 0,
        "gpu_ns": 0,
        "overdue": 0,
        **facts,
    }


def _is_number(facts: dict[str, Any]) -> bool:
    return str(facts.get("priority", "0")).lstrip("-").isdigit()


def reserved(budget_ns: int, capacity_ns: int, period_ns: int) -> dict[str, Any]:
    return {
        "reserve": "@some",
        "budget_ns": budget_ns,
        "capacity_ns": capacity_ns,
        "period_ns": period_ns,
    }


def background(name: str, pid: int = 100, **facts: Any) -> dict[str, Any]:
    budget = {**reserved(1_000_000, 2_500_000, 25_000_000), "reserve": "@background"}
    return channel(name, pid, priority=str(BACKGROUND_LEVEL), **budget, **facts)


def status(*channels: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {
        "pid": 4242,
        "version": "0.1.0",
        "uptime_s": 3723.0,
        "spec_problem": "",
        "gpu": {"busy": 0.5, "queue": 1},
        "channels": list(channels),
        **facts,
    }


class FakeDaemon:
    """Answers as the control socket does; can go away and come back."""

    def __init__(self, *channels: dict[str, Any]) -> None:
        self.channels = list(channels)
        self.facts: dict[str, Any] = {}
        self.here = True
        self.requests: list[dict[str, Any]] = []
        self.refusal = ""
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            if not self.here:
                raise NoDaemon("no daemon answers in /somewhere (Connection refused)")
            if request["do"] == "status":
                return {"ok": True, "status": status(*self.channels, **self.facts)}
            self.requests.append(request)
            if self.refusal:
                raise Refused(self.refusal)
            return self._set(request)

    def _set(self, request: dict[str, Any]) -> dict[str, Any]:
        found = [c for c in self.channels if c["task"] == request["task"]]
        for entry in found:
            if "priority" in request:
                rule = parse_priority(request["priority"])
                entry |= {"priority": str(rule), "effective": rule.level}
            if "reserve" in request:
                spec = parse_reserve(request["reserve"])
                entry |= reserved(spec.capacity_ns, spec.capacity_ns, spec.period_ns)
            if "policy" in request:
                entry["policy"] = request["policy"]
        return {"ok": True, "tasks": [c["task"] for c in found]}

    def one(self, name: str) -> dict[str, Any]:
        (entry,) = [c for c in self.channels if c["task"].startswith(name)]
        return entry
