"""What goes wrong through no fault of Headway: one line each, and an exit code."""

from __future__ import annotations

import contextlib

import click

FAILED = 1
"""Something that was asked for could not be done: the output cannot be written, say."""
NO_DAEMON = 1
BAD_INPUT = 2
INTERRUPTED = 130


class UserError(Exception):
    """Something a person can put right; str() is the line they see."""

    def __init__(self, message: str, *, code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.code = code


def say(line: str) -> None:
    """A line on standard error, if that still takes any: nothing else depends on it."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(line, err=True)
