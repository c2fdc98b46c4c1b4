"""CUDA programs in every way that they find their driver."""

from __future__ import annotations

WAYS: dict[str, tuple[str, dict[str, object]]] = {
    "link": ("-linked", {}),
    "dlsym": ("", {"VIA": "dlsym"}),
    "proc": ("", {"VIA": "proc"}),
    "proc2": ("", {"VIA": "proc2"}),
}
SETS_AND_COPIES = 2
"""What cudaapp does besides launching: it fills its memory, and reads it back."""
