"""What `headway locks` shows a person: every event, the queues after it and who lends to whom."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, islice

from rich.console import Console

from headway.engine.locks.jobs import Job
from headway.sim.gpusync.lock_file import LockPlan
from headway.sim.gpusync.lock_run import LockRun, Step
from headway.view.tables import new_table

Row = tuple[str, str, str, str, str, str]
MOST = 16
"""Names, and queues, that a cell shows; of more it says how many."""
COLUMNS = ("t", "event", "queues", "overflow", "donors", "grants and inheritance")


def rows(plan: LockPlan) -> tuple[list[Row], list[str]]:
    """One row an event, and what the run ignored."""
    result: list[Row] = []

    def watch(step: Step) -> None:
        locks = step.allocator
        queues = locks.queues
        granted = [f"{job.name}: token {token}" for token, job in step.granted]
        lent = ((job, locks.lender(job)) for queue in locks.queues for job in queue[:1])
        inherited = [f"{job.name} as {lender.name}" for job, lender in lent if lender is not job]
        result.append(
            (
                str(step.at),
                step.event,
                _some(
                    " / ", (_some(" ", map(_name, q), len(q)) or "-" for q in queues), len(queues)
                ),
                _some(" ", map(_name, reversed(locks.overflow)), len(locks.overflow)),
                _some(" ", map(_donation, reversed(locks.donors)), len(locks.donors)),
                ", ".join([*granted, *inherited]),
            )
        )

    outcome = LockRun(plan, watch).run()
    return result, outcome.ignored


def print_run(console: Console, title: str, plan: LockPlan) -> None:
    """The table of a run."""
    table = new_table(title)
    for place, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if place else "right", overflow="fold")
    found, ignored = rows(plan)
    for at, same in groupby(found, key=lambda row: row[0]):
        shown = at
        for _, *cells in same:
            table.add_row(shown, *cells)
            shown = ""
    console.print(table)
    for line in ignored:
        console.print(f"ignored: {line}")


def _some(between: str, cells: Iterable[str], count: int) -> str:
    """The first of many."""
    shown = list(islice(cells, MOST))
    return between.join([*shown, f"(+{count - MOST})"] if count > MOST else shown)


def _name(job: Job) -> str:
    return f"({job.name})" if job.virtual else str(job.name)


def _donation(job: Job) -> str:
    return f"{job.name}>{'' if job.donee is None else job.donee.name}"
