"""libETP's prediction: models of flush, clear and draw with calibrated coefficients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headway.engine.cost_models import Conditions, CostModel, Prediction, Work, cost_model
from headway.engine.rendering import Calibration, Clear, Command, Draw, Flush, commands_of

MARGIN: Final = 1.0 + 130 / 23_400
"""Over the expected cost, for the bound: the paper finds "a small safety margin" enough, and misses
of 130 us at groups of 23.4 ms (section VI-E)."""


@cost_model("libetp")
class LibEtp(CostModel):
    """Expects the sum of what a group's commands cost by calibration (libETP, section IV).

    Nothing is learned while the program runs, and a program that was not calibrated counts as a
    simple one: this is the paper's predictor, and `adaptive` is Headway's.
    """

    def __init__(self, calibration: Calibration | None = None) -> None:
        known = calibration or Calibration()
        self._flush = Flush(known.flush_ns)
        self._clear = Clear(known.clear_ns)
        self._draw = Draw(known.programs, known.usual)

    def predict(self, work: Work, conditions: Conditions) -> Prediction:
        commands = list(commands_of(work.features))
        if not commands:
            return Prediction(0, 0, known=False)
        total_ns = self._flush.cost_ns() + sum(map(self._cost_ns, commands))
        return Prediction(round(total_ns), round(total_ns * MARGIN))

    def coefficients(self, names: Iterable[str]) -> dict[str, float]:
        """Nanoseconds per unit of these features; `group` is the flush."""
        found = {name: self._cost_ns(c) for name in names for c in commands_of({name: 1})}
        return found | {"group": self._flush.cost_ns()}

    def _cost_ns(self, command: Command) -> float:
        what, which, amount, value = command
        if what == "clear" and amount == "pixels":
            return self._clear.cost_ns(which, value)
        if what == "draw" and amount == "vertices":
            return self._draw.vertices_ns(which, value)
        if what == "draw" and amount == "fragments":
            return self._draw.fragments_ns(which, value)
        return 0.0

    def observe(self, work: Work, conditions: Conditions, executed_ns: int) -> None:
        pass
