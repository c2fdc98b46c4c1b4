"""`headway.gpu`: several GPUs shared by tokens and units (docs/locks.md).

with gpu.token(priority=5) as device:          # chooses the GPU and waits for a place on it
    with device.unit("h2d"):
        ...
    with device.unit("compute"):
        ...
"""

from __future__ import annotations

from headway.live.api.gpu import BudgetExceeded, Device, chunks, token
from headway.live.api.gpu_line import LockMisuse, TokenTimeout
from headway.live.api.gpu_slices import NoSlices
from headway.live.api.gpu_state import State, state

__all__ = [
    "BudgetExceeded",
    "Device",
    "LockMisuse",
    "NoSlices",
    "State",
    "TokenTimeout",
    "chunks",
    "state",
    "token",
]
