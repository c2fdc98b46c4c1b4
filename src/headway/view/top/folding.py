"""Rows of one process folded into one: a program may have many contexts, and a person sees one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from headway.view.top.rows import Row

Number = TypeVar("Number", int, float)
STATES = ("budget", "waiting", "running", "leased", "idle")
"""What is told of a process whose contexts are in several: the first of these."""


def fold(rows: Iterable[Row]) -> list[Row]:
    """One row for each process and name, in the order in which the first of them came."""
    together: dict[tuple[object, str], list[Row]] = {}
    for row in rows:
        stem = row.program.partition(".")[0] if row.contexts == 1 else row.program
        key = (row.task, "") if row.pid is None else (row.pid, stem)
        together.setdefault(key, []).append(row)
    return [_one(members) for members in together.values()]


def _one(rows: list[Row]) -> Row:
    """Times and counts are sums, waits those of whoever waits longest. What tells contexts apart,
    such as a policy of one of them, is to be seen unfolded."""
    first = rows[0]
    if len(rows) == 1:
        return first
    budgets = {(row.reserve, row.budget_ns, row.capacity_ns, row.period_ns) for row in rows}
    same = len({reserve for reserve, *_ in budgets}) == 1
    past = [sum(values) for values in zip(*(row.past for row in rows), strict=False)]
    return replace(
        first,
        contexts=len(rows),
        budget_ns=first.budget_ns if same else None,
        capacity_ns=first.capacity_ns if same else None,
        period_ns=first.period_ns if same else None,
        effective=max((r.effective for r in rows if r.effective is not None), default=None),
        foreground=any(row.foreground for row in rows),
        queued=_sum(row.queued for row in rows),
        fps=_sum(row.fps for row in rows),
        gpu_share=_sum(row.gpu_share for row in rows),
        wait_p50_ns=_max(row.wait_p50_ns for row in rows),
        wait_p99_ns=_max(row.wait_p99_ns for row in rows),
        misses=_sum(row.misses for row in rows),
        multiprocessors=_max(row.multiprocessors for row in rows),
        prediction_error=_max(row.prediction_error for row in rows),
        groups=_sum(row.groups for row in rows),
        frames=_sum(row.frames for row in rows),
        state=next((s for s in STATES if any(r.state == s for r in rows)), first.state),
        gpu=",".join(dict.fromkeys(row.gpu for row in rows if row.gpu)),
        note="; ".join(dict.fromkeys(row.note for row in rows if row.note)),
        past=tuple(past),
    )


def _sum(values: Iterable[Number | None]) -> Number | None:
    total: Number | None = None
    for value in values:
        if value is not None:
            total = value if total is None else total + value
    return total


def _max(values: Iterable[Number | None]) -> Number | None:
    return max((value for value in values if value is not None), default=None)
