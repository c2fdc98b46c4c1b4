"""Results as tables and as JSON (the contract is in docs/scenarios.md)."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, BinaryIO

import msgspec
from rich.console import Console

from headway.engine.events import Observer
from headway.engine.model import BACKGROUND_LEVEL, Gpu, Group, level_of
from headway.engine.units import format_ns
from headway.sim.cuda.program import DoneJob
from headway.sim.outcome import Outcome
from headway.sim.papers.claims import Claim
from headway.view.tables import print_rows

SCHEMA = 1


class JsonStream(Observer):
    """Writes the JSON result while the run goes on, so that no group has to be kept.

    Groups appear by their start. On one GPU they complete in that order; with several, a group is
    held back until nothing that started earlier can still complete.
    """

    def __init__(self, out: BinaryIO, **head: Any) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode
        self._first = True
        self._held: list[tuple[int, int, int, dict[str, Any]]] = []
        self._gpus: set[Gpu] = set()
        start = self._encode({"schema": SCHEMA, **head})
        self._out.write(start[:-1] + b',"groups":[')

    def dispatched(self, group: Group, now_ns: int) -> None:
        self._gpus.add(group.gpu)

    def completed(self, group: Group, now_ns: int) -> None:
        entry = {
            "task": group.task.name,
            "index": group.index,
            "submitted_ns": group.submitted_ns,
            "started_ns": group.started_ns,
            "finished_ns": group.finished_ns,
        }
        if len(self._gpus) == 1:
            self._write(entry)
            return
        heappush(self._held, (group.started_ns, group.task.order, group.index, entry))
        running = [gpu.online[0].started_ns for gpu in self._gpus if gpu.online]
        self._release(min(running, default=now_ns))

    def _release(self, before_ns: int) -> None:
        while self._held and self._held[0][0] <= before_ns:
            self._write(heappop(self._held)[3])

    def _write(self, entry: dict[str, Any]) -> None:
        self._out.write(self._encode(entry) if self._first else b"," + self._encode(entry))
        self._first = False

    def finish(self, outcome: Outcome) -> None:
        """Close the list of groups and write the rest."""
        while self._held:
            self._write(heappop(self._held)[3])
        rest = as_dict(outcome)
        if outcome.jobs:
            rest["jobs"] = [_job(name, job) for name, jobs in outcome.jobs.items() for job in jobs]
        self._out.write(b"]," + self._encode(rest)[1:] + b"\n")
        self._out.flush()


def _job(task: str, job: DoneJob) -> dict[str, Any]:
    return {
        "task": task,
        "index": job.index,
        "due_ns": job.due_ns,
        "begun_ns": job.begun_ns,
        "ended_ns": job.ended_ns,
    }


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """Everything but the groups."""
    return {**outcome.statistics.as_dict(), "turned_away": outcome.turned_away}


def milliseconds(duration_ns: int) -> str:
    """Three significant digits are enough in a table."""
    return f"{duration_ns / 1e6:.3g}" if duration_ns < 1e9 else f"{duration_ns / 1e6:.0f}"


def per_second(count: int, end_ns: int) -> str:
    """A rate for a table; a dot where there is nothing to say."""
    return f"{count * 1e9 / end_ns:.1f}" if count and end_ns else "."


def share(part_ns: int, end_ns: int) -> str:
    """A share of the GPU in percent."""
    return f"{100 * part_ns / end_ns:.1f}" if end_ns else "."


def unit_of(outcome: Outcome) -> str:
    """What response times are of: groups, or, of CUDA programs, jobs."""
    return "jobs" if outcome.jobs else "groups"


def print_outcome(console: Console, title: str, outcome: Outcome) -> None:
    """The table of one run."""
    statistics = outcome.statistics
    end_ns = statistics.end_ns
    rows = []
    unit = unit_of(outcome)
    for entry in statistics.tasks.values():
        p50, p99 = entry.responses.at(0.50, 0.99)
        row = (
            entry.task.name,
            entry.task.choice.text,
            "lowest" if level_of(entry.task.rank) == BACKGROUND_LEVEL else str(entry.task.rule),
            str(entry.groups),
            per_second(entry.frames, end_ns),
            milliseconds(p50),
            milliseconds(p99),
            milliseconds(entry.responses.max),
            share(entry.gpu_ns, end_ns),
            f"{entry.missed}/{entry.deadlines}" if entry.deadlines else ".",
        )
        rows.append(row)
    columns = ("task", "policy", "prio", unit, "fps", "p50", "p99", "max", "GPU %", "missed")
    console.print(f"{title} (response times of {unit} in ms)", soft_wrap=True)
    narrow = ("policy", unit, "p50", "prio", "max")
    print_rows(console, columns, rows, leave_out=narrow)
    summary = statistics.as_dict()["device"]
    idle = 100 * summary["idle_ns"] / (end_ns * statistics.gpus) if end_ns else 0
    console.print(
        f"{format_ns(end_ns)} simulated, GPU idle {idle:.1f} %, {summary['switches']} switches",
        highlight=False,
    )
    for name, reserve in statistics.as_dict()["reserves"].items():
        console.print(
            f"reserve {name}: {reserve['policy']} {format_ns(reserve['capacity_ns'])} every "
            f"{format_ns(reserve['period_ns'])}, {100 * reserve['used']:.0f} % used, "
            f"{reserve['overruns']} overruns, worst debt {format_ns(reserve['worst_debt_ns'])}",
            highlight=False,
        )
    for name, why in outcome.turned_away.items():
        console.print(f"{name} was made background: {why}", highlight=False)
    if not outcome.complete:
        console.print("interrupted: this is what was simulated until then", highlight=False)


def print_claims(console: Console, claims: Iterable[Claim]) -> None:
    """What a paper says, beside what the simulation gives."""
    for claim in claims:
        verdict = "holds" if claim.holds else "does not hold"
        console.print(f"{verdict}: {claim.text}")
        console.print(f"    paper {claim.paper}, ours {claim.ours} ({claim.reason})")
    console.print()
