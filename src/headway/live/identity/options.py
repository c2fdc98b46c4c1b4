"""What people want, and how they write it: `--reserve 5ms/20ms:ae`, `--metrics 9123`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from headway.engine import reserves
from headway.engine.priorities import PriorityRule
from headway.engine.reserves import ReserveSpec
from headway.engine.shares import Range


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What `headway run` was told about a program."""

    name: str | None = None
    policy: str | None = None
    priority: PriorityRule | None = None
    reserve: ReserveSpec | None = None
    period_ns: int | None = None
    deadline_ns: int | None = None
    """Of a job, from its first work on; without one the period is."""
    slowdown: float | None = None
    """By which part of what jobs take alone they may take longer, if they have no deadline."""
    predict: str | None = None
    """The cost model of its groups."""
    shares: Range | None = None
    """Which share of the multiprocessors it may be given beside others."""
    uid: int = -1


def parse_reserve(text: str, shared: str | None = None) -> ReserveSpec:
    """Read C/T or C/T:pe or C/T:ae; ValueError says what was expected."""
    return replace(reserves.parse_reserve(text, shared), predict="history")


Address = Path | int
"""A Unix socket, or a port of the loopback interface."""


def parse_address(text: str) -> Address:
    """Read where metrics are wanted; ValueError says what was expected."""
    if text.startswith("unix:/"):
        return Path(text.removeprefix("unix:"))
    match = re.fullmatch(r"(?:(?:127\.0\.0\.1|localhost):)?(\d{1,5})", text)
    if match is None or not 0 < int(match[1]) < 65536:
        expected = "unix:/path or [127.0.0.1:]PORT, because metrics are for this machine only"
        raise ValueError(f"found {text!r}, expected {expected}")
    return int(match[1])
