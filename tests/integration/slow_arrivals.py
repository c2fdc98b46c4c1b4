"""`headway` for a machine that is busy with other things: arrivals in slow motion.

Whether jobs are regular, and how long before one nothing long begins, is a matter of half a
millisecond. Where timers are late by more than that nothing of it can be seen; ten times as long it
can. What is done about it stays the same.
"""

from __future__ import annotations

from headway.engine.turns import arrivals
from headway.view.cli import main

SLOWER = 10
TIMES = ("LEAST_NS", "MOST_NS", "ALIKE_NS", "LEAD_NS", "LATE_NS")


def slow_down() -> None:
    for name in TIMES:
        setattr(arrivals, name, SLOWER * getattr(arrivals, name))


if __name__ == "__main__":
    slow_down()
    main()
