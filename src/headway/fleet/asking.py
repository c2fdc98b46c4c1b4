"""What commands ask of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.fleet import joining
from headway.fleet.joining import FleetError
from headway.fleet.recording import clock_difference_ns

ANSWER_S = 60.0
"""How long a placer may take that has to be started first."""


def view(address: str | None) -> dict[str, Any]:
    """All nodes, GPUs, claims and tasks, as the placer knows them."""
    ray = joining.connect(address)
    placer = joining.placer(ray)
    try:
        found: dict[str, Any] = ray.get(placer.view.remote(), timeout=ANSWER_S)
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[:200]
        raise FleetError(f"headway fleet: the placer does not answer: {why}") from None
    return found


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """What the daemon of one GPU did."""

    node: str
    gpu: int
    difference_ns: int
    """What to add to its times to have those of the first node."""
    within_ns: int
    """By how much that may be wrong."""
    data: bytes


def traces(address: str | None, seconds: float) -> list[GpuTrace]:
    """Record all daemons of a cluster at the same time, and tell their clocks apart."""
    ray = joining.connect(address)
    agents = {}
    for node in joining.headway_nodes(ray):
        ray_id, name = node["NodeID"], node["Labels"][joining.LABEL_NODE]
        try:
            agents[name] = ray.get_actor(f"headway-node-{ray_id}", namespace=joining.NAMESPACE)
        except ValueError:
            raise FleetError(
                f"headway fleet: node {name} has no agent yet; headway fleet status starts it"
            ) from None
    clocks = {}
    for name, agent in agents.items():

        def read(agent: Any = agent) -> int:
            return int(ray.get(agent.clock.remote(), timeout=ANSWER_S))

        clocks[name] = clock_difference_ns(read)
    base_ns = min((difference for difference, _ in clocks.values()), default=0)
    recording = {name: agent.record.remote(seconds) for name, agent in agents.items()}
    found = []
    for name, ref in recording.items():
        difference_ns, within_ns = clocks[name]
        for gpu, data in ray.get(ref, timeout=seconds + ANSWER_S):
            found.append(GpuTrace(name, gpu, difference_ns - base_ns, within_ns, data))
    return sorted(found, key=lambda one: (one.node, one.gpu))
