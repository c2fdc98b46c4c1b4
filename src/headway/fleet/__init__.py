"""Headway on many machines: claims of GPU time, and the GPUs that take them."""

from __future__ import annotations

from headway.fleet.claims import Claim, ClaimError, read_claim

__all__ = ["Claim", "ClaimError", "read_claim"]
