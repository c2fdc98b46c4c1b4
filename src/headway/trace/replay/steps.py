"""One recorded group as text: when it is submitted, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass

from headway.engine.units import DurationError, format_ns, parse_duration

AT, AFTER, BEHIND = "@", "+", ">"
"""When a group is submitted: at a time; so long after the group before it was done; so long after
that one was dispatched."""
EXPECTED = '"WHEN COST", such as "+1ms 2ms" or "@5ms 2ms frame due 10ms"'


@dataclass(frozen=True, slots=True)
class Step:
    """One group, and what it waits for before it is submitted."""

    mark: str
    when_ns: int
    cost_ns: int
    frame: bool = False
    due_ns: int | None = None
    """Its deadline: a time, if `when_ns` is one, else so long after it is submitted."""

    def __str__(self) -> str:
        frame = " frame" if self.frame else ""
        due = "" if self.due_ns is None else f" due {format_ns(self.due_ns)}"
        return f"{self.mark}{format_ns(self.when_ns)} {format_ns(self.cost_ns)}{frame}{due}"


def parse_step(text: object) -> Step:
    """The other way round; ValueError says what is wrong."""
    words = text.split() if isinstance(text, str) else []
    if len(words) < 2 or words[0][0] not in (AT, AFTER, BEHIND):
        raise ValueError(EXPECTED)
    when, cost, *rest = words
    frame = bool(rest) and rest[0] == "frame"
    rest = rest[frame:]
    due_ns = None
    if rest and (len(rest) != 2 or rest[0] != "due"):
        raise ValueError(EXPECTED)
    try:
        if rest:
            due_ns = parse_duration(rest[1])
        cost_ns = parse_duration(cost)
        step = Step(when[0], parse_duration(when[1:]), cost_ns, frame, due_ns)
    except DurationError as error:
        raise ValueError(f"{EXPECTED}: {error}") from None
    if not step.cost_ns:
        raise ValueError(f"{EXPECTED}: a cost of at least 1ns")
    return step
