"""A kernel in Triton, as its own tutorials have them: a row of a softmax per program."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _rows(out: Any, given: Any, wide: Any, block: tl.constexpr) -> None:
    row = tl.program_id(0)
    at = tl.arange(0, block)
    x = tl.load(given + row * wide + at, mask=at < wide, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * wide + at, e / tl.sum(e, axis=0), mask=at < wide)


def softmax(given: Any) -> Any:
    out = torch.empty_like(given)
    _rows[(given.shape[0],)](out, given, given.shape[1], block=given.shape[1])
    return out
