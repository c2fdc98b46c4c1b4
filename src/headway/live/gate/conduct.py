"""What people are told of processes that keep the GPU too long: a line in the log, and a note."""

from __future__ import annotations

import time
from typing import Any

from headway.engine.turns.conduct import Conduct, Record, Standing
from headway.live.gate.channel import Channel
from headway.live.server.loop import log

LINES, LINES_NS = 20, 10_000_000_000
"""So many lines in this time: the log is no place for a process to fill."""
_SERVED = {
    Standing.GOOD: "served as its priority says",
    Standing.AFTER_EQUALS: "served after its equals",
    Standing.LAST: "served after everybody else",
    Standing.UNMANAGED: "unmanaged",
}


def note(channel: Channel) -> str:
    """What its owner should know of a program's conduct; nothing if all is well."""
    record = channel.record
    if record is None or not record.troubles:
        return ""
    often = "once" if record.troubles == 1 else f"{record.troubles} times"
    text = f"it kept the GPU too long {often} while others waited"
    if record.standing == Standing.GOOD:
        return text
    return (
        f"{text}, {record.unanswered} of them without an answer, and is {_SERVED[record.standing]}"
    )


def describe_away(record: Record, now_ns: int) -> dict[str, Any]:
    """A process that is unmanaged, for `headway status`."""
    uid, pid, _ = _who(record)
    left_ns = max(0, record.away_until_ns - now_ns)
    return {"pid": pid, "uid": uid, "left_ns": left_ns, "times": record.times_away}


def describe_absence(conduct: Conduct, pid: str, now_ns: int) -> str:
    """Why the process with this number is not served; nothing if it could be."""
    for record in conduct.away(now_ns):
        if str(_who(record)[1]) == pid:
            left_s = (record.away_until_ns - now_ns) / 1e9
            return (
                f"process {pid} is unmanaged for {left_s:.0f} s: it kept the GPU too long again and"
                " again and did not answer for it"
            )
    return ""


def _who(record: Record) -> tuple[int, int, int]:
    process: Any = record.process
    uid, (pid, born) = process
    return uid, pid, born


class Lines:
    """The log's lines about changes of standing."""

    def __init__(self) -> None:
        self._since_ns = -LINES_NS
        self._said = 0

    def tell(self, record: Record) -> None:
        """A process has another standing."""
        now_ns = time.monotonic_ns()
        if now_ns - self._since_ns >= LINES_NS:
            self._since_ns, self._said = now_ns, 0
        self._said += 1
        if self._said < LINES:
            log(_line(record, now_ns))
        elif self._said == LINES:
            log("more processes keep the GPU too long; headway status knows them")


def _line(record: Record, now_ns: int) -> str:
    uid, pid, _ = _who(record)
    names = sorted({c.name for c in record.clients if isinstance(c, Channel)}) or ["a program"]
    who = f"{', '.join(names[:3])} (pid {pid}, user {uid})"
    served = _SERVED[record.standing]
    if record.standing == Standing.GOOD:
        return f"{who} is {served} again"
    text = f"{who} kept the GPU too long and did not answer for it: it is {served} now"
    if record.standing == Standing.UNMANAGED:
        text += f", for {max(0, record.away_until_ns - now_ns) / 1e9:.0f} s"
    return text
