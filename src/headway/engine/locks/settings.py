"""The parameters of a token allocator, and the presets that make it a protocol by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_TOKENS = 65_536
ORDERS = ("donation", "priority")
PRESETS = ("r2dglp", "r2dglp-wc", "length", "kfmlp", "priority")
Mistake = tuple[str, object, str]
"""The key, what was found, what was expected."""


def ceil_div(dividend: int, divisor: int) -> int:
    """The quotient, rounded up."""
    return -(-dividend // divisor)


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """One allocator serves one cluster of devices. Token i is a place on device `i mod devices`,
    so neighbouring queues are on different devices."""

    tokens: int
    """k: the places of all devices of the cluster together."""
    devices: int
    """g"""
    top: int
    """m: how many of the most important requests may lend their priority, always the number of
    CPUs that share the allocator."""
    length: int | None
    """f: the longest FIFO queue, its holder counted. None: unlimited."""
    cap: int | None
    """The most requests in all FIFO queues together, holders counted. None: unlimited."""
    order: str = "donation"

    def mistakes(self) -> Iterator[Mistake]:
        """What is wrong with the numbers, by the key that files use."""
        if not 1 <= self.tokens <= MAX_TOKENS:
            yield "k", self.tokens, f"a whole number from 1 to {MAX_TOKENS}"
        if not 1 <= self.devices <= MAX_TOKENS:
            yield "g", self.devices, f"a whole number from 1 to {MAX_TOKENS}"
        if self.top < 1:
            yield "m", self.top, "a whole number from 1"
        if self.length is not None and self.length < 1:
            yield "f", self.length, "a whole number from 1, or null for unlimited"
        if self.cap is not None and self.cap < 1:
            yield "cap", self.cap, "a whole number from 1, or null for unlimited"
        if self.order not in ORDERS:
            yield "order", self.order, " or ".join(ORDERS)
        if self.length is not None and self.length >= 1 and self.tokens >= 1:
            room = self.tokens * self.length
            if self.cap is None:
                yield "cap", None, f"at most k*f = {room}, since f is limited"
            elif self.cap > room:
                yield "cap", self.cap, f"at most k*f = {room}"

    def device_of(self, token: int) -> int:
        """The device, counted within the cluster, on which this token is a place."""
        return token % self.devices


def preset(
    name: str, *, cpus: int, devices: int, rho: int, length: int | None = None
) -> AllocatorSettings:
    """The settings of a protocol for a cluster of `cpus` CPUs and `devices` devices with `rho`
    tokens each. `length` is needed by the preset of that name and refused by the others."""
    for key, value in (("cpus", cpus), ("devices", devices), ("rho", rho)):
        if value < 1:
            raise ValueError(f"{key}: found {value}, expected a whole number from 1")
    if (length is not None) != (name == "length"):
        wanted = "a queue length" if name == "length" else "no queue length"
        raise ValueError(f"length: found {length}, expected {wanted} with the preset {name!r}")
    tokens = rho * devices
    shape: dict[str, tuple[int | None, int | None]] = {
        "r2dglp": (ceil_div(cpus, tokens), cpus),
        "r2dglp-wc": (ceil_div(max(cpus, tokens), tokens), max(cpus, tokens)),
        "length": (length, None if length is None else tokens * length),
        "kfmlp": (None, None),
        "priority": (1, tokens),
    }
    if name not in shape:
        raise ValueError(f"preset: found {name!r}, expected one of {', '.join(PRESETS)}")
    queue, cap = shape[name]
    order = "priority" if name == "priority" else "donation"
    settings = AllocatorSettings(tokens, devices, cpus, queue, cap, order)
    for key, found, expected in settings.mistakes():
        raise ValueError(f"{key}: found {found}, expected {expected}")
    return settings
