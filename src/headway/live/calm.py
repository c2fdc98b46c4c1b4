"""Calm: while it is known when somebody more important comes, pieces that are over by then may be
longer than a window. Then there are fewer gates, each of which costs a program some microseconds.

What is known is told to the program, for only there it is known when a piece will run: it may be
many of them ahead of the GPU. Whoever comes unexpectedly waits for such a piece at most.
"""

from __future__ import annotations

from collections.abc import Collection

from headway.live.channel import Channel

NOTHING = (0, 0, 0, 0)


class Calm:
    """Who may count on what."""

    def __init__(self, channels: Collection[Channel], calm_ns: int) -> None:
        self._channels = channels
        self._calm_ns = calm_ns

    def tell(self) -> None:
        """Who is there has changed, or what is known of them."""
        if not self._calm_ns:
            return
        for channel in self._channels:
            if channel.turns and channel.pages is not None:
                channel.pages.set_calm(*self._known_to(channel))

    def _known_to(self, channel: Channel) -> tuple[int, int, int, int]:
        """How long its pieces may be, when the next more important job begins, how much later the
        one after that, and how long it takes. Who shares its turns with equals, or has a budget,
        cannot tell when a piece of it will run; and of several who come, only the first is known.
        """
        task = channel.task
        if task is None or task.reserve is not None:
            return NOTHING
        others = [c for c in self._channels if c is not channel and c.task is not None]
        levels = [c.task.priority for c in others if c.task is not None]
        habits = [c.habit for c in others if c.task is not None and c.task.priority > task.priority]
        if task.priority in levels or not habits:
            return NOTHING
        regular = [habit for habit in habits if habit is not None and habit.soonest_ns is not None]
        if len(regular) != len(habits):
            return NOTHING
        first = min(regular, key=lambda habit: habit.soonest_ns or 0)
        period_ns = first.period_ns if len(regular) == 1 else 0
        return self._calm_ns, first.soonest_ns or 0, period_ns, first.job_ns
