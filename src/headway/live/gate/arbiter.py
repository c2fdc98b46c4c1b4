"""The arbiter of real programs: what they say in messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.engine.turns import arbiter
from headway.engine.turns.arbiter import Bounds
from headway.live.gate.channel import Channel
from headway.live.wire.protocol import (
    COMPLETE,
    RELEASE,
    SUBMIT,
    TURNS,
    WITHDRAW,
    Message,
    ProtocolError,
)

__all__ = ["Arbiter", "Bounds"]


class Arbiter(arbiter.Arbiter):
    """One GPU and the channels that share it."""

    look_later: Callable[[Channel], None] | None = None
    """Has the launches read, between decisions, that a program measured."""

    def look_at_jobs(self, client: Any, now_ns: int) -> None:
        super().look_at_jobs(client, now_ns)
        if client.has_launches and self.look_later is not None:
            self.look_later(client)

    def heard(self, channel: Channel, message: Message, now_ns: int) -> None:
        """A message of a channel that has a task."""
        if message.type == SUBMIT:
            self.asked(channel, message.seq, message.signature, message.units, now_ns)
        elif message.type == COMPLETE:
            self.completed(channel, message.seq, now_ns, frame=message.frame)
            channel.publish_costs()
        elif message.type == RELEASE:
            self.released(channel, now_ns, rests=message.frame)
        elif message.type == WITHDRAW:
            self.withdrew(channel, message.seq, now_ns)
        elif message.type == TURNS:
            self.takes_turns(channel, now_ns)
        else:
            raise ProtocolError(f"a message of the unknown type {message.type}")
