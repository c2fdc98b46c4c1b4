"""Amounts of bytes and rates: text with a unit outside, whole numbers inside."""

from __future__ import annotations

import re
from fractions import Fraction

BYTES_PER = {
    "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3,
}  # fmt: skip
MAX_BYTES = 2**50
_AMOUNT = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[KMG]i?B|B)")
EXPECTED_SIZE = 'bytes with their unit, such as "512KiB" or "2MB"'
EXPECTED_RATE = 'bytes a second, such as "6GB/s"'


def parse_size(text: object) -> int:
    """Read "512KiB" or "1.5MB"; ValueError says what was expected."""
    match = _AMOUNT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ValueError(EXPECTED_SIZE)
    size = Fraction(match["number"]) * BYTES_PER[match["unit"]]
    if size.denominator != 1 or size > MAX_BYTES:
        raise ValueError(f"{EXPECTED_SIZE}, whole and at most a PiB")
    return int(size)


def parse_rate(text: object) -> int:
    """Read "6GB/s"; ValueError says what was expected."""
    if not isinstance(text, str) or not text.strip().endswith("/s"):
        raise ValueError(EXPECTED_RATE)
    try:
        return parse_size(text.strip()[:-2])
    except ValueError:
        raise ValueError(EXPECTED_RATE) from None


def format_size(size: int) -> str:
    """Write bytes exactly and short: 524288 is "512KiB"."""
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "KB"):
        if size and size % BYTES_PER[unit] == 0:
            return f"{size // BYTES_PER[unit]}{unit}"
    return f"{size}B"


def transfer_ns(size: int, rate: int) -> int:
    """How long `size` bytes take at `rate` bytes a second, rounded up."""
    return -(-size * 1_000_000_000 // rate)
