"""What a program came to, in a few lines: `headway run --summary`."""

from __future__ import annotations

from typing import Any

from headway.view.advice import about_mps
from headway.view.explaining import percent, rough


def lines_of(name: str, account: dict[str, Any] | None) -> list[str]:
    """The account of a launch, as the daemon gives it, in sentences."""
    if account is None:
        return [f"headway: {name} sent nothing to the GPU through the gate"]
    lasted_ns = account["lasted_ns"]
    used = percent(account["gpu_ns"] / lasted_ns) if lasted_ns else "nothing"
    first = f"headway: {name}: {rough(lasted_ns)} with the GPU in reach, {used} of it on the GPU"
    lines = [first + _frames(account)]
    if account["job_p50_ns"] is not None:
        lines.append(_jobs(account))
    waited, caused = rough(account["waited_ns"]), rough(account["caused_ns"])
    lines.append(f"  its groups waited {waited} in all; others waited {caused} for it")
    in_jobs = account["in_jobs_ns"] / lasted_ns if lasted_ns else 0.0
    advice = about_mps({**account, "in_jobs": in_jobs})
    return [*lines, f"  {advice}"] if advice else lines


def _frames(account: dict[str, Any]) -> str:
    if not account["frames"] or not account["lasted_ns"]:
        return ""
    rate = account["frames"] * 1e9 / account["lasted_ns"]
    return f"; {account['frames']} frames, {rate:.1f} a second"


def _jobs(account: dict[str, Any]) -> str:
    jobs, misses = account["jobs"], account["misses"]
    text = f"  {jobs} {'job' if jobs == 1 else 'jobs'}: half of them within"
    text += f" {rough(account['job_p50_ns'])}, 99 % within {rough(account['job_p99_ns'])}"
    if account["slowdown"] is not None:
        text += f"; {percent(account['slowdown'])} slower than alone in the mean, by estimate"
    return f"{text}; {misses} missed" if misses else text
