"""Headway: GPU time, on time."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.live.tasks import current as current
    from headway.live.tasks import job as job
    from headway.live.tasks import task as task

__version__ = "0.1.0"

_INSIDE = {
    "current": "headway.live.tasks",
    "job": "headway.live.tasks",
    "task": "headway.live.tasks",
}
"""What a program may call, and where it is: imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name in _INSIDE:
        return getattr(importlib.import_module(_INSIDE[name]), name)
    raise AttributeError(f"module 'headway' has no attribute {name!r}")
