"""What goes wrong through no fault of Headway: one line each, and an exit code."""

from __future__ import annotations

BAD_INPUT = 2
INTERRUPTED = 130


class UserError(Exception):
    """Something a person can put right; str() is the line they see."""

    def __init__(self, message: str, *, code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code
