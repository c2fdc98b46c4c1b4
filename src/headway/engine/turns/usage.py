"""Usage: how much of its jobs a program waits for the GPU, and how much longer beside others.

A program that is bound by the GPU spends its jobs waiting for it; one that is bound by its CPU
finds its work done whenever it asks. So waiting tells the two apart. And what others cost a job is
what it waits longer than it does alone: the rest of a job is the program's own CPU time, which
differs much more from job to job than what others do to it.
"""

from __future__ import annotations

from dataclasses import dataclass

KNOWN = 4
"""So many jobs say how much a program waits when it is alone."""
RECENT = 16
"""As many of the last jobs count for most of it."""
DEVIATIONS = 2.0
"""A job waits longer than alone if it waits longer than the mean by so many mean deviations."""


@dataclass(slots=True)
class _Mean:
    """A mean that forgets, and the mean deviation from it."""

    mean: float = 0.0
    deviation: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count = min(self.count + 1, RECENT)
        if self.count > 1:
            self.deviation += (abs(value - self.mean) - self.deviation) / self.count
        self.mean += (value - self.mean) / self.count


class Usage:
    """What is known of one program's jobs."""

    def __init__(self) -> None:
        self._share = _Mean()
        self._wait = _Mean()
        """For each of a job's groups, in ns."""

    @property
    def is_known(self) -> bool:
        return self._share.count >= KNOWN

    @property
    def gpu_share(self) -> float | None:
        """For which part of a job the program waits for the GPU when it has that alone: at least
        for so much of it the GPU is busy."""
        return self._share.mean if self.is_known else None

    def alone(self, response_ns: int, waited_ns: int, groups: int) -> None:
        """A job during which nobody else was let onto the GPU."""
        if response_ns > 0:
            self._share.add(min(waited_ns / response_ns, 1.0))
            self._wait.add(waited_ns / max(groups, 1))

    def slowdown(self, response_ns: int, waited_ns: int, groups: int) -> float | None:
        """By which part of what it takes alone such a job was slowed down."""
        if not self.is_known:
            return None
        usual = self._wait.mean + DEVIATIONS * self._wait.deviation
        lost_ns = waited_ns - usual * max(groups, 1)
        return max(0.0, lost_ns / max(response_ns - max(lost_ns, 0.0), 1.0))
