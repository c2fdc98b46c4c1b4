"""Ways for CUDA programs to share a device: with nobody but the hardware, and with Headway."""

from __future__ import annotations

from typing import Any

from headway.engine.priorities import is_on_time, parse_priority

UNMANAGED: dict[str, Any] = {"kind": "none"}
MPS_DEVICE: dict[str, Any] = {"kind": "side-by-side"}
OURS, OURS_MPS = "Headway", "Headway + MPS"
SLICED, MPS, MPS_PRIORITY = "time-sliced", "MPS", "MPS, client priority"
WAYS: dict[str, dict[str, Any]] = {
    SLICED: {"manager": UNMANAGED},
    MPS: {"manager": UNMANAGED, "device": MPS_DEVICE},
    MPS_PRIORITY: {"manager": UNMANAGED, "device": MPS_DEVICE},
    OURS: {},
    OURS_MPS: {"device": MPS_DEVICE},
}
"""What a scenario says beside its tasks, by the names that people read."""
PEERS = {OURS: (SLICED,), OURS_MPS: (MPS, MPS_PRIORITY)}
"""What else people could do on the same device, the plainest first."""


def scenario_of(tasks: list[dict[str, Any]], way: str, seconds: float) -> dict[str, Any]:
    """The tables of a scenario with these tasks in one way, with the client priorities that a
    person gives under MPS, and those that Headway gives."""
    changed = []
    for task in tasks:
        on_time = is_on_time(parse_priority(task.get("priority", 0)))
        lower = way in (MPS_PRIORITY, OURS_MPS) and not on_time
        changed.append({**task, "cuda": {**task["cuda"], "client_priority": int(lower)}})
    return {"task": changed, "run": {"duration": f"{int(seconds * 1000)}ms"}, **WAYS[way]}
