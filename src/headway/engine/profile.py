"""What is known of a kind of GPU: measured, or given in a file; never a constant elsewhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The numbers of one kind of GPU. Those that stand here are an H200's."""

    name: str = "NVIDIA H200"
    slice_ns: int = 2_000_000
    """The hardware's time slice: for so long a program that has work keeps the GPU from others."""
    switch_ns: int = 140_000
    """Lost when the GPU goes from one process to another."""
    shared_switch_ns: int = 5_000
    """The same between clients of one MPS server."""
    gate_ns: int = 3_600
    """What a gate that the GPU waits at takes of its time,"""
    mark_ns: int = 2_000
    """and a mark that it writes."""

    def handover_ns(self, window_ns: int, *, side_by_side: bool) -> int:
        """What it costs a program to give its turn away and get it back: two switches, and what the
        other one has in flight by then."""
        switch_ns = self.shared_switch_ns if side_by_side else self.switch_ns
        return 2 * switch_ns + window_ns
