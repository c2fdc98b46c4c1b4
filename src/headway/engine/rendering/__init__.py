"""libETP's models of what OpenGL's commands cost: a flush, a clear, a draw, each in its own file.

The interposer's context monitor turns the commands of a group into rows of numbers, `features_of`
names these numbers, and a group's cost is the sum of what its commands cost (libETP, section IV-A).
"""

from __future__ import annotations

from headway.engine.rendering.calibration import Calibration
from headway.engine.rendering.clear import Clear
from headway.engine.rendering.draw import COVERAGE, Draw, Program
from headway.engine.rendering.flush import Flush
from headway.engine.rendering.names import Command, Row, commands_of, features_of

__all__ = [
    "COVERAGE",
    "Calibration",
    "Clear",
    "Command",
    "Draw",
    "Flush",
    "Program",
    "Row",
    "commands_of",
    "features_of",
]
