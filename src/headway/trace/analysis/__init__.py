"""What happened in a run, worked out from its events alone: simulated and live runs alike.

`History` keeps the facts (groups, waits, budgets, frames), `Occupancy` says who had each GPU when,
`waited` says what each wait was for, and `summarise` adds it all up over a stretch of time. The
report page, the plots and whoever explains a wait use these and nothing else.
"""

from headway.trace.analysis.history import History, read_history
from headway.trace.analysis.occupancy import BUDGET, CAUSES, HOLDOFF, IDLE, Occupancy
from headway.trace.analysis.summary import (
    ReserveSummary,
    Summary,
    TaskSummary,
    percentile,
    summarise,
)
from headway.trace.analysis.waits import Waits

__all__ = [
    "BUDGET",
    "CAUSES",
    "HOLDOFF",
    "IDLE",
    "History",
    "Occupancy",
    "ReserveSummary",
    "Summary",
    "TaskSummary",
    "Waits",
    "percentile",
    "read_history",
    "summarise",
]
