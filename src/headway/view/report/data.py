"""What the page is made of, of bounded size however long the run was.

Everything that is counted or added up is kept per bin of time, so that the page can add it up again
over a part of the run. Up to `EXACT_GROUPS` groups every single one is there too; beyond that there
are histograms of the response times, and the page says so.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.engine.model import BACKGROUND_LEVEL
from headway.engine.shares import WHOLE_PERMILLE
from headway.trace.analysis import History, Summary, Waits, percentile
from headway.trace.analysis.facts import DEADLINE, LEASED, MISSED, SHORT, ReserveFacts, TaskFacts
from headway.trace.analysis.occupancy import Occupancy

MAX_BYTES = 1_900_000
EXACT_GROUPS = 40_000
MAX_ROWS = 24
"""Tasks that get a row of their own; the others share one."""
MAX_RESERVES = 12
BINS = (1024, 512, 256, 128, 64, 32)
BUDGET_POINTS = 2000
SHARE_POINTS = 1000
MAX_MARKS = 300
PER_OCTAVE = 16
"""Buckets of a response time between a value and its double: 4 % each."""

Series = dict[int, int]
"""Something per bin, where it is not zero."""


@dataclass(slots=True)
class _Row:
    """A task, or those that share the last row."""

    busy: Series = field(default_factory=Counter)
    frames: Series = field(default_factory=Counter)
    deadlines: Series = field(default_factory=Counter)
    missed: Series = field(default_factory=Counter)
    waits: dict[int, Series] = field(default_factory=dict)
    histogram: Counter[tuple[int, int]] = field(default_factory=Counter)
    groups: list[int] = field(default_factory=list)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    short: list[tuple[int, int]] = field(default_factory=list)


class Data:
    """The numbers of a stretch of a run, for the page."""

    def __init__(self, history: History, occupancy: Occupancy, summary: Summary) -> None:
        self._history = history
        self._occupancy = occupancy
        self._summary = summary
        self._from_ns, self._to_ns = summary.from_ns, summary.to_ns
        self._row_of = _rows(summary)
        self._rows_used = max(self._row_of, default=-1) + 1

    def encode(self, head: dict[str, Any]) -> bytes:
        """As JSON, in as much detail as fits."""
        exact = len(self._history.groups) <= EXACT_GROUPS
        for bins in BINS if exact else BINS[1:]:
            if exact and bins < BINS[2]:
                exact = False
            text = json.dumps({**head, **self._built(bins, exact)}, separators=(",", ":"))
            if len(text) <= MAX_BYTES:
                break
        return text.encode()

    def _built(self, bins: int, exact: bool) -> dict[str, Any]:
        self._width_ns = round_up(-(-(self._to_ns - self._from_ns) // bins))
        rows = [_Row() for _ in range(self._rows_used)]
        self._add_groups(rows, exact)
        self._add_waits(rows, exact)
        for number, facts in enumerate(self._history.tasks):
            frames = rows[self._row_of[number]].frames
            for ns in facts.frames_ns:
                if self._counts(ns):
                    frames[self._bin(ns)] += 1
            if facts.overdue and self._counts(self._history.end_ns):
                place = self._bin(self._history.end_ns)
                rows[self._row_of[number]].deadlines[place] += facts.overdue
                rows[self._row_of[number]].missed[place] += facts.overdue
        return {
            "exact": exact,
            "width": self._width_ns,
            "tasks": [self._task(number, row) for number, row in enumerate(rows)],
            "reserves": self._reserves(),
            "reserves_left_out": max(0, len(self._history.reserves) - MAX_RESERVES),
            "unfinished": [
                [self._row_of[u.task], u.gpu, u.since_ns - self._from_ns]
                for u in self._history.unfinished
                if u.since_ns < self._to_ns
            ],
            **self._marks(),
        }

    # -- time --------------------------------------------------------------------------------

    def _counts(self, ns: int) -> bool:
        """Whether an instant belongs to this stretch: to the one that it ends, as in summaries."""
        begins = self._from_ns <= self._history.begin_ns
        return (self._from_ns <= ns if begins else self._from_ns < ns) and ns <= self._to_ns

    def _bin(self, ns: int) -> int:
        return max(0, ns - self._from_ns - 1) // self._width_ns

    def _spread(self, series: Series, start_ns: int, end_ns: int) -> None:
        """Add a stretch to the bins that it touches."""
        width_ns = self._width_ns
        start_ns, end_ns = start_ns - self._from_ns, end_ns - self._from_ns
        place = start_ns // width_ns
        while start_ns < end_ns:
            until_ns = min(end_ns, (place + 1) * width_ns)
            series[place] = series.get(place, 0) + until_ns - start_ns
            start_ns = until_ns
            place += 1

    # -- rows --------------------------------------------------------------------------------

    def _add_groups(self, rows: list[_Row], exact: bool) -> None:
        groups = self._history.groups
        from_ns, to_ns = self._from_ns, self._to_ns
        last = [0] * len(rows)
        for task, gpu, flags, released_ns, dispatched_ns, started_ns, finished_ns in zip(
            groups.tasks,
            groups.gpus,
            groups.flags,
            groups.released_ns,
            groups.dispatched_ns,
            groups.started_ns,
            groups.finished_ns,
            strict=True,
        ):
            if finished_ns < from_ns or started_ns > to_ns:
                continue
            number = self._row_of[task]
            row = rows[number]
            self._spread(row.busy, max(started_ns, from_ns), min(finished_ns, to_ns))
            if self._counts(finished_ns) and not flags & LEASED:
                place = self._bin(finished_ns)
                if not exact:
                    row.histogram[place, _bucket(finished_ns - released_ns)] += 1
                if flags & DEADLINE:
                    row.deadlines[place] += 1
                if flags & MISSED:
                    row.missed[place] += 1
            if exact:
                row.groups += (
                    started_ns - from_ns - last[number],
                    finished_ns - started_ns,
                    started_ns - dispatched_ns,
                    dispatched_ns - released_ns,
                    -1 - gpu if flags & LEASED else gpu,
                )
                last[number] = started_ns - from_ns

    def _add_waits(self, rows: list[_Row], exact: bool) -> None:
        waits = Waits(self._history, self._occupancy)
        for task, cause, start_ns, end_ns in waits.within(self._from_ns, self._to_ns):
            # A cause is a row, or comes after all rows.
            key = self._row_of[cause] if cause >= 0 else len(rows) - 1 - cause
            series = rows[self._row_of[task]].waits.setdefault(key, {})
            self._spread(series, start_ns, end_ns)
        if not exact:
            return
        segments = self._history.segments
        for task, kind, start_ns, end_ns in zip(
            segments.tasks, segments.kinds, segments.starts_ns, segments.ends_ns, strict=True
        ):
            start_ns, end_ns = max(start_ns, self._from_ns), min(end_ns, self._to_ns)
            if start_ns < end_ns:
                row = rows[self._row_of[task]]
                stretch = (start_ns - self._from_ns, end_ns - self._from_ns)
                (row.short if kind == SHORT else row.waiting).append(stretch)

    def _task(self, number: int, row: _Row) -> dict[str, Any]:
        members = [n for n, other in enumerate(self._row_of) if other == number]
        facts = self._history.tasks[members[0]]
        responses_ns = sorted(ns for n in members for ns in self._summary.tasks[n].responses_ns)
        alone = len(members) == 1
        return {
            "name": facts.name if alone else f"{len(members)} others",
            "policy": facts.policy if alone else "",
            "priority": _priority(facts.priority) if alone else "",
            "reserve": facts.reserve if alone else None,
            "groups": len(responses_ns),
            "p50": percentile(responses_ns, 0.50),
            "p99": percentile(responses_ns, 0.99),
            "max": percentile(responses_ns, 1.0),
            "busy": _sparse(row.busy),
            "frames": _sparse(row.frames),
            "space": self._space(facts) if alone else [],
            "deadlines": _sparse(row.deadlines),
            "missed": _sparse(row.missed),
            "waits": {str(cause): _sparse(series) for cause, series in row.waits.items()},
            "runs": row.groups,
            "waiting": _united(row.waiting),
            "short": _united(row.short),
            "histogram": [n for key in sorted(row.histogram) for n in (*key, row.histogram[key])],
        }

    def _space(self, facts: TaskFacts) -> list[list[int]]:
        """Instants and shares of the multiprocessors, if the task ever had less than all; of very
        many changes those that are left when every so-manieth is."""
        found = [
            [min(max(0, ns - self._from_ns), self._to_ns - self._from_ns), permille]
            for ns, permille in zip(facts.share_since_ns, facts.shares, strict=True)
            if ns <= self._to_ns
        ]
        if all(permille >= WHOLE_PERMILLE for _, permille in found):
            return []
        every = 1 + len(found) // SHARE_POINTS
        return [*found[:-1:every], found[-1]]

    # -- the rest ----------------------------------------------------------------------------

    def _reserves(self) -> list[dict[str, Any]]:
        """Those that were charged most, in the order of the run."""
        charged = {entry.name: entry.charged_ns for entry in self._summary.reserves}
        most = sorted(charged, key=lambda name: -charged[name])[:MAX_RESERVES]
        reserves = self._history.reserves
        return [self._reserve(facts) for name, facts in reserves.items() if name in most]

    def _reserve(self, facts: ReserveFacts) -> dict[str, Any]:
        charged: Series = Counter()
        for ns, charge_ns in zip(facts.charges_ns, facts.charged_ns, strict=True):
            if self._counts(ns):
                charged[self._bin(ns)] += charge_ns
        used = next(r for r in self._summary.reserves if r.name == facts.name)
        return {
            "name": facts.name,
            "kind": facts.kind,
            "capacity": facts.capacity_ns,
            "period": facts.period_ns,
            "since": max(0, facts.since_ns - self._from_ns),
            "members": sorted({self._row_of[n] for n in facts.members}),
            "overruns": used.overruns,
            "debt": used.worst_debt_ns,
            "charged": _sparse(charged),
            **self._budget_line(facts),
        }

    def _budget_line(self, facts: ReserveFacts) -> dict[str, Any]:
        """Instants and budgets; beyond so many the first, least, largest and last of each cell."""
        points = facts.budget_line(self._from_ns, self._to_ns)
        thinned = len(points) > BUDGET_POINTS
        if thinned:
            points = _thinned(points, (self._to_ns - self._from_ns) * 4 // BUDGET_POINTS + 1)
        result: list[int] = []
        last_ns = 0
        for at_ns, budget_ns in points:
            result += (at_ns - last_ns, budget_ns)
            last_ns = at_ns
        return {"points": result, "thinned": thinned}

    def _marks(self) -> dict[str, Any]:
        inside = [m for m in self._history.marks if self._from_ns <= m[0] <= self._to_ns]
        marks = [[ns - self._from_ns, text] for ns, text in inside[:MAX_MARKS]]
        return {"marks": marks, "marks_left_out": len(inside) - len(marks)}


def round_up(ns: int) -> int:
    """The next duration that a person calls round: 1, 2 or 5 and zeros."""
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power >= ns:
                return step * power
        power *= 10


def _rows(summary: Summary) -> list[int]:
    """The row of each task: its own, or the last one where there are too many."""
    count = len(summary.tasks)
    if count <= MAX_ROWS:
        return list(range(count))
    tasks = summary.tasks
    order = sorted(range(count), key=lambda n: -(tasks[n].gpu_ns + tasks[n].wait_ns))
    chosen = {n: row for row, n in enumerate(sorted(order[: MAX_ROWS - 1]))}
    return [chosen.get(n, MAX_ROWS - 1) for n in range(count)]


def _priority(text: str) -> str:
    return "lowest" if text == str(BACKGROUND_LEVEL) else text


def _bucket(value_ns: int) -> int:
    return round(math.log2(max(1, value_ns)) * PER_OCTAVE)


def _sparse(series: Series) -> list[int]:
    """Steps to the next bin that is not zero, each with its value."""
    result: list[int] = []
    last = 0
    for place in sorted(series):
        if series[place]:
            result += (place - last, series[place])
            last = place
    return result


def _united(stretches: Iterable[tuple[int, int]]) -> list[int]:
    """Stretches as steps and lengths; those that touch become one."""
    joined: list[list[int]] = []
    for start_ns, end_ns in sorted(stretches):
        if joined and start_ns <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end_ns)
        else:
            joined.append([start_ns, end_ns])
    result: list[int] = []
    last_ns = 0
    for start_ns, end_ns in joined:
        result += (start_ns - last_ns, end_ns - start_ns)
        last_ns = start_ns
    return result


def _thinned(points: Sequence[tuple[int, int]], cell_ns: int) -> list[tuple[int, int]]:
    """What a line through all points touches in each cell."""
    result: list[tuple[int, int]] = []
    first = 0
    while first < len(points):
        cell = points[first][0] // cell_ns
        last = first
        while last + 1 < len(points) and points[last + 1][0] // cell_ns == cell:
            last += 1
        part = range(first, last + 1)
        least = min(part, key=lambda n: points[n][1])
        most = max(part, key=lambda n: points[n][1])
        result += (points[n] for n in sorted({first, least, most, last}))
        first = last + 1
    return result
