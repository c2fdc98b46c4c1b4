"""Groups as they were seen in a recording."""

from __future__ import annotations

from dataclasses import dataclass

from headway.engine.model import Group
from headway.engine.reading import Table, enumerate_keys, shown
from headway.engine.units import DurationError, format_ns, parse_duration
from headway.sim.programs import BLOCKED, Program, program

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


@program("recorded")
class Recorded(Program):
    """Groups with the costs they had, each as long after what came before it as it was then."""

    hears_completions = True

    def __init__(
        self, steps: list[Step], repeat_ns: int | None = None, period_ns: int | None = None
    ) -> None:
        self._steps = steps
        self.period_ns = period_ns
        self._repeat_ns = repeat_ns
        """Begin again so long after the last one was done; None: do not."""
        self._index = 0
        self._after: int | None = None
        """The group whose completion the next one waits for."""

    @classmethod
    def read(cls, table: Table, seed: int) -> Recorded:
        steps: list[Step] = []
        found = table.take("groups")
        if not isinstance(found, list):
            table.bad("groups", shown(found), f"a list of {EXPECTED}")
            found = []
        items = Table(dict(enumerate_keys(found)), (*table.path, "groups"), table.report)
        for place, text in enumerate(found):
            try:
                steps.append(parse_step(text))
            except ValueError as error:
                items.bad(str(place), shown(text), str(error))
        repeat_ns = table.duration("repeat") if "repeat" in table else None
        period_ns = table.duration("period", least=1) if "period" in table else None
        return cls(steps, repeat_ns, period_ns)

    def _step(self) -> Step:
        return self._steps[self._index % len(self._steps)]

    def start(self) -> int:
        return self._steps[0].when_ns if self._steps else BLOCKED

    def resume(self, now_ns: int) -> Group:
        step = self._step()
        deadline_ns = None
        if step.due_ns is not None:
            deadline_ns = step.due_ns if step.mark == AT else now_ns + step.due_ns
        index = self._index
        self._index += 1
        return Group(self.task, index, step.cost_ns, deadline_ns, "recorded", step.frame)

    def _is_first_round(self) -> bool:
        return self._index < len(self._steps)

    def dispatched(self, group: Group, now_ns: int) -> int:
        if not self._is_first_round() and self._repeat_ns is None:
            return BLOCKED
        step = self._step()
        if self._index % len(self._steps) == 0 or step.mark == AFTER:
            self._after = group.index
            return BLOCKED
        if step.mark == AT:
            return step.when_ns if self._is_first_round() else now_ns
        return now_ns + step.when_ns

    def completed(self, group: Group, now_ns: int) -> int:
        if group.index != self._after:
            return BLOCKED
        self._after = None
        if self._index % len(self._steps) == 0:
            return now_ns + (self._repeat_ns or 0)
        return now_ns + self._step().when_ns
