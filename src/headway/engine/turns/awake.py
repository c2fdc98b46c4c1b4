"""Awake: programs that take turns and said something lately. Who looks all the time looks at them.

A program that is looked at says by its port alone what others say in a message. It is looked at
from its first word on, until it has been silent for long: of thousands most are silent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from itertools import islice

from headway.engine.turns.arrivals import LONGEST_NS
from headway.engine.turns.client import Client

AWAKE_NS = LONGEST_NS
"""A program that is silent for longer has no jobs at a period that matters here."""
A_LOOK = 16
"""Ports that are looked at in one go, beside those of who is on the GPU: some ten microseconds."""
FIRST = 64
"""Of those who were heard before the looking began so many are looked at from then on; the others
when they say something."""


class Awake:
    """Who is looked at."""

    def __init__(self, online: Collection[Client]) -> None:
        self._online = online
        self.looks = False
        """Somebody looks all the time."""
        self._heard: OrderedDict[Client, int] = OrderedDict()
        """When each was heard; the last stands last."""
        self._seen: OrderedDict[Client, None] = OrderedDict()
        """Whose ports are looked at; whoever was looked at longest ago stands first."""

    def heard(self, client: Client, now_ns: int) -> None:
        """A program has said something."""
        self._heard[client] = now_ns
        self._heard.move_to_end(client)
        if self.looks:
            self._see(client)

    def is_awake(self, client: Client, now_ns: int) -> bool:
        """Whether it said something lately, or has work on the GPU."""
        heard_ns = self._heard.get(client)
        return client in self._online or (heard_ns is not None and now_ns - heard_ns <= AWAKE_NS)

    def gone(self, client: Client) -> None:
        self._heard.pop(client, None)
        self._seen.pop(client, None)

    def begin(self, now_ns: int) -> None:
        """From now on somebody looks all the time."""
        self.looks = True
        last = islice(reversed(self._heard.items()), FIRST)
        for client in [c for c, heard_ns in last if now_ns - heard_ns <= AWAKE_NS]:
            self._see(client)
        for client in self._online:
            if client in self._heard:
                self._see(client)

    def end(self) -> list[Client]:
        """Nobody looks any more: who has to be looked at once more, after being told that."""
        self.looks = False
        seen = list(self._seen)
        self._seen.clear()
        for client in seen:
            _tell(client, on=False)
        return seen

    def some(self, now_ns: int) -> list[Client]:
        """Who is looked at next: those on the GPU, some of the others in turn, and one that has
        been silent for so long that this is the last time."""
        found = [client for client in self._online if client in self._seen]
        for client in list(islice(self._seen, A_LOOK)):
            self._seen.move_to_end(client)
            if client not in self._online:
                found.append(client)
        silent = next(iter(self._heard), None)
        if silent is not None and now_ns - self._heard[silent] > AWAKE_NS:
            found += self._fall_asleep(silent, now_ns)
        return found

    @property
    def rounds(self) -> int:
        """After so many calls of `some` everybody was looked at."""
        return -(-len(self._seen) // A_LOOK)

    def _fall_asleep(self, client: Client, now_ns: int) -> list[Client]:
        """Unless it waits, or has work on the GPU: that takes as long as it takes. Who is told that
        nobody looks any more has to be looked at after that."""
        task = client.task
        if client in self._online or (task is not None and task.waiting is not None):
            self._heard[client] = now_ns
            self._heard.move_to_end(client)
            return []
        del self._heard[client]
        if client not in self._seen:
            return []
        del self._seen[client]
        _tell(client, on=False)
        return [client]

    def _see(self, client: Client) -> None:
        if client not in self._seen:
            self._seen[client] = None
            _tell(client, on=True)


def _tell(client: Client, *, on: bool) -> None:
    if client.port is not None:
        client.port.set_polled(on)
