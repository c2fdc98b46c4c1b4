"""Headway: GPU time, on time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["current", "enter_server", "fleet", "gpu", "job", "leave_server", "share", "sim", "task"]

if TYPE_CHECKING:
    from headway import fleet as fleet
    from headway import gpu as gpu
    from headway import sim as sim
    from headway.live.api.inside import enter_server as enter_server
    from headway.live.api.inside import leave_server as leave_server
    from headway.live.api.shares import share as share
    from headway.live.api.tasks import current as current
    from headway.live.api.tasks import job as job
    from headway.live.api.tasks import task as task
else:
    _INSIDE = {
        "current": "headway.live.api.tasks",
        "enter_server": "headway.live.api.inside",
        "job": "headway.live.api.tasks",
        "leave_server": "headway.live.api.inside",
        "share": "headway.live.api.shares",
        "task": "headway.live.api.tasks",
    }

    def __getattr__(name: str) -> Any:
        """What a program may call is imported when it is first used."""
        from importlib import import_module

        if name in _INSIDE:
            return getattr(import_module(_INSIDE[name]), name)
        if name in __all__:
            return import_module(f"headway.{name}")
        raise AttributeError(f"module 'headway' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
