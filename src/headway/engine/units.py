"""Durations: text with a unit outside, integer nanoseconds inside.

This is the only place where the two are converted. No float touches a time: "2.5ms" is read as a
decimal number and must come to a whole number of nanoseconds.
"""

from __future__ import annotations

import re
from fractions import Fraction

NS_PER = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
MAX_NS = 2**62
"""Longest duration and latest instant: 146 years, and it still fits a signed 64-bit word."""

_DURATION = re.compile(r"\s*(?P<sign>-?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ns|us|ms|s)\s*")
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
MAX_SLOWDOWN_PERCENT = 1000
"""Whoever may become eleven times slower has no goal."""
EXPECTED_SLOWDOWN = f'a slowdown such as "10%", above 0% and at most {MAX_SLOWDOWN_PERCENT}%'
EXPECTED = 'a duration with its unit, such as "5ms" (ns, us, ms or s)'


class DurationError(ValueError):
    """The text is not a duration; str() says what was expected."""


def parse_duration(text: object) -> int:
    """Read "5ms", "2.5 us" or "40ns" as nanoseconds."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) and len(text) <= 64 else None
    if match is None:
        raise DurationError(EXPECTED)
    if match["sign"]:
        raise DurationError("a duration that is not negative")
    nanoseconds = Fraction(match["number"]) * NS_PER[match["unit"]]
    if nanoseconds.denominator != 1:
        raise DurationError("a whole number of nanoseconds")
    if nanoseconds > MAX_NS:
        raise DurationError("a duration of at most 146 years")
    return int(nanoseconds)


def parse_slowdown(text: object) -> float:
    """Read "10%" as 0.1: by which part of what a job takes alone it may take longer."""
    match = _PERCENT.fullmatch(text) if isinstance(text, str) and len(text) <= 64 else None
    if match is None or not 0 < float(match[1]) <= MAX_SLOWDOWN_PERCENT:
        raise ValueError(EXPECTED_SLOWDOWN)
    return float(match[1]) / 100


def format_ns(duration_ns: int) -> str:
    """Write nanoseconds the short way, exactly: 2500000 is "2.5ms"."""
    if duration_ns < 0:
        return "-" + format_ns(-duration_ns)
    unit = next((u for u in ("s", "ms", "us") if duration_ns >= NS_PER[u]), "ns")
    whole, rest = divmod(duration_ns, NS_PER[unit])
    if not rest:
        return f"{whole}{unit}"
    digits = len(str(NS_PER[unit])) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0") + unit
