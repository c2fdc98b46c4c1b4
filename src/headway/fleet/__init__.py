"""Headway on many machines: claims of GPU time, and the GPUs that take them.

`headway.fleet.remote` is `ray.remote` with a claim. Ray is imported when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.fleet.claims import Claim, ClaimError, read_claim

__all__ = ["Claim", "ClaimError", "FleetError", "read_claim", "remote"]

if TYPE_CHECKING:
    from headway.fleet.joining import FleetError as FleetError
    from headway.fleet.remoting import remote as remote
else:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name == "FleetError":
            return import_module("headway.fleet.joining").FleetError
        if name == "remote":
            return import_module("headway.fleet.remoting").remote
        raise AttributeError(f"module 'headway.fleet' has no attribute {name!r}")
