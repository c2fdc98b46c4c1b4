"""Channels by what people call them: a process, a name, what a launch was told."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from headway.live.gate.channel import Channel

K = TypeVar("K", int, str)


class Directory:
    """Channels that have a task."""

    def __init__(self) -> None:
        self._processes: dict[int, dict[Channel, None]] = {}
        self._names: dict[str, dict[Channel, None]] = {}
        self._tokens: dict[str, dict[Channel, None]] = {}
        self._tasks: dict[str, Channel] = {}
        self._known: dict[Channel, str] = {}

    def arrived(self, channel: Channel) -> None:
        if channel.task is None:
            return
        self._tasks[channel.task.name] = channel
        self._known[channel] = channel.task.name
        self._processes.setdefault(channel.peer.pid, {})[channel] = None
        self._tokens.setdefault(channel.token, {})[channel] = None
        self._names.setdefault(channel.name, {})[channel] = None

    def gone(self, channel: Channel) -> None:
        task = self._known.pop(channel, None)
        if task is None:
            return
        del self._tasks[task]
        _take(self._processes, channel.peer.pid, channel)
        _take(self._tokens, channel.token, channel)
        _take(self._names, channel.name, channel)

    def of_process(self, pid: int) -> Collection[Channel]:
        return self._processes.get(pid, {}).keys()

    def with_token(self, token: str) -> Collection[Channel]:
        """All that showed this token of a launch."""
        return self._tokens.get(token, {}).keys()

    def named(self, wanted: str) -> list[Channel]:
        """By a program's name, its process or a task's full name, in the order of arrival."""
        found = {*self._names.get(wanted, ())}
        if wanted in self._tasks:
            found.add(self._tasks[wanted])
        if wanted.isdecimal() and len(wanted) < 20:
            found |= {*self.of_process(int(wanted))}
        return sorted(found, key=lambda channel: channel.number)

    def some_tasks(self, count: int) -> tuple[list[str], int]:
        """The names of the first tasks, and how many more there are."""
        names = [name for name, _ in zip(self._tasks, range(count), strict=False)]
        return names, len(self._tasks) - len(names)


def _take(by: dict[K, dict[Channel, None]], key: K, channel: Channel) -> None:
    by[key].pop(channel, None)
    if not by[key]:
        del by[key]
