"""Groups as they were seen in a recording."""

from __future__ import annotations

from headway.engine.model import Group
from headway.engine.reading import Table, enumerate_keys, shown
from headway.sim.programs import BLOCKED, Program, program
from headway.trace.replay.steps import AFTER, AT, EXPECTED, Step, parse_step


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

    @property
    def longest_ns(self) -> int:
        """What a group costs at most."""
        return max((step.cost_ns for step in self._steps), default=1)

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
        released_ns = None
        if step.mark == AT and index < len(self._steps):
            released_ns = step.when_ns
        signature = (self.kind, self.task.name)
        return Group(
            self.task, index, step.cost_ns, deadline_ns, signature, step.frame, released_ns
        )

    def unsent(self, now_ns: int) -> int:
        left = self._steps[self._index :]
        return sum(s.mark == AT and s.due_ns is not None and s.due_ns <= now_ns for s in left)

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
