"""What commands ask of a cluster."""

from __future__ import annotations

from typing import Any

from headway.fleet import joining
from headway.fleet.joining import FleetError

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
