"""Headway: GPU time, on time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headway.live.inside import enter_server as enter_server
    from headway.live.inside import leave_server as leave_server
    from headway.live.tasks import current as current
    from headway.live.tasks import job as job
    from headway.live.tasks import task as task
else:
    _INSIDE = {
        "current": "headway.live.tasks",
        "enter_server": "headway.live.inside",
        "job": "headway.live.tasks",
        "leave_server": "headway.live.inside",
        "task": "headway.live.tasks",
    }

    def __getattr__(name: str) -> Any:
        """What a program may call is imported when it is first used."""
        from importlib import import_module

        if name in _INSIDE:
            return getattr(import_module(_INSIDE[name]), name)
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
