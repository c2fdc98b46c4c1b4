"""`headway.gpu`: several GPUs shared by tokens and units (docs/locks.md).

with gpu.token(priority=5) as device:          # chooses the GPU and waits for a place on it
    with device.unit("h2d"):
        ...
    with device.unit("compute"):
        ...
"""

from __future__ import annotations

from headway.live.api.gpu import (
    BudgetExceeded,
    Device,
    LockMisuse,
    TokenTimeout,
    chunks,
    token,
)

__all__ = ["BudgetExceeded", "Device", "LockMisuse", "TokenTimeout", "chunks", "token"]
