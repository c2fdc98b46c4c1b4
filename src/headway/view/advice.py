"""What a person could do about how programs share the GPU, with the number to expect."""

from __future__ import annotations

from typing import Any

CPU_BOUND = 0.5
"""A task that waits for the GPU for less than this part of its jobs is bound by its CPU: the engine
draws the line at the same place (engine/turns/corunning.py)."""
WORTH = 0.1
"""Less of the GPU than this is not worth a restart."""


def about_mps(entry: dict[str, Any]) -> str | None:
    """What MPS would change for the programs beside this one; None: nothing worth doing.

    Without MPS a program keeps the GPU for the whole of each job, though one that is bound by its
    CPU leaves the GPU idle for most of that. Under MPS the others run then. So of the time that the
    program is in jobs, the others get the part in which its jobs do not wait for the GPU.
    """
    used, in_jobs = entry.get("gpu_in_jobs"), entry.get("in_jobs") or 0.0
    if used is None or used >= CPU_BOUND or entry.get("side_by_side"):
        return None
    now, then = 1 - in_jobs, 1 - in_jobs * used
    if then - now < WORTH:
        return None
    return (
        f"its jobs leave the GPU idle for about {1 - used:.0%} of their time: under MPS (headway"
        f" daemon --mps) less important programs could have up to {then:.0%} of the GPU, now"
        f" {now:.0%}; under MPS a fatal fault of one program can end the others"
    ).replace("%", " %")
