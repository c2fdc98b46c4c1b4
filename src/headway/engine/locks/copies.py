"""Copies: which copy engines an operation needs, and the chunks it is cut into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from headway.engine.locks.settings import Mistake


class Move(Enum):
    """A copy, by where the bytes come from and go to."""

    IN = "host to device"
    OUT = "device to host"
    STATE_IN = "state, host to device"
    STATE_OUT = "state, device to host"
    PEER = "device to device"


@dataclass(frozen=True, slots=True)
class CopySettings:
    """How a cluster uses its copy engines."""

    units: int = 2
    """Copy engines of each device."""
    reserved: bool = False
    """Whether the second is kept for moving state: peer-to-peer, or through the host's memory."""
    outbound_pair: bool = False
    """Whether a peer-to-peer copy between devices with two unreserved copy engines takes the
    outbound one of both, as GPUSync's sources do, instead of one outbound and one inbound."""
    chunk: int = 2 * 1024 * 1024
    """Bytes under one lock; a longer copy asks again for each chunk."""
    keep: bool = False
    """Whether a copy keeps its units between chunks while nobody is entitled to them."""

    def mistakes(self) -> Iterator[Mistake]:
        """What is wrong with the settings, by the key that files use."""
        if self.units not in (1, 2):
            yield "units", self.units, "1 or 2"
        elif self.reserved and self.units == 1:
            yield "reserved", "a reserved copy engine of one", "two copy engines"
        if self.chunk < 1:
            yield "chunk", self.chunk, "a number of bytes from 1"

    def needs(self, move: Move, source: int, target: int) -> tuple[tuple[int, str], ...]:
        """The units that a copy takes, as (device, kind); the host counts as no device, so for
        every move but PEER only one of `source` and `target` matters."""
        if move is Move.PEER:
            if source == target:
                raise ValueError(f"found a copy from device {source} to itself, expected another")
            if self.units == 1:
                return (source, "ce0"), (target, "ce0")
            both_out = self.reserved or self.outbound_pair
            return (source, "ce1"), (target, "ce1" if both_out else "ce0")
        inward = move in (Move.IN, Move.STATE_IN)
        device = target if inward else source
        if self.units == 1:
            return ((device, "ce0"),)
        if self.reserved:
            state = move in (Move.STATE_IN, Move.STATE_OUT)
            return ((device, "ce1" if state else "ce0"),)
        return ((device, "ce0" if inward else "ce1"),)

    def chunks(self, size: int) -> list[int]:
        """The bytes of each request that a copy of `size` bytes makes."""
        whole, rest = divmod(size, self.chunk)
        return [self.chunk] * whole + ([rest] if rest else [])
